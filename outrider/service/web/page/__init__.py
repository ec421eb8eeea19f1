"""The page that a browser shows: HTML, a sheet of styles and modules of JavaScript, sent as they are here.

It asks the API for everything, as whoever looks at it, and nobody else for anything.
"""

from __future__ import annotations

from importlib.resources import files

KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
"""By its ending, what a file is."""


def page_files() -> dict[str, bytes]:
    """What is sent, by name."""
    found = (each for each in files(__name__).iterdir() if each.name.rpartition(".")[2] in KINDS)
    return {each.name: each.read_bytes() for each in sorted(found, key=lambda each: each.name)}
