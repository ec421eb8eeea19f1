"""What everything else stands on: the clock, the disk, errors, sizes, shares of users."""
