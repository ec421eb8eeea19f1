"""Images in registries: references, manifests, how registries are asked; and signatures for object stores."""
