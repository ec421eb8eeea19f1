"""What a store is called: a file's path, or a database's address."""

from __future__ import annotations

SCHEMES = ("postgresql://", "postgres://")


def is_database(place: str) -> bool:
    """Whether a store's name is a database's address, not a file's path."""
    return place.startswith(SCHEMES)
