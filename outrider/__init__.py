"""Outrider: the image a job needs is on its nodes before the job's clock starts.

This package holds the version and nothing else, so that importing it costs nothing.
"""

__version__ = "0.1.0.dev0"
