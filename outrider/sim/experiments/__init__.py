"""Experiments: a workload in, frozen results out; no reading of files, no plotting."""
