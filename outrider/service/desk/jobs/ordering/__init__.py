"""The order in which jobs are thought about: among one user's, and where the service decides who starts."""
