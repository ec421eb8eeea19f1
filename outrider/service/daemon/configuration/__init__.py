"""outriderd's configuration: its options, and how files and environment become values."""
