"""The forms in which workloads are kept: a reader for each, and the conversion between them."""
