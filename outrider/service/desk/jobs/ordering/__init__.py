"""The order in which jobs are thought about: after each look, and in queues of which the service decides."""
