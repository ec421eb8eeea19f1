"""Jobs that name several sizes: which one is taken, and how the batch system comes to it."""
