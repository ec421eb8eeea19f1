"""The options of a job in its lines, `option: nodes=2 time=60` each, and when it is to have ended.

They are narrower than those of a reservation, since a batch system changes no more of a job that waits than
its nodes and its limit; plugins/slurm/outrider_metadata.lua reads the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from outrider.metadata.errors import TextError, shown

MOST_OPTIONS = 16
FIXED = ("image", "cpus", "memory")
"""What an option of a reservation may say, and one of a job may not."""

_PART = re.compile(r"([a-z]{1,16})=([A-Za-z0-9:._/-]{1,64})")
_NODES = re.compile(r"[1-9][0-9]{0,4}")
_TIME = re.compile(r"([1-9][0-9]{0,5})(m|min|h)?")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_HOUR_S, _MINUTE_S = 3600, 60


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOption:
    """One size that a job may have: so many nodes, each as the job wants it, for so long."""

    nodes: int
    limit_s: int

    def __str__(self) -> str:
        return f"nodes={self.nodes} time={self.limit_s // _MINUTE_S}"


def read_job_options(texts: Sequence[str]) -> tuple[JobOption, ...]:
    """What these lines say, in their order. Raises TextError, which counts from 1."""
    if len(texts) > MOST_OPTIONS:
        raise TextError(f"there are {len(texts)} options: at most {MOST_OPTIONS} are read")
    found: list[JobOption] = []
    for number, text in enumerate(texts, 1):
        try:
            option = _option(text)
        except TextError as error:
            raise TextError(f"option {number}: {error}") from error
        if any(option.nodes == other.nodes for other in found):
            raise TextError(
                f"option {number}: another one has {option.nodes} nodes, too: keep the shorter one"
            )
        found.append(option)
    return tuple(found)


def read_finish_by(text: str) -> int:
    """The instant by which a job is to have ended. Raises TextError."""
    words = f"finish-by is {shown(text)}: write a time like 2026-01-31T14:00:00Z"
    if _INSTANT.fullmatch(text) is None:
        raise TextError(words)
    try:
        moment = datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise TextError(words) from error
    return int(moment.timestamp())


def write_finish_by(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _option(text: str) -> JobOption:
    found: dict[str, str] = {}
    # No other blanks, as in the submit filter.
    for part in text.replace("\t", " ").split(" "):
        if not part:
            continue
        split = _PART.fullmatch(part)
        if split is None:
            raise TextError(f"{shown(part)} is not of the form key=value, as in nodes=2 time=60")
        key, value = split[1], split[2]
        if key in FIXED:
            raise TextError(f"{key} is the same for all options of a job: say it once, outside of them")
        if key not in ("nodes", "time"):
            raise TextError(f"{key} is not known in an option of a job: there are nodes and time")
        if key in found:
            raise TextError(f"{key} stands twice in it: say it once")
        found[key] = value
    for key in ("nodes", "time"):
        if key not in found:
            raise TextError(f"{key} is missing: write one like nodes=2 time=60")
    time = _TIME.fullmatch(found["time"])
    if _NODES.fullmatch(found["nodes"]) is None:
        raise TextError(f"{shown(found['nodes'])} is not a number of nodes from 1 to 99999")
    if time is None:
        raise TextError(f"{shown(found['time'])} is not a time: write minutes, or one like 90m or 2h")
    unit_s = _HOUR_S if time[2] == "h" else _MINUTE_S
    return JobOption(nodes=int(found["nodes"]), limit_s=int(time[1]) * unit_s)
