"""Experiments on leases: a log as best effort, reservations put into it, and users who react to answers."""
