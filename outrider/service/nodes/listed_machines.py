"""Jobs' machines as a node's daemon lists them: what counts of its words."""

from __future__ import annotations

from cachemgr.protocol import JOB_OWNER, ListedMachines
from outrider.service.ports import MachineInstance, MachineTime

MOST_JOBS = 2_000
MOST_DIGITS = 18


def owners_of(kept: ListedMachines) -> tuple[str, ...]:
    return tuple(owner for owner in kept.owners if owner.startswith(JOB_OWNER))[:MOST_JOBS]


def instances_of(kept: ListedMachines) -> tuple[MachineInstance, ...]:
    """How far machines are that say so."""
    found = []
    for owner, told in list(zip(kept.owners, kept.told, strict=False))[:MOST_JOBS]:
        words = told.split(" ")
        if len(words) == 5 and words[0].isdecimal() and words[1].isdecimal():
            uid, number, name, address, state = words
            found.append(
                MachineInstance(
                    owner=owner,
                    uid=int(uid),
                    number=int(number),
                    name=name,
                    address=address.strip("-"),
                    state=state,
                )
            )
    return tuple(found)


def times_of(kept: ListedMachines) -> tuple[MachineTime, ...]:
    """What machines have had of processors; nothing from an older daemon."""
    found = []
    for owner, told in list(zip(kept.owners, kept.used, strict=False))[:MOST_JOBS]:
        words = told.split(" ")
        if len(words) == 3 and all(each.isdecimal() and len(each) < MOST_DIGITS for each in words):
            uid, used_us, waited_us = map(int, words)
            time = MachineTime(owner=owner, uid=uid, used_us=used_us, waited_us=waited_us, at_us=kept.at_us)
            found.append(time)
    return tuple(found)
