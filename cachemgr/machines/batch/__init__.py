"""Jobs of a batch system whose script runs in a machine: what the batch system starts in its place."""
