"""Bringing an image's bytes to this node: sources, rate limits, and the engine that survives their faults."""
