"""One way to carry a request out, as it is written in one line: `nodes=2,time=60m`, or with blanks.

In a job's lines and on the command line alike; read strictly, since users write it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from outrider.metadata.errors import TextError, shown

MOST_WAYS = 16
MOST_CHARACTERS = 2560
KEYS = {
    "nodes": "nodes",
    "time": "duration",
    "duration": "duration",
    "instances_per_node": "instances_per_node",
    "cpus": "cpus",
    "memory": "memory",
    "image": "image",
    "digest": "digest",
}
"""What is written, and the key of a deployment that it is."""

_PART = re.compile(r"(image)=([!-:<-~]{1,2048})|([a-z_]{1,24})=([A-Za-z0-9:.-]{1,80})")
"""Of addresses alone there may be more signs: no blank, comma or semicolon, which are between options."""


def read_way(text: str) -> Mapping[str, str]:
    """The keys of a deployment that one option says, and its image's address and digest. Raises TextError."""
    if len(text) > MOST_CHARACTERS:
        raise TextError(f"an option has {len(text)} characters: at most {MOST_CHARACTERS} are read")
    found: dict[str, str] = {}
    for part in text.replace(",", " ").split() or [""]:
        split = _PART.fullmatch(part)
        if split is None:
            raise TextError(f"{shown(part)} is not of the form key=value, as in nodes=2 time=60")
        name, value = split[1] or split[3], split[2] or split[4]
        key = KEYS.get(name)
        if key is None:
            raise TextError(f"{name} is not a key of an option: use {', '.join(KEYS)}")
        if key in found:
            raise TextError(f"{name} is given twice in an option: give it once")
        found[key] = value
    for key, word in (("nodes", "nodes"), ("duration", "time")):
        if key not in found:
            raise TextError(f"{word} is missing in the option {shown(text)}: write nodes=2 time=60")
    if "digest" in found and "image" not in found:
        raise TextError("digest has no effect in an option without image")
    return found


def read_ways(text: str) -> list[Mapping[str, str]]:
    """Several, with semicolons between them. Raises TextError, which counts from 1."""
    parts = text.split(";")
    if len(parts) > MOST_WAYS:
        raise TextError(f"there are {len(parts)} options: at most {MOST_WAYS} are read")
    found = []
    for number, part in enumerate(parts, 1):
        try:
            found.append(read_way(part))
        except TextError as error:
            raise TextError(f"option {number}: {error}") from error
    return found
