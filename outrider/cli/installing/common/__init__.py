"""What every installation needs, whichever the batch system."""
