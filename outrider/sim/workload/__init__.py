"""Workloads: readers, writers and generators of what users submit over time."""
