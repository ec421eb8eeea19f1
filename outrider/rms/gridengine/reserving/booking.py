"""Advance reservations that users bind to: when one is refused, how it is made, and how it is taken back.

A reservation of whole nodes is an advance reservation on the reservation queue, which runs nothing else, so
that jobs of the work queue are no reason to refuse it. As the two queues are in one another's
subordinate lists, its jobs wait until a node is clear. One of parts is on a queue that is in no list with the
work queue, since there jobs of both run on a node: its slots are guarded in the work queue before it is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from outrider.rms.base import Refused, RmsReservation, Sight, Unknown
from outrider.rms.gridengine import parsing, seeing
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.parsing import Advance
from outrider.rms.gridengine.settings import GridEngineSettings

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.+-]{0,200}")


def refusal(wanted: RmsReservation, sight: Sight, settings: GridEngineSettings, now_s: int) -> Refused | None:
    """Why a reservation cannot be made, as far as that is for us to say."""
    if not NAME.fullmatch(wanted.name) or wanted.name.startswith((seeing.GUARD, seeing.CLOSED)):
        return Refused(f"Grid Engine takes no reservation named {wanted.name}: begin with a letter")
    known = {node.name: node for node in sight.nodes}
    missing = [name for name in wanted.nodes if name not in known]
    if missing:
        return Unknown(f"there is no node {' '.join(missing)} in Grid Engine")
    if wanted.end_s <= now_s:
        return Refused(f"reservation {wanted.name} would be over already: it ends at {wanted.end_s}")
    if not wanted.is_whole and not (settings.parts_queue and wanted.size["cpus"]):
        return Refused(
            f"reservation {wanted.name} is of parts of nodes: name a queue for such in parts_queue, and cpus"
        )
    taken = dict.fromkeys(wanted.nodes, wanted.size["cpus"])
    for other in sight.reservations:
        if other.name == wanted.name:
            if not other.is_ours:
                return Refused(f"reservation {other.name} is an administrator's: take another name")
            continue
        if other.start_s < wanted.end_s and max(wanted.start_s, now_s) < other.end_s:
            for name in sorted(set(other.nodes) & set(wanted.nodes)):
                taken[name] += other.size["cpus"]
                if wanted.is_whole or other.is_whole or taken[name] > known[name].capacity["cpus"]:
                    return Refused(f"reservation {other.name} has {name} until {other.end_s}")
    return None


def is_so(seen: RmsReservation, wanted: RmsReservation, now_s: int) -> bool:
    """Whether nothing is to be changed; an active one began when it did."""
    same = (seen.nodes, seen.users, seen.end_s) == (wanted.nodes, wanted.users, wanted.end_s)
    is_active = seen.start_s <= now_s and wanted.start_s <= now_s
    return same and seen.size == wanted.size and (seen.start_s == wanted.start_s or is_active)


def make(
    commands: GridEngineCommands,
    settings: GridEngineSettings,
    wanted: RmsReservation,
    sight: Sight,
    now_s: int,
) -> int:
    """A new advance reservation; its number."""
    number = slots_of_a_node(wanted, sight)
    argv = ["qrsub", "-N", wanted.name, *since(wanted.start_s, now_s)]
    argv += ["-e", parsing.utc_text(wanted.end_s + settings.duration_offset_s)]
    argv += ["-q", instances(settings.queue_of(wanted), wanted.nodes)]
    argv += ["-l", f"{settings.reservation_complex}=TRUE", *on_each(settings, number, len(wanted.nodes))]
    if wanted.users:
        argv += ["-u", ",".join(wanted.users)]
    printed = commands.read(*argv)
    granted = parsing.granted_number(printed)
    if granted is None:
        raise Refused(f"qrsub {wanted.name}: {' '.join(printed.split())}")
    return granted


def slots_of_a_node(wanted: RmsReservation, sight: Sight) -> int:
    """How many slots a reservation has on each of its nodes. Raises Refused if they are not alike."""
    if not wanted.is_whole:
        return wanted.size["cpus"]
    slots = {node.capacity["cpus"] for node in sight.nodes if node.name in wanted.nodes}
    if len(slots) != 1:
        raise Refused(
            f"the nodes of {wanted.name} have {sorted(slots)} slots: reserve those of each kind by themselves"
        )
    return slots.pop()


def remove(commands: GridEngineCommands, found: Iterable[Advance]) -> None:
    """Lets advance reservations end; Grid Engine deletes the jobs that are still bound to them."""
    for each in found:
        try:
            commands.ask("qrdel", str(each.number))
        except Unknown:
            continue


def since(start_s: int, now_s: int) -> list[str]:
    return ["-a", parsing.utc_text(start_s)] if start_s > now_s else []


def instances(queue: str, nodes: Iterable[str]) -> str:
    return ",".join(f"{queue}@{node}" for node in nodes)


def on_each(settings: GridEngineSettings, slots: int, nodes: int) -> list[str]:
    """The request for so many slots on each of so many nodes."""
    if slots == nodes == 1:
        return []
    environment = settings.environment(slots)
    if environment is None:
        raise Refused(
            f"no parallel environment gives {slots} slots on each node: "
            f"make one with allocation_rule {slots} and name it in environments"
        )
    return ["-pe", environment, str(slots * nodes)]
