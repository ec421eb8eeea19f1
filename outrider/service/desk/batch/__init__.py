"""What is to be done to the batch system, kept in the store until it has been done."""
