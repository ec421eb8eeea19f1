"""Reservations as `scontrol -o show reservation` prints them, and the arguments that make one.

Slurm's reservations have no comment. Ours are known by a flag's value that nobody else has a use for:
a time after which an idle reservation is purged, of far more than three years. Only operators can set
it, an administrator's change of the reservation leaves it as it is, and it purges nothing. So a
reservation keeps the service's name for it, which users say to sbatch and prologs are told.
"""

from __future__ import annotations

import re

from outrider.core.model import Resources
from outrider.metadata.errors import TextError
from outrider.metadata.notation.hostlists import expand, fold
from outrider.rms.base import NOTHING, Refused, RmsReservation
from outrider.rms.slurm.fields import value_in

MARK = "PURGE_COMP=1366-14:17:00"
FLAGS = f"IGNORE_JOBS,{MARK}"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}")
_LINE = re.compile(r"ReservationName=(.*?) StartTime=(\d{1,18}) EndTime=(\d{1,18}) Duration=")


def reservations_in(data: bytes, core_cpus: int = 0) -> tuple[tuple[RmsReservation, ...], tuple[str, ...]]:
    """The reservations by start and name, and what could not be understood. Those without nodes count not.
    Those of whole nodes have sizes, too; none has if nobody says how many CPUs a core has."""
    found: dict[str, RmsReservation] = {}
    findings = []
    for line in data.decode("utf-8", "replace").splitlines():
        if not line.startswith("ReservationName="):
            continue
        head = _LINE.match(line)
        if head is None:
            findings.append(f"reservation {line[16:60]!r} is left out: field StartTime or EndTime is odd")
            continue
        tail = line[head.end() - len("Duration=") :]
        nodes = value_in(tail, "Nodes")
        if not nodes:
            continue
        try:
            found[head[1]] = RmsReservation(
                name=head[1],
                nodes=expand(nodes),
                start_s=int(head[2]),
                end_s=int(head[3]),
                users=tuple(filter(None, (value_in(tail, "Users") or "").split(","))),
                is_ours=MARK in (value_in(tail, "Flags") or "").split(","),
                size=_size_in(tail, core_cpus),
            )
        except (ValueError, TextError) as error:
            findings.append(f"reservation {head[1]} is left out: {error}")
    return tuple(sorted(found.values(), key=lambda each: (each.start_s, each.name))), tuple(findings)


def _size_in(tail: str, core_cpus: int) -> Resources:
    """The CPUs that it has of each node."""
    cores, count = value_in(tail, "CoreCnt") or "", value_in(tail, "NodeCnt") or ""
    if not (cores.isdecimal() and count.isdecimal() and int(count)) or len(cores) > 18:
        return NOTHING
    return Resources.of(cpus=int(cores) // int(count) * core_cpus)


def creation(
    wanted: RmsReservation, flags: str = FLAGS, *, has_tres_per_node: bool = False
) -> tuple[str, ...]:
    """The arguments after `scontrol create reservation`. Sizes are in cores."""
    return (
        f"ReservationName={checked(wanted.name)}",
        f"StartTime=uts{wanted.start_s}",
        f"EndTime=uts{wanted.end_s}",
        *_place(wanted, has_tres_per_node=has_tres_per_node),
        f"Users={','.join(wanted.users)}",
        f"Flags={flags}",
    )


def _place(wanted: RmsReservation, *, has_tres_per_node: bool = False) -> tuple[str, ...]:
    """Its nodes, and how many cores of each if not all."""
    nodes = f"Nodes={fold(wanted.nodes)}"
    if wanted.is_whole:
        return (nodes,)
    if has_tres_per_node:
        return nodes, f"TRESPerNode=cpu={wanted.size['cpus']}"
    return nodes, f"CoreCnt={','.join([str(wanted.size['cpus'])] * len(wanted.nodes))}"


def change(old: RmsReservation, wanted: RmsReservation) -> tuple[str, ...]:
    """The arguments after `scontrol update`: what differs, and nothing if nothing does."""
    parts = []
    if wanted.start_s != old.start_s:
        parts.append(f"StartTime=uts{wanted.start_s}")
    if wanted.end_s != old.end_s:
        parts.append(f"EndTime=uts{wanted.end_s}")
    if (wanted.nodes, wanted.size) != (old.nodes, old.size):
        parts += _place(wanted)
    if wanted.users != old.users:
        parts.append(f"Users={','.join(wanted.users)}")
    return (f"ReservationName={checked(wanted.name)}", *parts) if parts else ()


def checked(name: str) -> str:
    """A name that can stand in an argument."""
    if not NAME.fullmatch(name):
        raise Refused(f"{name[:60]!r} is not a name for a reservation: letters, digits, '.', '_' and '-'")
    return name
