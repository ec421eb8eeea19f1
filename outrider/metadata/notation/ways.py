"""One way to carry a request out, as it is written in one line: `nodes=2,time=60m`, or with blanks.

In a job's lines and on the command line alike; read strictly, since users write it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from outrider.metadata.errors import TextError, shown

MOST_WAYS = 16
MOST_CHARACTERS = 512
KEYS = {
    "nodes": "nodes",
    "time": "duration",
    "duration": "duration",
    "instances_per_node": "instances_per_node",
    "cpus": "cpus",
    "memory": "memory",
}
"""What is written, and the key of a deployment that it is."""

_PART = re.compile(r"([a-z_]{1,24})=([A-Za-z0-9:.-]{1,64})")


def read_way(text: str) -> Mapping[str, str]:
    """The keys of a deployment that one option says. Raises TextError."""
    if len(text) > MOST_CHARACTERS:
        raise TextError(f"an option has {len(text)} characters: at most {MOST_CHARACTERS} are read")
    found: dict[str, str] = {}
    for part in text.replace(",", " ").split() or [""]:
        split = _PART.fullmatch(part)
        if split is None:
            raise TextError(f"{shown(part)} is not of the form key=value, as in nodes=2 time=60")
        key = KEYS.get(split[1])
        if key is None:
            raise TextError(f"{split[1]} is not known in an option: there are {', '.join(KEYS)}")
        if key in found:
            raise TextError(f"{split[1]} stands twice in an option: say it once")
        found[key] = split[2]
    for key, word in (("nodes", "nodes"), ("duration", "time")):
        if key not in found:
            raise TextError(f"{word} is missing in the option {shown(text)}: write nodes=2 time=60")
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
