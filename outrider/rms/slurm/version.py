"""Which Slurm it is, and how its JSON is asked for."""

from __future__ import annotations

import re

from outrider.rms.slurm.fields import BadField

Version = tuple[int, int, int]
OLDEST: Version = (22, 5, 0)
_VERSION = re.compile(r"(\d{2})\.(\d{2})\.(\d+)")
DATA_PARSER = "v0.0.42"
"""The one that 24.11 and 26.05 have in common."""
HAS_PARSERS: Version = (24, 11, 0)


def version_in(data: bytes) -> Version:
    """What `squeue --version` says. Raises BadField."""
    words = data.decode("utf-8", "replace").strip()
    found = _VERSION.search(words)
    if found is None:
        raise BadField(f"{words[:60]!r} names no version of Slurm")
    version = int(found[1]), int(found[2]), int(found[3])
    if version < OLDEST:
        raise BadField(f"this is Slurm {found[0]}: at least 22.05 is needed")
    return version


def json_option(version: Version) -> str:
    return f"--json={DATA_PARSER}" if version >= HAS_PARSERS else "--json"
