"""Installing beside Slurm: its files are changed by marked lines, and get back what they said."""
