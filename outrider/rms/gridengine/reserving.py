"""Advance reservations in Grid Engine: one that users bind to, and guards that keep others off.

A reservation is an advance reservation on the reservation queue, which runs nothing else, so
that jobs of the work queue are no reason to refuse it. As the two queues are in one another's
subordinate lists, its jobs wait until a node is clear. Guards are advance reservations of the
service's own on the work queue: Grid Engine starts nothing there that would reach into them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from outrider.rms.base import Refused, RmsReservation, Sight, Unknown
from outrider.rms.gridengine import parsing, seeing
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.parsing import Advance
from outrider.rms.gridengine.settings import GridEngineSettings
from outrider.rms.gridengine.snapshot import Snapshot

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]{0,200}")
GRANTED = re.compile(r"advance reservation (\d+) has been granted")
MOST_GUARDS_A_LOOK = 64


def refusal(wanted: RmsReservation, sight: Sight, now_s: int) -> Refused | None:
    """Why a reservation cannot be made, as far as that is for us to say."""
    if not NAME.fullmatch(wanted.name) or wanted.name.startswith(seeing.GUARD):
        return Refused(f"Grid Engine takes no reservation named {wanted.name}: begin with a letter")
    known = {node.name: node for node in sight.nodes}
    missing = [name for name in wanted.nodes if name not in known]
    if missing:
        return Unknown(f"there is no node {' '.join(missing)} in Grid Engine")
    if wanted.end_s <= now_s:
        return Refused(f"reservation {wanted.name} would be over already: it ends at {wanted.end_s}")
    for other in sight.reservations:
        if other.name == wanted.name:
            if not other.is_ours:
                return Refused(f"reservation {other.name} is an administrator's: take another name")
            continue
        if other.start_s < wanted.end_s and max(wanted.start_s, now_s) < other.end_s:
            shared = sorted(set(other.nodes) & set(wanted.nodes))
            if shared:
                return Refused(f"reservation {other.name} has {' '.join(shared)} until {other.end_s}")
    return None


def is_so(seen: RmsReservation, wanted: RmsReservation, now_s: int) -> bool:
    """Whether nothing is to be changed; an active one began when it did."""
    same = (seen.nodes, seen.users, seen.end_s) == (wanted.nodes, wanted.users, wanted.end_s)
    is_active = seen.start_s <= now_s and wanted.start_s <= now_s
    return same and (seen.start_s == wanted.start_s or is_active)


def make(
    commands: GridEngineCommands,
    settings: GridEngineSettings,
    wanted: RmsReservation,
    sight: Sight,
    now_s: int,
) -> int:
    """A new advance reservation; its number."""
    slots = {node.capacity["cpus"] for node in sight.nodes if node.name in wanted.nodes}
    if len(slots) != 1:
        raise Refused(
            f"the nodes of {wanted.name} have {sorted(slots)} slots: reserve those of each kind by themselves"
        )
    (number,) = slots
    argv = ["qrsub", "-N", wanted.name, *_since(wanted.start_s, now_s)]
    argv += ["-e", parsing.utc_text(wanted.end_s + settings.duration_offset_s)]
    argv += ["-q", _instances(settings.reservation_queue, wanted.nodes)]
    argv += ["-l", f"{settings.reservation_complex}=TRUE", *_whole(settings, number, len(wanted.nodes))]
    if wanted.users:
        argv += ["-u", ",".join(wanted.users)]
    printed = commands.read(*argv)
    granted = GRANTED.search(printed)
    if granted is None:
        raise Refused(f"qrsub {wanted.name}: {' '.join(printed.split())}")
    return int(granted[1])


def remove(commands: GridEngineCommands, found: Iterable[Advance]) -> None:
    """Lets advance reservations end; Grid Engine deletes the jobs that are still bound to them."""
    for each in found:
        try:
            commands.ask("qrdel", str(each.number))
        except Unknown:
            continue


def mend_guards(
    commands: GridEngineCommands, settings: GridEngineSettings, snapshot: Snapshot, now_s: int
) -> None:
    """Guards what is not guarded though it could be, and removes what guards nothing.

    A node's slots that a job without an end occupies cannot be guarded before they are free.
    """
    ours = {each.name: each for each in snapshot.sight.reservations if each.is_ours}
    left: list[Advance] = []
    for guard in snapshot.guards:
        kept = ours.get(guard.name.removeprefix(seeing.GUARD))
        fits = kept is not None and guard.end_s == kept.end_s and guard.start_s <= max(kept.start_s, now_s)
        (left if fits else []).append(guard)
    remove(commands, [each for each in snapshot.guards if each not in left])
    slots = {each.host: each.slots for each in snapshot.instances if each.queue == settings.work_queue}
    tries = MOST_GUARDS_A_LOOK
    for reservation in ours.values():
        open_slots = _unguarded(reservation, left, slots)
        if not open_slots or reservation.end_s <= now_s:
            continue
        is_bare = all(open_slots.get(node) == slots.get(node) for node in reservation.nodes)
        if is_bare and _guard_all(commands, settings, reservation, slots, now_s):
            continue
        busy = _busy(snapshot.sight)
        for node, number in sorted(open_slots.items()):
            for _ in range(min(number, slots[node] - busy.get(node, 0), tries)):
                tries -= 1
                queue = _instances(settings.work_queue, (node,))
                if not _guard(commands, reservation, ["-q", queue], now_s):
                    break


def _unguarded(
    reservation: RmsReservation, guards: Iterable[Advance], slots: dict[str, int]
) -> dict[str, int]:
    """How many slots of which nodes of a reservation have no guard."""
    open_slots = {node: slots.get(node, 0) for node in reservation.nodes}
    for guard in guards:
        if guard.name == seeing.GUARD + reservation.name:
            for name, number in guard.slots:
                node = name.partition("@")[2]
                open_slots[node] = open_slots.get(node, 0) - number
    return {node: number for node, number in open_slots.items() if number > 0}


def _guard_all(
    commands: GridEngineCommands,
    settings: GridEngineSettings,
    reservation: RmsReservation,
    slots: dict[str, int],
    now_s: int,
) -> bool:
    numbers = {slots[node] for node in reservation.nodes}
    if len(numbers) != 1:
        return False
    where = ["-q", _instances(settings.work_queue, reservation.nodes)]
    try:
        whole = _whole(settings, numbers.pop(), len(reservation.nodes))
    except Refused:
        return False
    return _guard(commands, reservation, [*where, *whole], now_s)


def _guard(commands: GridEngineCommands, reservation: RmsReservation, what: list[str], now_s: int) -> bool:
    span = [*_since(reservation.start_s, now_s), "-e", parsing.utc_text(reservation.end_s)]
    return commands.attempt("qrsub", "-N", seeing.GUARD + reservation.name, *span, *what).code == 0


def _busy(sight: Sight) -> dict[str, int]:
    """Slots in use by node."""
    busy: dict[str, int] = {}
    for job in sight.jobs:
        for node in job.nodes:
            busy[node] = busy.get(node, 0) + job.resources["cpus"]
    return busy


def _since(start_s: int, now_s: int) -> list[str]:
    return ["-a", parsing.utc_text(start_s)] if start_s > now_s else []


def _instances(queue: str, nodes: Iterable[str]) -> str:
    return ",".join(f"{queue}@{node}" for node in nodes)


def _whole(settings: GridEngineSettings, slots: int, nodes: int) -> list[str]:
    """The request for whole nodes."""
    if slots == nodes == 1:
        return []
    environment = settings.environment(slots)
    if environment is None:
        raise Refused(
            f"no parallel environment gives {slots} slots on each node: "
            f"make one with allocation_rule {slots} and name it in environments"
        )
    return ["-pe", environment, str(slots * nodes)]
