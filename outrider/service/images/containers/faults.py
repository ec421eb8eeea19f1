"""What is wrong with a container image, in words for whoever named it."""

from __future__ import annotations


class ConversionFault(Exception):
    """The image cannot be converted, today or ever; the message says why and what would help."""
