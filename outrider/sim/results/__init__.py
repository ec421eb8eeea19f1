"""What a run was like, as values: waiting, slowdown, utilisation, disks, and who had which processor."""
