"""Grid Engine behind the Protocol of batch systems: what is asked becomes commands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from cachemgr.base.clock import WallClock
from outrider.core.model import Resources
from outrider.rms.base import (
    NOTHING,
    JobState,
    JobUse,
    Landing,
    Refused,
    RmsJob,
    RmsReservation,
    Sight,
    Submission,
    SubmitsByCommand,
    Unavailable,
    Unknown,
)
from outrider.rms.commands import AccountOf, account_of
from outrider.rms.gridengine import context, seeing, submitting
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.environments import Environments
from outrider.rms.gridengine.hearing import Hearing
from outrider.rms.gridengine.parsing import Advance
from outrider.rms.gridengine.reserving import binding, booking, leading, stopping
from outrider.rms.gridengine.reserving.guards import Guards
from outrider.rms.gridengine.reserving.using import UseOfJobs
from outrider.rms.gridengine.settings import GridEngineSettings
from outrider.rms.gridengine.snapshot import Snapshot, of_one_job, reserved_anew, take
from outrider.rms.reachability import Reachability
from outrider.rms.saved import saved_again

EXECD_PORT = 6445
"""Where execds listen unless SGE_EXECD_PORT or the service sge_execd says otherwise."""
ON_NODES = stopping.ON_NODES
AGAIN_S, PATIENCE_S = 20, 120
"""A job that was told to save its machine is told again after so long, as long as it runs; and no more."""
MOST_ASKED = 1000


class GridEngine(SubmitsByCommand):
    """One Grid Engine, asked by its commands, as the account that owns reservations. One call at a time."""

    name = "gridengine"

    def __init__(
        self,
        settings: GridEngineSettings,
        commands: GridEngineCommands,
        *,
        clock: WallClock,
        account_of: AccountOf = account_of,
        shown: Collection[str] = (),
        execd_port: int = EXECD_PORT,
    ) -> None:
        """`shown` are the nodes of which a look tells; empty means all that Grid Engine has."""
        self._settings = settings
        self._commands = commands
        self._clock = clock
        self._account_of = account_of
        self._shown = frozenset(shown)
        # Jobs are numbered in order; one that is not there, but not above this, has ended.
        self._highest = 0
        self._last: Snapshot | None = None
        self._asked: dict[str, int] = {}
        self._waiting: set[str] = set()
        """Reservations whose start was moved on: they may begin at any moment."""
        self._hearing = Hearing()
        self._environments = Environments()
        self._reachability = Reachability(execd_port)
        self._uses = UseOfJobs(commands)

    def look(self) -> Sight:
        snapshot = self._snapshot()
        self._guards(snapshot).mend(snapshot)
        stopping.let_go_on(self._commands, snapshot)
        leading.give_back_priority(self._commands, snapshot)
        seen = snapshot.sight
        if not self._shown:
            return seen
        return replace(seen, nodes=tuple(node for node in seen.nodes if node.name in self._shown))

    def shares(self) -> dict[str, int]:
        # What is left of a share Grid Engine tells of jobs that may start, and not of users.
        return {}

    def silent(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        return self._reachability.silent(nodes)

    def reserve(self, wanted: RmsReservation) -> None:
        now_s = self._clock.now_s()
        snapshot = self._snapshot()
        wanted = _as_kept(snapshot, wanted)
        refusal = booking.refusal(wanted, snapshot.sight, self._settings, now_s)
        if refusal is not None:
            raise refusal
        seen = {each.name: each for each in snapshot.sight.reservations}.get(wanted.name)
        old, guards = self._named(snapshot, wanted.name), self._guards(snapshot)
        self._note_wait(seen, wanted, now_s)
        if seen is not None and booking.is_so(seen, wanted, now_s):
            self._move(snapshot, old[:-1], old[-1].number, seen)
        else:
            self._keep_running(snapshot, wanted.name, "changed")
            try:
                if not wanted.is_whole:
                    guards.first(snapshot, wanted)
                number = booking.make(self._commands, self._settings, wanted, snapshot.sight, now_s)
                self._move(snapshot, old, number, wanted)
            finally:
                # Guards of another time or place give way to those that are needed now.
                self._mend_anew(guards, snapshot)
            return
        self._mend_anew(guards, snapshot)

    def unreserve(self, name: str) -> None:
        snapshot = self._snapshot()
        seen = {each.name: each for each in snapshot.sight.reservations}.get(name)
        if seen is not None and not seen.is_ours:
            raise Refused(f"reservation {name} is an administrator's")
        if seen is not None:
            self._keep_running(snapshot, name, "given up")
        for job in snapshot.sight.jobs:
            if job.reservation == name and seen is not None:
                # What is none of ours nobody here would ever release: its user can.
                is_ours = job.metadata is not None or job.tag or job.is_held_by_us
                freed = binding.unbound(self._settings, snapshot.details[_number(job.key)])
                self._alter(job, "-h", "s" if is_ours else "u", *freed)
        booking.remove(self._commands, self._named(snapshot, name))
        self._waiting.discard(name)
        self._mend_anew(self._guards(snapshot), snapshot)

    def bind(self, job: str, reservation: str | None, limit_s: int | None = None) -> None:
        if limit_s is not None:
            raise Refused(
                f"job {job} keeps the limit that it has in Grid Engine: it cannot be bound with another"
            )
        snapshot = self._snapshot()
        found = self._job(snapshot, job)
        if reservation is None:
            if found.reservation is not None:
                self._not_on_nodes(found, "unbound")
                self._alter(found, *binding.unbound(self._settings, snapshot.details[_number(job)]))
            return
        wanted = {each.name: each for each in snapshot.sight.reservations}.get(reservation)
        if wanted is None:
            raise Unknown(f"there is no reservation {reservation} in Grid Engine")
        if wanted.users and found.user not in wanted.users:
            raise Refused(f"reservation {reservation} is not for {found.user}, whose job {job} is")
        if found.reservation == reservation:
            return
        self._not_on_nodes(found, f"bound to {reservation}")
        detail = snapshot.details[_number(job)]
        slots = _slots_of_a_node(snapshot, wanted)
        refusal = binding.misfit(self._settings, detail, found, wanted, slots)
        if refusal is not None:
            raise refusal
        number = self._named(snapshot, reservation)[-1].number
        self._alter(found, *binding.bound(self._settings, detail, number, wanted))

    def hold(self, job: str, reason: str) -> None:
        # First of all, since each moment counts: a job that is not held may start.
        self._commands.ask("qalter", "-h", "s", _number(job))
        found = self._job(self._snapshot_for(job), job)
        if found.state is JobState.SUSPENDED:
            raise Refused(f"job {job} is suspended: resume it")
        if found.state in ON_NODES:
            self._commands.ask("qrls", "-h", "s", _number(job))
            raise Refused(f"job {job} runs on {' '.join(found.nodes)} already: it cannot be held")
        self._alter(found, "-ac", f"{context.NOTE}={context.shown(reason)}")

    def release(self, job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> None:
        snapshot = self._snapshot_for(job)
        found = self._job(snapshot, job)
        known = {node.name for node in snapshot.sight.nodes}
        missing = sorted(set(nodes) - known)
        if missing:
            raise Unknown(f"there is no node {' '.join(missing)} in Grid Engine")
        if found.state is JobState.SUSPENDED:
            raise Refused(f"job {job} is suspended: resume it")
        carried = ["-ac", f"{context.TICKET}={context.encoded(ticket)}"] if ticket else []
        if found.state in ON_NODES:
            if carried:
                self._alter(found, *carried)
            if nodes and not set(found.nodes) <= set(nodes):
                raise Refused(f"job {job} runs on {' '.join(found.nodes)} already")
            return
        if nodes and len(set(nodes)) < found.nodes_wanted:
            raise Refused(f"job {job} wants {found.nodes_wanted} nodes, not {len(set(nodes))}")
        is_filters = context.HELD in snapshot.details[_number(job)].context
        mark = ["-dc", context.HELD] if is_filters else []
        # One command for all, since jobs come in bursts. A hold of the filter's is a user's.
        holds = "US" if is_filters else "S"
        detail = snapshot.details[_number(job)]
        requests = dict(seeing.own_wishes(detail, self._settings).requests)
        left = submitting.time_left(context.saved_machine(detail), requests)
        led = binding.led(self._commands, self._settings, snapshot, detail, found, nodes)
        self._alter(found, *led, *left, *carried, *mark, "-h", holds)
        if _number(job) in snapshot.troubled:
            # Ends the state E of a start that failed.
            self._commands.attempt("qmod", "-cj", job)

    def resize(
        self, job: str, nodes_wanted: int, limit_s: int, each: Resources = NOTHING, option: int = 0
    ) -> None:
        """Processors are slots, so `each` needs an environment that gives as many; memory is what a node has
        free, as of machines (mem_free)."""
        snapshot = self._snapshot_for(job)
        found = self._job(snapshot, job)
        resources = found.resources.with_amounts(Resources.of(cpus=each["cpus"]))
        is_known = option in (0, found.option) and resources == found.resources
        if is_known and (found.nodes_wanted, found.limit_s) == (nodes_wanted, limit_s):
            return
        self._not_on_nodes(found, "resized")
        if job != _number(job) or found.tasks > 1:
            raise Refused(f"job {job} is one of an array: its size is that of all")
        if limit_s < 1:
            raise Refused(f"a limit of {limit_s} s is too short: ask for 1 or more")
        fitting = [node for node in snapshot.sight.nodes if has_room(node.capacity, resources)]
        if not 1 <= nodes_wanted <= len(fitting):
            raise Refused(
                f"a job on {nodes_wanted} nodes with {resources} on each can never start: "
                f"{len(fitting)} nodes have that"
            )
        wishes = seeing.own_wishes(snapshot.details[_number(job)], self._settings)
        # All requests are said again, since -l replaces them all.
        requests = dict(wishes.requests) | {"h_rt": str(limit_s)}
        if each["memory_mib"]:
            short, long = context.MEMORY[::-1]
            requests.pop(short, None)
            requests[long] = f"{each['memory_mib']}M"
        slots = submitting.slots(nodes_wanted, resources, self._settings)
        alone = self._settings.environment(1)
        if not slots and (found.nodes_wanted, found.resources["cpus"]) != (1, 1) and alone is not None:
            # A job keeps its environment, and with it the slots that it had.
            slots = ["-pe", alone, "1"]
        mark = ["-ac", f"{context.OPTION}={option}"] if option else []
        self._alter(found, *slots, "-l", submitting.requests(requests), *mark)

    def note(self, job: str, text: str, start_s: int | None = None) -> None:
        self._context(job, context.NOTE, context.shown(text))

    def ticket(self, job: str, text: str) -> None:
        if text:
            self._context(job, context.TICKET, context.encoded(text))
        else:
            self._job(self._snapshot_for(job), job)
            self._commands.ask("qalter", "-dc", context.TICKET, _number(job))

    def suspend(self, job: str) -> None:
        snapshot = self._snapshot_for(job)
        found = self._job(snapshot, job)
        if found.state is JobState.SUSPENDED:
            return
        if found.state is not JobState.RUNNING:
            raise Refused(f"job {job} is {found.state.value}: only one that runs can be suspended")
        if not snapshot.details[_number(job)].checkpoint:
            raise Refused(f"job {job} has no checkpoint environment: submit it with -ckpt")
        self._alter(found, "-h", "s", "-ac", f"{context.SAVED}=1")
        self._told_to_save(job)

    def resume(self, job: str) -> None:
        snapshot = self._snapshot_for(job)
        found, detail = self._job(snapshot, job), snapshot.details[_number(job)]
        if found.state is JobState.HELD:
            raise Refused(f"job {job} is held, not suspended: release it")
        machine = context.saved_machine(detail)
        if found.state in ON_NODES and context.SAVED in detail.context and machine is not None:
            if self._clock.now_s() - machine.asked_s < PATIENCE_S:
                raise Unavailable(f"job {job} is still being saved: ask again")
            # It could not be saved.
            self._commands.attempt("qmod", "-usj", _number(job))
            self._commands.ask("qrls", "-h", "s", _number(job))
            self._commands.ask("qalter", "-dc", context.SAVED, _number(job))
        if found.state is JobState.SUSPENDED:
            if not found.can_save:
                # A machine has to be led to its node: it waits for that, held.
                self._commands.ask("qrls", "-h", "s", _number(job))
            self._commands.ask("qalter", "-dc", context.SAVED, _number(job))

    def signal(self, job: str, name: str, start_s: int) -> None:
        self._job(self._snapshot_for(job), job)
        raise Refused(f"Grid Engine has no command that sends {name} to job {job} alone")

    def requeue(self, job: str, start_s: int, reason: str) -> None:
        snapshot = self._snapshot_for(job)
        found = self._job(snapshot, job)
        if found.state is JobState.SUSPENDED:
            raise Refused(f"job {job} is suspended: resume it")
        if found.state in ON_NODES:
            if found.start_s != start_s:
                raise Refused(f"job {job} runs since {found.start_s}, not since {start_s}: it has come back")
            if not found.can_requeue:
                raise Refused(
                    f"job {job} is an array's, or was submitted without -r y: it cannot be requeued"
                )
            detail = snapshot.details[_number(job)]
            stopping.requeue(self._commands, found, detail, reason, self._clock.now_s())
            return
        self._alter(found, "-h", "s", "-ac", f"{context.NOTE}={context.shown(reason)}")

    def save(self, job: str, start_s: int, reason: str, *, is_kept: bool = False) -> None:
        """By the checkpoint environment that the submit filter has given it, whose command waits until the
        machine is saved."""
        snapshot = self._snapshot_for(job)
        found, detail = self._job(snapshot, job), snapshot.details[_number(job)]
        if not found.can_save:
            raise Refused(f"job {job} cannot be saved: it runs in no machine, or is an array's")
        if found.state is JobState.SUSPENDED:
            if is_kept:
                return
            raise Refused(f"job {job} is suspended: resume it")
        noted = ["-h", "s", "-ac", f"{context.NOTE}={context.shown(reason)}"]
        before, now_s = context.saved_machine(detail), self._clock.now_s()
        if found.state not in ON_NODES:
            # One that waits with a saved machine is suspended until somebody lets it go on.
            kept = ["-ac", f"{context.SAVED}=1"] if is_kept and before is not None else []
            self._alter(found, *noted, *kept)
            return
        if found.start_s != start_s:
            raise Refused(f"job {job} runs since {found.start_s}, not since {start_s}: it has come back")
        machine = saved_again(before, found.nodes[0], found.limit_s, start_s, now_s)
        if before is None or before.run_s != start_s:
            noted += ["-ac", context.machine_word(machine)]
        # Held first, lest it go on at once, on any node.
        self._alter(found, *noted, *(["-ac", f"{context.SAVED}=1"] if is_kept else []))
        asked_s = now_s if before is None or before.run_s != start_s else before.asked_s
        if now_s - asked_s >= PATIENCE_S:
            # It cannot be saved, or takes its time.
            return
        if asked_s == now_s or now_s - self._asked.get(job, 0) >= AGAIN_S:
            self._asked = dict(list(self._asked.items())[-MOST_ASKED:]) | {job: now_s}
            self._told_to_save(job)
        if is_kept:
            raise Unavailable(f"job {job} is being saved")

    def _told_to_save(self, job: str) -> None:
        """Grid Engine's shepherd forgets a suspension that comes before the job's first process, while its
        prolog runs or just afterwards. The job runs on then, and is called suspended: it is told again."""
        done = self._commands.attempt("qmod", "-sj", job)
        if done.code != 0 or b"already" in done.text:
            self._commands.attempt("qmod", "-usj", job)
            self._commands.ask("qmod", "-sj", job)

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> None:
        snapshot = self._snapshot_for(job)
        found, detail = self._job(snapshot, job), snapshot.details[_number(job)]
        machine = context.saved_machine(detail)
        if machine is None or len(nodes) != 1:
            raise Refused(f"job {job} has no saved machine that could be on {' '.join(nodes)}")
        if machine.node == nodes[0]:
            return
        if nodes[0] not in {node.name for node in snapshot.sight.nodes}:
            raise Unknown(f"there is no node {nodes[0]} in Grid Engine")
        if found.state is not JobState.SUSPENDED and not found.is_held_by_us:
            raise Unavailable(f"job {job} is not suspended yet")
        self._alter(found, *leading.led_elsewhere(machine, detail, nodes[0], goes_first=goes_first))

    def land(self, wanted: Landing) -> bool:
        return False

    def use_of(self, job: str) -> JobUse:
        if job in self._snapshot().details:
            raise Unavailable(f"job {job} is not over: what it will have had is not known yet")
        return self._uses.use_of(job, self._clock.now_s())

    def cancel(self, job: str, reason: str) -> None:
        try:
            self._commands.ask("qdel", job)
        except Unknown:
            number = _number(job)
            if not number.isdecimal() or int(number) > self._highest:
                raise

    def settle(self, submission: Submission, job: str) -> None:
        self._highest = max(self._highest, int(job))

    def prepare(self, submission: Submission) -> Callable[[], str]:
        bound: list[str] = []
        whole_node_slots = None
        limit_s = submission.limit_s
        if submission.reservation is not None:
            snapshot = self._snapshot()
            seen = {each.name: each for each in snapshot.sight.reservations}.get(submission.reservation)
            if seen is None:
                raise Unknown(f"there is no reservation {submission.reservation} in Grid Engine")
            if seen.users and submission.user not in seen.users:
                raise Refused(f"reservation {seen.name} is not for {submission.user}")
            number = self._named(snapshot, seen.name)[-1].number
            queue = f"{context.QUEUES}={binding.ANY_QUEUE}"
            whole_node_slots = _slots_of_a_node(snapshot, seen)
            bound = ["-ar", str(number), "-q", self._settings.queue_of(seen), "-ac", queue]
            if limit_s is not None and limit_s > seen.end_s - seen.start_s:
                bound += ["-ac", f"{seeing.LIMIT}={limit_s}"]
                limit_s = None
        argv = submitting.arguments(
            submission, self._settings, limit_s, bound, whole_node_slots=whole_node_slots
        )
        account = self._account_of(submission.user, submission.uid)
        return lambda: self._commands.ask_as(account, *argv).decode().split()[-1]

    def _guards(self, snapshot: Snapshot) -> Guards:
        return Guards(self._commands, self._settings, snapshot, self._clock.now_s(), self._waiting)

    def _mend_anew(self, guards: Guards, snapshot: Snapshot) -> None:
        """Guards as they are to be for the reservations that are there now."""
        guards.mend(reserved_anew(self._commands, self._settings, snapshot))

    def _note_wait(self, seen: RmsReservation | None, wanted: RmsReservation, now_s: int) -> None:
        if wanted.start_s <= now_s:
            self._waiting.discard(wanted.name)
        elif seen is not None and now_s < seen.start_s < wanted.start_s and seen.end_s == wanted.end_s:
            self._waiting.add(wanted.name)

    def _snapshot(self) -> Snapshot:
        snapshot = take(self._commands, self._settings, self._clock, self._hearing, self._environments)
        self._highest = max([self._highest, *map(int, snapshot.details)])
        self._last = snapshot
        return snapshot

    def _snapshot_for(self, job: str) -> Snapshot:
        """How a job stands now; nodes and reservations as they were when they were looked at last."""
        found = None
        if self._last is not None:
            found = of_one_job(
                self._commands, self._settings, self._clock, self._environments, self._last, _number(job)
            )
        return found or self._snapshot()

    def _job(self, snapshot: Snapshot, key: str) -> RmsJob:
        for job in snapshot.sight.jobs:
            if job.key == key:
                return job
        raise Unknown(f"there is no job {key} in Grid Engine (any more)")

    def _named(self, snapshot: Snapshot, name: str) -> list[Advance]:
        """The advance reservations of a name, the newest last; there are two while one is moved."""
        return [each for each in snapshot.advances if each.name == name]

    def _keep_running(self, snapshot: Snapshot, name: str, what: str) -> None:
        for job in snapshot.sight.jobs:
            if job.reservation == name and job.state in ON_NODES:
                raise Refused(
                    f"reservation {name} cannot be {what} while job {job.key} runs in it: "
                    "Grid Engine would end the job"
                )

    def _not_on_nodes(self, job: RmsJob, what: str) -> None:
        if job.state in ON_NODES:
            raise Refused(f"job {job.key} runs on {' '.join(job.nodes)} already: it cannot be {what}")

    def _move(self, snapshot: Snapshot, old: Iterable[Advance], number: int, wanted: RmsReservation) -> None:
        """Lets jobs that wait follow to another advance reservation, and ends the earlier ones."""
        earlier = {each.number: each for each in old}
        for job in snapshot.sight.jobs:
            detail = snapshot.details[_number(job.key)]
            if detail.reservation in earlier:
                self._alter(job, *binding.bound(self._settings, detail, number, wanted))
        booking.remove(self._commands, earlier.values())

    def _alter(self, job: RmsJob, *arguments: str) -> None:
        self._commands.ask("qalter", *arguments, _number(job.key))

    def _context(self, job: str, name: str, text: str) -> None:
        if job != _number(job):
            # A task may have ended while its array goes on.
            self._job(self._snapshot_for(job), job)
        self._commands.ask("qalter", "-ac", f"{name}={text}", _number(job))


def _as_kept(snapshot: Snapshot, wanted: RmsReservation) -> RmsReservation:
    """Of a part nothing but slots is kept; one that is all slots of its nodes is of whole nodes."""
    if wanted.is_whole:
        return wanted
    whole = _slots_of_a_node(snapshot, replace(wanted, size=NOTHING))
    is_all = wanted.size["cpus"] >= whole > 0
    return replace(wanted, size=NOTHING if is_all else Resources.of(cpus=wanted.size["cpus"]))


def _slots_of_a_node(snapshot: Snapshot, wanted: RmsReservation) -> int:
    """How many slots a reservation has of a node, the largest of them."""
    slots = [node.capacity["cpus"] for node in snapshot.sight.nodes if node.name in wanted.nodes]
    return max(slots, default=0) if wanted.is_whole else wanted.size["cpus"]


def has_room(capacity: Resources, wanted: Resources) -> bool:
    """Whether an empty node has what a job wants of each."""
    return all(capacity[name] >= amount for name, amount in wanted.amounts)


def _number(key: str) -> str:
    """The job behind a task of an array."""
    return key.partition(".")[0]
