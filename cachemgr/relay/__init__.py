"""Passing an image on to other nodes, while it is still arriving if need be."""
