"""The command line of a node's pool: arguments in, tables out. What is done is decided elsewhere."""
