"""The options of a job in its lines, `option: nodes=2 time=60` each, and when it is to have ended.

    option: nodes=4 time=35 cpus=8 memory=16GiB image=https://images.example.org/fast.qcow2

`cpus` and `memory` are a node's. What an option does not say is as the job says it. The submit filters,
plugins/slurm/outrider_options.lua and plugins/gridengine/outrider_jsv_options.py, read the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from outrider.metadata.errors import TextError, shown
from outrider.metadata.notation.uris import read_uri

MOST_OPTIONS = 16
MOST_MEMORY_MIB = 1 << 24
MOST_CHARACTERS = 4096
"""Of all of a job's."""

_PART = re.compile(r"([a-z]{1,16})=([!-~]{1,2048})")
_KEYS = ("nodes", "time", "cpus", "memory", "image", "digest")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NODES = re.compile(r"[1-9][0-9]{0,4}")
_TIME = re.compile(r"([1-9][0-9]{0,5})(m|min|h)?")
_MEMORY = re.compile(r"([1-9][0-9]{0,8})(MiB|GiB|MB|GB|M|G)")
_MIB = {"M": 1, "MiB": 1, "MB": 1, "G": 1024, "GiB": 1024, "GB": 1024}
"""Batch systems count memory in powers of two by whatever name."""
_VALUE = re.compile(r"(0|[1-9][0-9]{0,8})(?:\.([0-9]{1,3}))?")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_HOUR_S, _MINUTE_S = 3600, 60


@dataclass(frozen=True, kw_only=True, slots=True)
class JobOption:
    """One way to carry a job out: so many nodes for so long. What is 0 or empty is as the job says it."""

    nodes: int
    limit_s: int
    cpus: int = 0
    """Of each node."""
    memory_mib: int = 0
    """Of each node."""
    image: str = ""
    digest: str = ""

    def __str__(self) -> str:
        words = [f"nodes={self.nodes} time={self.limit_s // _MINUTE_S}"]
        words += [f"cpus={self.cpus}"] if self.cpus else []
        words += [f"memory={self.memory_mib}MiB"] if self.memory_mib else []
        words += [f"image={self.image}"] if self.image else []
        words += [f"digest={self.digest}"] if self.digest else []
        return " ".join(words)


def read_job_options(texts: Sequence[str]) -> tuple[JobOption, ...]:
    """What these lines say, in their order. Raises TextError, which counts from 1."""
    if len(texts) > MOST_OPTIONS:
        raise TextError(f"there are {len(texts)} options: at most {MOST_OPTIONS} are read")
    found: list[JobOption] = []
    if sum(map(len, texts)) > MOST_CHARACTERS:
        raise TextError(f"the options have more than {MOST_CHARACTERS} characters: shorten them")
    for number, text in enumerate(texts, 1):
        try:
            option = _option(text)
        except TextError as error:
            raise TextError(f"option {number}: {error}") from error
        for key, amount in (("cpus", "cpus"), ("memory", "memory_mib")):
            if found and bool(getattr(option, amount)) != bool(getattr(found[0], amount)):
                # Nobody knows any more what the job itself said, once another option was taken.
                words = f"{key} is in some options only: give it in each, or in none"
                raise TextError(f"option {number}: {words}")
        for other, each in enumerate(found, 1):
            if _sizes(each) == _sizes(option):
                raise TextError(f"option {number}: it has the size of option {other}: keep the shorter one")
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


def read_value(text: str) -> int:
    """What a job is worth to its user, in thousandths. Raises TextError."""
    found = _VALUE.fullmatch(text)
    if found is None:
        raise TextError(f"value is {shown(text)}: write a number from 0 to 999999999, like 12.5")
    return int(found[1]) * 1000 + int((found[2] or "").ljust(3, "0"))


def write_value(thousandths: int) -> str:
    whole, part = divmod(thousandths, 1000)
    return f"{whole}.{part:03}".rstrip("0").rstrip(".")


def _sizes(option: JobOption) -> tuple[object, ...]:
    """What two options may not have both: the longer one would never be taken."""
    return option.nodes, option.cpus, option.memory_mib, option.image


def _option(text: str) -> JobOption:
    found: dict[str, str] = {}
    # No other blanks, as in the submit filters.
    for part in text.replace("\t", " ").split(" "):
        if not part:
            continue
        split = _PART.fullmatch(part)
        if split is None:
            raise TextError(f"{shown(part)} is not of the form key=value, as in nodes=2 time=60")
        key, value = split[1], split[2]
        if key not in _KEYS:
            raise TextError(f"{key} is not a key of a job's option: use {', '.join(_KEYS)}")
        if key in found:
            raise TextError(f"{key} is given twice: give it once")
        found[key] = value
    for key in ("nodes", "time"):
        if key not in found:
            raise TextError(f"{key} is missing: write one like nodes=2 time=60")
    for key in ("nodes", "cpus"):
        if key in found and _NODES.fullmatch(found[key]) is None:
            words = "nodes" if key == "nodes" else "processors of a node"
            raise TextError(f"{shown(found[key])} is not a number of {words} from 1 to 99999")
    if "digest" in found and "image" not in found:
        raise TextError("digest has no effect without image")
    if "digest" in found and _DIGEST.fullmatch(found["digest"]) is None:
        raise TextError(f"{shown(found['digest'])} is not a digest: write sha256: and 64 hexadecimal digits")
    return JobOption(
        nodes=int(found["nodes"]),
        limit_s=_limit_s(found["time"]),
        cpus=int(found.get("cpus", "0")),
        memory_mib=read_memory_mib(found["memory"]) if "memory" in found else 0,
        image=read_uri(found["image"]) if "image" in found else "",
        digest=found.get("digest", ""),
    )


def _limit_s(text: str) -> int:
    time = _TIME.fullmatch(text)
    if time is None:
        raise TextError(f"{shown(text)} is not a time: write minutes, or one like 90m or 2h")
    return int(time[1]) * (_HOUR_S if time[2] == "h" else _MINUTE_S)


def read_memory_mib(text: str) -> int:
    """The memory of a node, in MiB. Raises TextError."""
    memory = _MEMORY.fullmatch(text)
    amount = int(memory[1]) * _MIB[memory[2]] if memory is not None else 0
    if not 1 <= amount <= MOST_MEMORY_MIB:
        raise TextError(f"{shown(text)} is not the memory of a node: write one like 800MiB or 16GiB")
    return amount
