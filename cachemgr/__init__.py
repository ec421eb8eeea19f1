"""The node side: the image pool. Standard library only, Python 3.9 and later."""

__version__ = "0.1.0.dev0"
