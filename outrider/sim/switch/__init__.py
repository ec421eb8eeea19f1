"""The cluster-wide context switch in numbers: situations, experiments, and a check of plans."""
