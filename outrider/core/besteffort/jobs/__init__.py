"""Jobs of a batch system: where one is put, in which order many start, which make way."""
