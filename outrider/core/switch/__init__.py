"""The cluster-wide context switch: from one set of running machines to the next."""
