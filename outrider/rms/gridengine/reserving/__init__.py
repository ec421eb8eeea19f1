"""Grid Engine's reservations: how they are made, what keeps others off, and how jobs get into them."""
