"""Outrider shown on a private Slurm: real hosts, links, daemons and jobs, on one machine."""
