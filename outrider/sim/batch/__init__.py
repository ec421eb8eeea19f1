"""Jobs of a batch system in simulated time: counted processors, and nodes by name."""
