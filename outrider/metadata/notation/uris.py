"""Addresses of images, as files and lines of jobs name them."""

from __future__ import annotations

import re

from outrider.metadata.errors import TextError, shown

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")


def read_uri(text: str) -> str:
    """The address of an image, or its name in a catalogue. Raises TextError."""
    found = re.match(r"[A-Za-z0-9._~:/?#@!$&()*+,;=%\[\]-]*", text)
    assert found is not None
    if found.end() < len(text):
        raise TextError(
            f"{shown(text[found.end()])} cannot stand in a URI: write it as %{ord(text[found.end()]):02X}"
        )
    if not 0 < len(text) <= 2048:
        raise TextError(f"a URI has 1 to 2048 characters, not {len(text)}")
    if not text[0].isalnum():
        raise TextError(f"{shown(text)} begins with {text[0]}: write a URI like https://host/image.qcow2")
    scheme, divider, rest = text.partition("://")
    if divider and not _SCHEME.fullmatch(scheme):
        raise TextError(f"{shown(scheme)} is not a scheme of a URI: write one like https")
    if divider and "@" in rest.partition("/")[0]:
        raise TextError(
            "has a user or a password in it: everybody who reads the file would know it; leave it out"
        )
    if ".." in re.split(r"[/?#]|%2[Ff]", text.replace("%2e", ".").replace("%2E", ".")):
        raise TextError(f"{shown(text)} has .. as a part: write where the image is without it")
    return text
