"""What the service is connected to: the batch system and the nodes."""
