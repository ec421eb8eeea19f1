"""What `outrider sim run` is made of: over nodes, over a log, as jobs of a batch system, and its output."""
