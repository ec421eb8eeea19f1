"""The twin as a batch system: each call checks what was asked and tells the world.

What a refusal is for is written here, once, in the order in which it is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from cachemgr.base.clock import Clock
from outrider.core.model import Resources
from outrider.rms.base import (
    NOTHING,
    JobState,
    JobUse,
    Landing,
    Refused,
    RmsJob,
    RmsNode,
    RmsReservation,
    Sight,
    Submission,
    Unavailable,
)
from outrider.rms.twin import asking
from outrider.rms.twin.faults import Fault, Faults, Slow
from outrider.rms.twin.jobs import MAIN_QUEUE, OCCUPYING, WAITING, Holder, TwinJob
from outrider.rms.twin.outside import Outside
from outrider.rms.twin.rules import Hooks, TwinRules
from outrider.rms.twin.world import Happening, TwinCluster


class Twin:
    """A batch system in memory: deterministic, for one caller at a time.

    Every call first lets the world catch up with the clock. What a call changes is acted on
    from the next second on. The twin is the outside world: a service that forgets everything
    finds it as it was.
    """

    def __init__(
        self,
        nodes: Iterable[RmsNode],
        *,
        clock: Clock,
        rules: TwinRules | None = None,
        hooks: Hooks | None = None,
    ) -> None:
        self.faults = Faults()
        self._clock = clock
        self._world = TwinCluster(
            nodes,
            now_s=clock.now_s(),
            rules=rules or TwinRules(),
            hooks=hooks or Hooks(),
            faults=self.faults,
        )
        self.outside = Outside(self._world, self._catch_up)
        """Everybody else: users, administrators, and what befalls nodes."""

    @property
    def name(self) -> str:
        return "twin"

    @property
    def world(self) -> TwinCluster:
        """What goes on behind it, for whoever keeps that or lets it drive something real."""
        return self._world

    @property
    def log(self) -> tuple[Happening, ...]:
        """What happened, in order; of very long histories the last part."""
        return tuple(self._world.log)

    def advance(self, now_s: int) -> None:
        """Lets the world's time pass until then."""
        self._world.advance(now_s)

    def look(self) -> Sight:
        with self._call("look"):
            world = self._world
            jobs = sorted(world.all_jobs(), key=lambda job: (job.submitted_s, job.key))
            return Sight(
                at_s=world.now_s,
                nodes=tuple(world.nodes.values()),
                jobs=tuple(map(self._shown, jobs)),
                reservations=tuple(world.all_reservations()),
                queues=(MAIN_QUEUE,),
                sharing=((MAIN_QUEUE, shared),) if (shared := world.rules.jobs_on_a_processor) > 1 else (),
            )

    def shares(self) -> dict[str, int]:
        with self._call("shares"):
            return {}

    def silent(self, nodes: tuple[str, ...]) -> tuple[str, ...]:
        with self._call("silent"):
            return tuple(name for name in nodes if name in self._world.silent)

    def reserve(self, wanted: RmsReservation) -> None:
        with self._call("reserve"):
            if not wanted.is_ours:
                raise Refused(
                    f"reservation {wanted.name} is not marked as ours: only reservations of ours can be made"
                )
            asking.reserve(self._world, wanted)

    def unreserve(self, name: str) -> None:
        with self._call("unreserve"):
            world = self._world
            reservation = world.reservations.get(name)
            if reservation is None:
                return
            if not reservation.is_ours:
                raise Refused(f"reservation {name} is not ours: an administrator has to delete it")
            running = [job.key for job in world.bound_to(name) if job.state in OCCUPYING]
            if running:
                raise Refused(f"reservation {name} is in use by job {', '.join(running)}: end it first")
            world.drop_reservation(name, Holder.OURS, f"reservation {name} was taken back")

    def bind(self, job: str, reservation: str | None, limit_s: int | None = None) -> None:
        with self._call("bind"):
            world, found = self._world, self._found(job)
            if reservation is not None:
                asking.check_use(world, reservation, found.submission.user)
            wanted = found.submission if limit_s is None else replace(found.submission, limit_s=limit_s)
            if (found.reservation, found.submission) == (reservation, wanted):
                return
            self._check_waits(found, "bound")
            found.reservation, found.submission = reservation, wanted
            world.log_change("bound" if reservation else "unbound", job, reservation or "")

    def hold(self, job: str, reason: str) -> None:
        with self._call("hold"):
            found = self._found(job)
            self._check_waits(found, "held")
            self._world.hold(found, Holder.OURS, reason)

    def release(self, job: str, nodes: tuple[str, ...] = (), ticket: str = "") -> None:
        with self._call("release"):
            world, found = self._world, self._found(job)
            asking.check_nodes(world, nodes)
            found.ticket = ticket or found.ticket
            wanted = found.submission.nodes_wanted
            if nodes and len(set(nodes)) < wanted:
                raise Refused(f"job {job} wants {wanted} nodes: {', '.join(nodes)} do not suffice")
            if found.state in OCCUPYING:
                if nodes and not set(found.nodes) <= set(nodes):
                    raise Refused(f"job {job} runs on {', '.join(found.nodes)} by now")
                return
            self._check_waits(found, "released")
            found.wanted_nodes = found.saved_nodes or tuple(sorted(set(nodes)))
            holders = Holder if world.rules.release_ends_all_holds else (Holder.OURS, Holder.SYSTEM)
            world.lift(found, holders)

    def resize(
        self, job: str, nodes_wanted: int, limit_s: int, each: Resources = NOTHING, option: int = 0
    ) -> None:
        with self._call("resize"):
            world, found = self._world, self._found(job)
            resources = found.submission.resources.with_amounts(each)
            wanted = replace(
                found.submission, nodes_wanted=nodes_wanted, limit_s=limit_s, resources=resources
            )
            if wanted == found.submission and option in (0, found.option):
                return
            self._check_waits(found, "resized")
            asking.check_size(world, wanted, found.eligible)
            before = found.submission
            found.submission, found.option = wanted, option or found.option
            if found.wanted_nodes and len(found.wanted_nodes) < nodes_wanted:
                found.wanted_nodes = ()
            if wanted != before:
                world.log_change("resized", job, f"{nodes_wanted} nodes for {limit_s} s")

    def note(self, job: str, text: str, start_s: int | None = None) -> None:
        with self._call("note"):
            self._found(job).shown = text

    def ticket(self, job: str, text: str) -> None:
        with self._call("ticket"):
            self._found(job).ticket = text

    def suspend(self, job: str) -> None:
        with self._call("suspend"):
            found = self._found(job)
            if found.state is JobState.SUSPENDED:
                return
            if found.state is not JobState.RUNNING:
                raise Refused(f"job {job} is {found.state.value}: only one that runs can be suspended")
            if found.leaving is None:
                self._world.leave(found, JobState.SUSPENDED, "suspended")
            elif found.leaving.to is not JobState.SUSPENDED:
                raise Refused(f"job {job} is about to be {found.leaving.to.value}: {found.leaving.why}")
            found.wants_to_go_on = False

    def resume(self, job: str) -> None:
        with self._call("resume"):
            found = self._found(job)
            if found.state is JobState.HELD and (found.saved_nodes or found.used_s):
                return
            if found.state is JobState.HELD:
                raise Refused(f"job {job} is held: release it")
            is_being_saved = found.leaving is not None and found.leaving.to is JobState.SUSPENDED
            if found.state is JobState.SUSPENDED or is_being_saved:
                self._world.go_on(found)

    def signal(self, job: str, name: str, start_s: int) -> None:
        with self._call("signal"):
            found = self._found(job)
            if found.state is not JobState.RUNNING:
                raise Refused(f"job {job} is {found.state.value}: only one that runs has a signal")
            self._check_run(found, start_s)
            self._world.log_change("signalled", job, name)

    def requeue(self, job: str, start_s: int, reason: str) -> None:
        with self._call("requeue"):
            found = self._found(job)
            if found.state in WAITING:
                self._world.hold(found, Holder.OURS, reason)
                return
            if found.state not in OCCUPYING:
                raise Refused(f"job {job} is {found.state.value}: only one with nodes can be requeued")
            self._check_run(found, start_s)
            if found.leaving is None or found.leaving.kept_s is not None:
                found.holders.add(Holder.OURS)
                found.shown = reason
                found.saved_nodes = ()
                self._world.leave(found, JobState.PENDING, reason)

    def save(self, job: str, start_s: int, reason: str, *, is_kept: bool = False) -> None:
        with self._call("save"):
            found = self._found(job)
            if found.state in WAITING:
                self._world.hold(found, Holder.OURS, reason)
                return
            if found.state is JobState.SUSPENDED and is_kept:
                return
            if found.state not in OCCUPYING:
                raise Refused(f"job {job} is {found.state.value}: only one with nodes can be saved")
            self._check_run(found, start_s)
            if found.leaving is None:
                found.holders.add(Holder.OURS)
                found.shown = reason
                if self._world.rules.moves_machines:
                    found.saved_nodes = found.wanted_nodes = found.nodes
                self._world.log_change("saving", job, reason)
                to = JobState.SUSPENDED if is_kept else JobState.PENDING
                self._world.leave(found, to, reason, is_saved=True)

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> None:
        with self._call("move"):
            if not self._world.rules.moves_machines:
                raise Refused("machines do not move here")
            found = self._found(job)
            asking.check_nodes(self._world, nodes)
            if found.leaving is not None and found.saved_nodes:
                raise Unavailable(f"job {job} is still being saved: ask again")
            if found.state in OCCUPYING or not found.saved_nodes or len(nodes) != len(found.saved_nodes):
                raise Refused(
                    f"job {job} is {found.state.value}: only a saved machine can move, node by node"
                )
            found.saved_nodes = found.wanted_nodes = tuple(nodes)
            self._world.log_change("moved", job, ",".join(nodes))

    def _shown(self, job: TwinJob) -> RmsJob:
        """What a look shows of a job, with where its machine is and may be."""
        seen, world = job.seen(), self._world
        if not world.rules.saves_machines:
            seen = replace(seen, can_save=False)
        if not world.rules.moves_machines:
            return seen
        saved = () if job.state in OCCUPYING else job.saved_nodes
        others = [name for name in job.eligible or world.nodes if name not in (*job.nodes, *saved)]
        eligible = tuple(sorted(saved)) or seen.eligible
        return replace(seen, saved_on=saved, elsewhere=tuple(others), eligible=eligible)

    def land(self, wanted: Landing) -> bool:
        return False

    def use_of(self, job: str) -> JobUse:
        raise Refused(f"job {job} is no holder job: there are none here")

    def cancel(self, job: str, reason: str) -> None:
        with self._call("cancel"):
            if job not in self._world.ended:
                self._world.end(self._found(job), reason)

    def submit(self, submission: Submission) -> str:
        with self._call("submit"):
            return asking.submit(self._world, submission).key

    def _catch_up(self) -> None:
        self._world.advance(self._clock.now_s())

    @contextmanager
    def _call(self, name: str) -> Iterator[None]:
        """A call as it comes to pass: late, lost, refused, or answered to nobody."""
        self._catch_up()
        fault = self.faults.of_call(name, self._world.now_s)
        if isinstance(fault, Slow):
            self._clock.sleep(fault.seconds)
            self._catch_up()
        elif fault is Fault.UNREACHED:
            raise Unavailable(f"twin does not answer {name}: ask again")
        elif fault is Fault.REFUSED:
            raise Refused(f"twin refuses {name}: a fault was planned for it")
        try:
            yield
        except Refused as refusal:
            if fault is Fault.ANSWER_LOST:
                raise Unavailable(f"twin's answer to {name} was lost: ask again") from refusal
            raise
        if fault is Fault.ANSWER_LOST:
            raise Unavailable(f"twin's answer to {name} was lost: ask again")

    def _found(self, key: str) -> TwinJob:
        return asking.job(self._world, key)

    def _check_run(self, job: TwinJob, start_s: int) -> None:
        if job.start_s != start_s:
            raise Refused(f"job {job.key} runs since {job.start_s}, not since {start_s}: it has come back")

    def _check_waits(self, job: TwinJob, done: str) -> None:
        if job.state not in WAITING:
            raise Refused(f"job {job.key} is {job.state.value}: only one that waits can be {done}")
