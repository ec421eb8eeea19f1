"""A virtual world in which the core makes every decision: workloads, experiments, plots."""
