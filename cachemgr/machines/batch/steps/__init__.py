"""A program on each of a job's other nodes: what is said with it, and how Grid Engine begins it."""
