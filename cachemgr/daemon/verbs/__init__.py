"""What can be asked of the daemon: a module for each group of verbs, and their table."""
