"""The users of a cluster's hosts: those of the tree, and some who submit jobs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.records import TestbedError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    """The accounts of a tree, and a cluster's own."""

    def __init__(self, tree: Path, users: Sequence[str]) -> None:
        self._passwd = (tree / "etc/passwd").read_text()
        self._group = (tree / "etc/group").read_text()
        self._known = {person.name: person for person in map(_read, self._passwd.splitlines()) if person}
        self.users = tuple(self._add(name, FIRST_UID + place) for place, name in enumerate(users))

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

    def _add(self, name: str, uid: int) -> Person:
        if name in self._known:
            raise TestbedError(f"the hosts' system has a user {name} of its own: choose another name")
        self._known[name] = Person(name=name, uid=uid, gid=uid, home=f"{HOMES}/{name}")
        return self._known[name]


def _read(line: str) -> Person | None:
    fields = line.split(":")
    if len(fields) < 7:
        return None
    return Person(name=fields[0], uid=int(fields[2]), gid=int(fields[3]), home=fields[5])
