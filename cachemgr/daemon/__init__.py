"""The daemon of a node: the pool for everybody on it, behind one socket."""
