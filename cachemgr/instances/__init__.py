"""Instances: what a job gets of an image in the pool, to read or to write, and its contextualisation."""
