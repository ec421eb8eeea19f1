"""The service's threads: the desk's own, and those that carry out what may take long."""
