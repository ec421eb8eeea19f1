"""The node's mirror: images of layers from the pool, as a registry that can only be read."""
