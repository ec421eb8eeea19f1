"""Everything that one look asks Grid Engine, unabridged: also what `Sight` has no place for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from cachemgr.base.clock import WallClock
from outrider.rms.base import RmsError, RmsReservation, Sight, Unknown
from outrider.rms.gridengine import parsing, seeing
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.environments import Environments
from outrider.rms.gridengine.hearing import Hearing
from outrider.rms.gridengine.parsing import Advance, Detail, GridTask, QueueInstance
from outrider.rms.gridengine.settings import GridEngineSettings

MOST_SELECTIONS = 200
"""Different wishes for queues and hosts that are resolved in one look; those beyond mean all."""
ALL_USERS = ("-u", "*")


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """A sight, and what it was made of."""

    sight: Sight
    details: Mapping[str, Detail]
    instances: tuple[QueueInstance, ...]
    advances: tuple[Advance, ...]
    """Of reservations, guards left out, the newest of a name last."""
    guards: tuple[Advance, ...]
    marks: tuple[Advance, ...] = ()
    """Of hosts that are closed to jobs outside of reservations."""
    troubled: frozenset[str] = frozenset()
    """The numbers of jobs in Grid Engine's state E: a start of theirs has failed."""
    placed: frozenset[str] = frozenset()
    """Of those that Grid Engine itself has on nodes."""
    requeued: frozenset[str] = frozenset()
    """Of those that wait to run once more."""


def take(
    commands: GridEngineCommands,
    settings: GridEngineSettings,
    clock: WallClock,
    hearing: Hearing,
    environments: Environments,
) -> Snapshot:
    """Asks once for each kind of thing. Jobs' requests come first: a job has to be in both lists."""
    details = parsing.details(commands.read("qstat", "-xml", "-j", "*"), commands.told)
    rows, held = _rows(commands, "*")
    hosts = commands.read("qhost", "-q", "-xml")
    instances = hearing.told(parsing.queue_instances(hosts, commands.told), clock.now_s())
    found = advances(commands)
    own, guards, marks = _sorted(found, settings)
    closed = [each.name.removeprefix(seeing.CLOSED) for each in marks]
    eligible = _eligible(commands, settings, details)
    ruled = environments.settings(commands, settings, details.values(), clock.now_s())
    nodes = seeing.nodes(instances, settings, closed)
    return Snapshot(
        sight=Sight(
            at_s=clock.now_s(),
            nodes=nodes,
            jobs=seeing.jobs(details, rows, held, _names(own, settings), eligible, ruled, nodes),
            reservations=_reservations(own, settings),
            queues=tuple(sorted({each.queue for each in instances} - {*settings.reserved_queues})),
        ),
        details=details,
        instances=instances,
        advances=own,
        guards=guards,
        marks=marks,
        troubled=_troubled(rows),
        placed=_placed(rows),
        requeued=_requeued(rows),
    )


def of_one_job(
    commands: GridEngineCommands,
    settings: GridEngineSettings,
    clock: WallClock,
    environments: Environments,
    before: Snapshot,
    number: str,
) -> Snapshot | None:
    """A snapshot in which that job alone is, as it is now; nodes and reservations are those of `before`.

    To list all jobs for each that is changed would cost their square. Nothing, if the job is gone, or in a
    reservation that `before` does not know.
    """
    try:
        details = parsing.details(commands.read("qstat", "-xml", "-j", number), commands.told)
    except Unknown:
        details = {}
    detail = details.get(number)
    names = _names(before.advances, settings)
    if detail is None or (detail.reservation and detail.reservation not in names):
        return None
    rows, held = _rows(commands, detail.user)
    eligible = _eligible(commands, settings, details)
    ruled = environments.settings(commands, settings, details.values(), clock.now_s())
    jobs = seeing.jobs(details, rows, held, names, eligible, ruled, before.sight.nodes)
    sight = replace(before.sight, at_s=clock.now_s(), jobs=jobs)
    return replace(
        before,
        sight=sight,
        details=details,
        troubled=_troubled(rows),
        placed=_placed(rows),
        requeued=_requeued(rows),
    )


def _troubled(rows: Iterable[GridTask]) -> frozenset[str]:
    return frozenset(row.number for row in rows if "E" in row.state)


def _placed(rows: Iterable[GridTask]) -> frozenset[str]:
    return frozenset(row.number for row in rows if row.queues)


def _requeued(rows: Iterable[GridTask]) -> frozenset[str]:
    return frozenset(row.number for row in rows if "R" in row.state and not row.queues)


def _rows(commands: GridEngineCommands, user: str) -> tuple[list[GridTask], set[str]]:
    """What is listed of a user's jobs, and the numbers of those that are held by us."""
    rows = parsing.tasks(commands.read("qstat", "-xml", "-g", "t", "-u", user), commands.told)
    if not any("h" in row.state for row in rows):
        return rows, set()
    return rows, parsing.numbers(commands.read("qstat", "-xml", "-s", "hs", "-u", user), commands.told)


def _names(own: Iterable[Advance], settings: GridEngineSettings) -> dict[int, str]:
    return {each.number: seeing.reservation(each, settings).name for each in own}


def reserved_anew(commands: GridEngineCommands, settings: GridEngineSettings, before: Snapshot) -> Snapshot:
    """An earlier snapshot with the advance reservations that are there now."""
    own, guards, marks = _sorted(advances(commands), settings)
    sight = replace(before.sight, reservations=_reservations(own, settings))
    return replace(before, sight=sight, advances=own, guards=guards, marks=marks)


def _reservations(own: Iterable[Advance], settings: GridEngineSettings) -> tuple[RmsReservation, ...]:
    """By start and name; of two with one name the newest, since it is being moved there."""
    seen = [seeing.reservation(each, settings) for each in own]
    newest = {each.name: each for each in seen}
    return tuple(sorted(newest.values(), key=lambda each: (each.start_s, each.name)))


def advances(commands: GridEngineCommands) -> list[Advance]:
    """All advance reservations in order of their numbers, but those that end just now."""
    numbers = parsing.advance_numbers(commands.read("qrstat", "-xml", *ALL_USERS), commands.told)
    if not numbers:
        return []
    argv = ("qrstat", "-xml", "-ar", ",".join(numbers))
    done = commands.attempt(*argv)
    # It fails when one of them ended since; the others are shown.
    if b"<qrstat" not in done.text:
        raise commands.failure(argv, done)
    found = [
        each
        for each in parsing.advances(done.text.decode(errors="replace"), commands.told)
        if each.slots and each.state != "d"
    ]
    return sorted(found, key=lambda each: each.number)


def _sorted(
    found: Iterable[Advance], settings: GridEngineSettings
) -> tuple[tuple[Advance, ...], tuple[Advance, ...], tuple[Advance, ...]]:
    """Reservations, guards, and marks of closed hosts."""
    own, guards, marks = list[Advance](), list[Advance](), list[Advance]()
    for each in found:
        is_ours = each.owner == settings.account
        if is_ours and each.name.startswith(seeing.GUARD):
            guards.append(each)
        elif is_ours and each.name.startswith(seeing.CLOSED):
            marks.append(each)
        else:
            own.append(each)
    return tuple(own), tuple(guards), tuple(marks)


def selected(commands: GridEngineCommands, wishes: seeing.Waiting) -> tuple[str, ...]:
    """The queue instances that a job's user allows, as Grid Engine itself resolves patterns and groups."""
    argv = ["qselect"]
    if wishes.queues:
        argv += ["-q", ",".join(wishes.queues)]
    for name, text in wishes.requests:
        if name in seeing.ON_HOSTS:
            argv += ["-l", f"{name}={text}"]
    try:
        return tuple(commands.read(*argv).split())
    except Unknown:
        return ()


def _eligible(
    commands: GridEngineCommands, settings: GridEngineSettings, details: Mapping[str, Detail]
) -> dict[str, tuple[str, ...]]:
    """The hosts that each job's user allows, of those jobs that may not run everywhere."""
    known: dict[seeing.Waiting, tuple[str, ...]] = {}
    found = {}
    for number, detail in details.items():
        wishes = seeing.own_wishes(detail, settings)
        asked = seeing.Waiting(
            queues=wishes.queues,
            requests=tuple(each for each in wishes.requests if each[0] in seeing.ON_HOSTS),
            limit_s=None,
        )
        if not seeing.restricts(asked) or (asked not in known and len(known) >= MOST_SELECTIONS):
            continue
        if asked not in known:
            known[asked] = _hosts(commands, asked)
        found[number] = known[asked]
    return found


def _hosts(commands: GridEngineCommands, wishes: seeing.Waiting) -> tuple[str, ...]:
    try:
        return tuple(sorted({name.partition("@")[2] for name in selected(commands, wishes)}))
    except RmsError:
        # A user's wish that Grid Engine cannot resolve is no reason to see nothing.
        return ()
