"""The roles of a job's machines in its lines: how many of each there are, their names, and their sizes.

    role: head cpus=4 memory=8GiB
    role: worker count=3 memory=2GiB user-data=worker.yaml
    role: store hosts=s[1-2] image=https://images.example.org/store.qcow2 digest=sha256:0123…

Without `hosts` a single machine is called like its role, and several have a number behind that. What a role
does not say is as the job says it. The submit filter, plugins/slurm/outrider_roles.lua, reads the same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.metadata.errors import TextError, shown
from outrider.metadata.notation.job_options import read_memory_mib
from outrider.metadata.notation.uris import read_uri

MOST_ROLES, MOST_HOSTS, MOST_CPUS = 16, 1024, 255
LEAST_MEMORY_MIB = 32
MOST_LABEL, MOST_PATH = 63, 255

_KEYS = ("count", "hosts", "cpus", "memory", "user-data", "image", "digest")
_PART = re.compile(r"([a-z-]{1,16})=([!-~]{1,4096})")
_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[1-9][0-9]{0,5}")
_SET = re.compile(r"([A-Za-z0-9-]*)\[([0-9,-]+)\]([A-Za-z0-9-]*)")
_RANGE = re.compile(r"([0-9]{1,6})(?:-([0-9]{1,6}))?")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PATH = re.compile(r"(?!/)[A-Za-z0-9._/-]{1,255}")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRole:
    """Machines of a job that are alike. What is 0 or empty is as the job says it."""

    name: str
    hosts: tuple[str, ...]
    cpus: int = 0
    memory_mib: int = 0
    user_data: str = ""
    """A file of the working folder, by its path from there."""
    image: str = ""
    """Of its machines' first disk."""
    digest: str = ""
    text: str = ""
    """As its user has written it."""


def read_roles(texts: Sequence[str]) -> tuple[JobRole, ...]:
    """What these lines say, in their order. Raises TextError."""
    if len(texts) > MOST_ROLES:
        raise TextError(f"there are {len(texts)} roles: at most {MOST_ROLES} are read")
    found: list[JobRole] = []
    taken: set[str] = set()
    for text in texts:
        role = _role(text)
        if any(each.name == role.name for each in found):
            raise TextError(f"role {role.name} is given twice: give it once, with a count")
        if twice := sorted(taken.intersection(role.hosts)):
            raise TextError(f"host {twice[0]} is in two roles: name each once")
        taken.update(role.hosts)
        found.append(role)
    if len(taken) > MOST_HOSTS:
        raise TextError(f"the roles have {len(taken)} hosts: at most {MOST_HOSTS} are read")
    return tuple(found)


def _role(text: str) -> JobRole:
    # No other blanks, as in the submit filter.
    name, *parts = [part for part in text.replace("\t", " ").split(" ") if part] or [""]
    if _LABEL.fullmatch(name) is None:
        raise TextError(
            f"role: {shown(name)} is not the name of a role: begin with one, as in worker count=3"
        )
    found: dict[str, str] = {}
    for part in parts:
        split = _PART.fullmatch(part)
        if split is None:
            raise TextError(f"role {name}: {shown(part)} is not of the form key=value, as in count=3 cpus=2")
        if split[1] not in _KEYS:
            raise TextError(f"role {name}: {split[1]} is not a key of a role: use {', '.join(_KEYS)}")
        if split[1] in found:
            raise TextError(f"role {name}: {split[1]} is given twice: give it once")
        found[split[1]] = split[2]
    if "count" in found and "hosts" in found:
        raise TextError(f"role {name}: count and hosts say the same: leave one out")
    if "digest" in found and "image" not in found:
        raise TextError(f"role {name}: digest has no effect without image: write that, or leave digest out")
    try:
        return JobRole(
            name=name,
            hosts=_hosts(found["hosts"]) if "hosts" in found else _counted(name, found.get("count", "1")),
            cpus=_number(found["cpus"], MOST_CPUS, "processors") if "cpus" in found else 0,
            memory_mib=_memory_mib(found["memory"]) if "memory" in found else 0,
            user_data=_path(found["user-data"]) if "user-data" in found else "",
            image=read_uri(found["image"]) if "image" in found else "",
            digest=_digest(found["digest"]) if "digest" in found else "",
            text=" ".join([name, *parts]),
        )
    except TextError as error:
        raise TextError(f"role {name}: {error}") from error


def _counted(name: str, text: str) -> tuple[str, ...]:
    count = _number(text, MOST_HOSTS, "machines")
    hosts = (name,) if count == 1 else tuple(f"{name}{number}" for number in range(1, count + 1))
    if len(hosts[-1]) > MOST_LABEL:
        raise TextError(f"it is too long for the name of {count} hosts")
    return hosts


def _hosts(text: str) -> tuple[str, ...]:
    """The names of a set like head,w[1-3]."""
    found: list[str] = []
    for item in _items(text):
        split = _SET.fullmatch(item)
        found += _numbered(split[1], split[2], split[3]) if split is not None else [item]
        if len(found) > MOST_HOSTS:
            raise TextError(f"hosts: {shown(text)} stands for too many: at most {MOST_HOSTS} are read")
    if wrong := [host for host in found if _LABEL.fullmatch(host) is None]:
        raise TextError(f"hosts: {shown(wrong[0])} is not a host name: write letters, digits and hyphens")
    if len(set(found)) < len(found):
        raise TextError(f"hosts: {shown(text)} names a host twice: leave it out once")
    return tuple(found)


def _items(text: str) -> list[str]:
    """The items of a set: a comma in brackets divides none."""
    found: list[str] = []
    pieces: list[str] = []
    depth = 0
    for piece in text.split(","):
        pieces.append(piece)
        depth += piece.count("[") - piece.count("]")
        if depth <= 0:
            found.append(",".join(pieces))
            pieces, depth = [], 0
    if pieces:
        raise TextError(f"hosts: {shown(','.join(pieces))} has no end: write one like w[1-3]")
    return found


def _numbered(before: str, ranges: str, after: str) -> list[str]:
    found: list[str] = []
    for each in ranges.split(","):
        split = _RANGE.fullmatch(each)
        first, last = (split[1], split[2] or split[1]) if split is not None else ("1", "0")
        if int(first) > int(last):
            raise TextError(f"hosts: {shown(each)} is not a range of numbers: write one like 1-3")
        if int(last) - int(first) + len(found) >= MOST_HOSTS:
            raise TextError(f"hosts: it stands for too many: at most {MOST_HOSTS} are read")
        found += [f"{before}{number:0{len(first)}}{after}" for number in range(int(first), int(last) + 1)]
    return found


def _number(text: str, most: int, what: str) -> int:
    if _NUMBER.fullmatch(text) is None or int(text) > most:
        raise TextError(f"{shown(text)} is not a number of {what} from 1 to {most}")
    return int(text)


def _memory_mib(text: str) -> int:
    memory = read_memory_mib(text)
    if memory < LEAST_MEMORY_MIB:
        raise TextError(f"{shown(text)} is too little: a machine has {LEAST_MEMORY_MIB} MiB or more")
    return memory


def _digest(text: str) -> str:
    if _DIGEST.fullmatch(text) is None:
        raise TextError(f"digest is {shown(text)}: write sha256: and 64 hexadecimal digits")
    return text


def _path(text: str) -> str:
    if _PATH.fullmatch(text) is None or ".." in text.split("/"):
        raise TextError(
            f"user-data: {shown(text)} is not a file in the working folder: write its path from there"
        )
    return text
