"""The users of a cluster's hosts: those of the tree, and some who submit jobs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.records import TestbedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

USERS = ("ada", "bob", "eve")
FIRST_UID = 2001
# Where homes are, on any Linux; no path of this machine is meant.
HOMES = "/" + "home"


@dataclass(frozen=True, kw_only=True)
class Person:
    """An account: of the user and of the group of the same name."""

    name: str
    uid: int
    gid: int
    home: str


class People:
    """The accounts of a tree, and a cluster's own, which stand in the place of others of these names."""

    def __init__(self, tree: Path, users: Sequence[str]) -> None:
        uids = {name: FIRST_UID + place for place, name in enumerate(users)}
        self._passwd = _without((tree / "etc/passwd").read_text(), uids)
        self._group = _without((tree / "etc/group").read_text(), uids)
        self._known = {person.name: person for person in map(_read, self._passwd.splitlines()) if person}
        self.users = tuple(
            Person(name=name, uid=uid, gid=uid, home=f"{HOMES}/{name}") for name, uid in uids.items()
        )
        self._known |= {person.name: person for person in self.users}

    def of(self, name: str) -> Person:
        try:
            return self._known[name]
        except KeyError:
            names = ", ".join(person.name for person in self.users)
            raise TestbedError(f"no user {name} on the hosts: try root, {names}") from None

    def passwd(self) -> bytes:
        lines = [f"{each.name}:x:{each.uid}:{each.gid}::{each.home}:/bin/bash\n" for each in self.users]
        return (self._passwd + "".join(lines)).encode()

    def group(self) -> bytes:
        return (self._group + "".join(f"{each.name}:x:{each.gid}:\n" for each in self.users)).encode()


def _without(text: str, names: Iterable[str]) -> str:
    """The lines of a list of accounts that are not of these names; each ends with a line feed."""
    taken = set(names)
    return "".join(f"{line}\n" for line in text.splitlines() if line.partition(":")[0] not in taken)


def _read(line: str) -> Person | None:
    fields = line.split(":")
    if len(fields) < 7:
        return None
    return Person(name=fields[0], uid=int(fields[2]), gid=int(fields[3]), home=fields[5])
