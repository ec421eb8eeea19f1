"""Best-effort jobs in a simulated world: users submit them, requeue and cancel them, and they start.

Whether one has its image when it starts is looked at by its prolog, from outside of the service. Some say
that they can be requeued: these alone may be, and in time for the reservations that take their nodes.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random

from outrider.core.model import Resources
from outrider.rms.base import JobState, Refused, RmsJob, Submission
from outrider.rms.twin import NotReady, Twin
from outrider.rms.twin.jobs import Holder
from outrider.service.ports import Readers
from tests.simulation.dst.clockwork import Clockwork, Trace, Violation
from tests.simulation.dst.knobs import Knobs
from tests.simulation.dst.people import USERS
from tests.simulation.dst.pools import Network
from tests.simulation.dst.privacy import Privacy, may_use
from tests.simulation.dst.wire import image_of

EXCUSED_S = 400
"""For so long after somebody has taken images out of a pool by hand a job may be sent back from there."""
LATEST_SIGHT_S = 5
"""How much later than it is due a look at the batch system is dealt with, if nothing goes wrong."""
CALM_S = 400
"""So long after all trouble what was lost has been asked for again."""
LATE_S = 900
"""For so long after all trouble jobs are submitted."""
PATIENCE_S = 3_000
"""After all trouble every job has run within this time, and that of the long ones, of which each may have to
wait for all others."""


@dataclass(slots=True)
class Own:
    """A job as its user knows it."""

    key: str
    digest: str
    is_filtered: bool
    """Whether the submit filter held it before anybody could start it."""
    starts: int = 0
    requeued_ms: int | None = None
    is_cancelled: bool = False
    is_preemptible: bool = False
    readers: Readers | None = None
    """For whom its images are to be, if they are called private."""
    further: str = ""
    """The digest of an image that it needs beside its own; empty if it needs none."""


class Jobs:
    """All jobs that name an image. `is_calm`: nobody meddles with them any more."""

    def __init__(
        self, clock: Clockwork, trace: Trace, seed: int, knobs: Knobs, network: Network, twin: Twin
    ) -> None:
        self._clock = clock
        self._trace = trace
        # Of their own, so that a world without jobs is the same as before there were any.
        self._random = Random(seed * 7919 + 1)
        self._knobs = knobs
        self._network = network
        self._twin = twin
        self.own: dict[str, Own] = {}
        self.sent_back = 0
        # Of their own again, for the same reason.
        self._long = Random(seed * 104_729 + 3)
        self._further = Random(seed * 1_299_709 + 7)
        self.yielded = 0
        self.privacy = Privacy(0, knobs, is_wanted=False)
        self.patience_s = PATIENCE_S
        for call in ("signal", "requeue", "save"):
            self._guard(call)
        self._last_ms = 0
        """When the last job is submitted."""

    def plan(self) -> None:
        """Choose when jobs are submitted: in every second world, some of them when all is calm, beside the
        reservations of that time, which have to be met."""
        random = self._random
        if random.random() < 0.5:
            return
        for _ in range(random.choice((2, 5, 10))):
            self._clock.after(random.randrange(self._knobs.troubled_s * 1000 + 60_000), self.submit)
        for _ in range(random.choice((2, 5, 10))):
            wait_ms = self._knobs.troubled_s * 1000 + random.randrange(LATE_S * 1000)
            self.submit_at(wait_ms)

    def plan_long(self) -> None:
        """Choose when preemptible jobs are submitted, in every second world: long ones, so that reservations
        find them on their nodes."""
        if self._long.random() < 0.5:
            return
        for _ in range(self._long.choice((2, 4, 8))):
            wait_ms = self._long.randrange(self._knobs.troubled_s * 1000 + 120_000)
            self.expect(wait_ms)
            self._clock.after(wait_ms, self._submit_long)

    def _submit_long(self) -> None:
        random, knobs = self._long, self._knobs
        number, user = random.randrange(len(knobs.images)), random.choice(USERS)
        work_s = random.choice((200, 500, 900))
        self.patience_s += work_s
        grace_s = random.choice((1, 20, knobs.settings.most_requeue_grace_s))
        lines = f"checkpoint: USR1\ngrace: {grace_s}s\n" if random.random() < 0.5 else ""
        submission = Submission(
            user=user.user,
            uid=user.uid,
            argv=("sleep", str(work_s)),
            nodes_wanted=random.choice((1, 1, min(2, knobs.nodes))),
            resources=Resources.of(cpus=random.randint(1, knobs.cpus)),
            limit_s=work_s + 20,
            metadata=f"image: http://site/image{number}\npreemptible: requeue\n{lines}"
            f"{self.privacy.line(number)}",
        )
        with suppress(Refused):
            self.submit_preemptible(submission, number)

    def submit_preemptible(self, submission: Submission, number: int) -> str:
        """A job that may be told to go, held by the submit filter; its key. Raises Refused."""
        key = self._twin.outside.submit(submission)
        digest = image_of(self._knobs, number).digest
        self.own[key] = Own(key=key, digest=digest, is_filtered=True, is_preemptible=True)
        self.own[key].readers = _readers(submission)
        self._trace.note(f"preemptible job {key} is submitted with image {number}")
        self._twin.world.hold(self._twin.world.jobs[key], Holder.OURS, "waits to be planned")
        return key

    def expect(self, wait_ms: int) -> None:
        """Somebody does something with a job after so long."""
        self._last_ms = max(self._last_ms, self._clock.now_ms + wait_ms)

    def _guard(self, call: str) -> None:
        """See to it that nobody is told to go who has not said that he can."""
        ask = getattr(self._twin, call)

        def guarded(job: str, *arguments: object, **more: object) -> object:
            own = self.own.get(job)
            # A switch may move all that runs in a machine.
            may_go = own is not None and (own.is_preemptible or (call == "save" and bool(own.further)))
            if not may_go:
                raise Violation(f"job {job} is asked to go ({call}), and is not preemptible")
            self._trace.note(f"{call} of job {job}: {arguments}")
            self.yielded += 1
            return ask(job, *arguments, **more)

        setattr(self._twin, call, guarded)

    def check_ways(self, behind_s: int) -> None:
        """Where nothing has gone wrong for long enough, reservations that have begun have their nodes, by the
        service's clock, too, which is so much behind."""
        now_s, knobs = self._clock.now_s(), self._knobs
        begun_s = now_s - self._clock.now_ms // 1000
        calm_s = begun_s + (0 if knobs.is_calm else knobs.troubled_s + CALM_S)
        begun = {
            node: each.name
            for each in self._twin.world.reservations.values()
            if each.is_ours and calm_s <= each.start_s <= now_s - behind_s and now_s < each.end_s
            for node in each.nodes
        }
        for job in self._twin.world.jobs.values() if begun else ():
            own = self.own.get(job.key)
            if own is None or not own.is_preemptible or job.reservation is not None:
                continue
            for node in job.nodes:
                if node in begun:
                    raise Violation(f"job {job.key} is still on {node}, which is {begun[node]}'s")

    def submit_at(self, wait_ms: int, number: int | None = None) -> None:
        """Let a job be submitted later, with that image."""
        self.expect(wait_ms)
        self._clock.after(wait_ms, lambda: self.submit(number))

    def submit(self, number: int | None = None) -> None:
        """Somebody submits a job; mostly the submit filter holds it."""
        random, knobs = self._random, self._knobs
        if number is None:
            number = random.randrange(len(knobs.images))
        work_s = random.choice((10, 40, 80))
        user = random.choice(USERS)
        other = self._other(number)
        further = "" if other is None else f"run: vm\ndata: http://site/image{other}\n"
        submission = Submission(
            user=user.user,
            uid=user.uid,
            argv=("sleep", str(work_s)),
            nodes_wanted=random.choice((1, 1, 1, min(2, knobs.nodes), knobs.nodes)),
            resources=Resources.of(cpus=random.randint(1, knobs.cpus)),
            limit_s=work_s + 20,
            metadata=f"image: http://site/image{number}\n{further}"
            f"{self.privacy.line(number, *(() if other is None else (other,)))}",
        )
        with suppress(Refused):
            key = self._twin.outside.submit(submission)
            own = Own(key=key, digest=image_of(knobs, number).digest, is_filtered=random.random() < 0.8)
            own.further = "" if other is None else image_of(knobs, other).digest
            own.readers = _readers(submission)
            self.own[key] = own
            self._trace.note(f"job {key} is submitted with image {number}")
            if own.is_filtered:
                world = self._twin.world
                world.hold(world.jobs[key], Holder.OURS, "waits to be planned")
            if random.random() < 0.3:
                self._clock.after(random.randrange(200_000), lambda: self._meddle(key))

    def _other(self, number: int) -> int | None:
        """An image that a job needs beside its own: every third, where pools have room for both."""
        knobs, random = self._knobs, self._further
        chosen, is_wanted = random.randrange(len(knobs.images)), random.random() < 0.3
        both_bytes = sum(image_of(knobs, each).size_bytes for each in (number, chosen))
        # A machine's disks are no images in layers.
        is_wanted = is_wanted and not knobs.layer_bytes
        return chosen if is_wanted and both_bytes <= knobs.pool_bytes else None

    def prolog(self, job: RmsJob, node: str) -> NotReady | None:
        """Look whether a job has its image where it starts."""
        own = self.own.get(job.key)
        if own is None or job.reservation is not None:
            return None
        own.starts += 1
        pool = self._network.pools[node]
        self._network.move()
        images = [
            pool.images.get(digest) if pool.has(digest) else None
            for digest in (own.digest, own.further)
            if digest
        ]
        if all(may_use(image, own.readers) for image in images):
            return None
        is_excused = pool.tampered_ms >= 0 and self._clock.now_ms - pool.tampered_ms < EXCUSED_S * 1000
        if own.is_filtered and not is_excused and not self._has_just_been_requeued(own):
            raise Violation(f"job {job.key} starts on {node}, which does not have its image")
        self.sent_back += 1
        return NotReady("its image is not there")

    def _has_just_been_requeued(self, own: Own) -> bool:
        """Whether the service cannot know yet: while a job runs its instance keeps its image, afterwards
        nothing does, and the job may start again before the next look. Its node sends it back then."""
        until_s = self._knobs.settings.look_every_s + LATEST_SIGHT_S
        return own.requeued_ms is not None and self._clock.now_ms <= own.requeued_ms + until_s * 1000

    def check(self) -> None:
        """All jobs have run, or were cancelled."""
        for own in self.own.values():
            why = self._twin.outside.why_ended(own.key)
            if why is None:
                job = self._twin.world.jobs[own.key]
                raise Violation(
                    f"job {own.key} is never over: it is {job.state.value} ({job.shown}), released to "
                    f"{job.wanted_nodes}"
                )
            if not own.starts and not own.is_cancelled:
                raise Violation(f"job {own.key} has never started: {why}")

    @property
    def are_over(self) -> bool:
        has_come = self._clock.now_ms > self._last_ms
        return has_come and all(key not in self._twin.world.jobs for key in self.own)

    def _meddle(self, key: str) -> None:
        job = self._twin.world.jobs.get(key)
        if job is None:
            return
        with suppress(Refused):
            if job.state in (JobState.RUNNING, JobState.STARTING):
                self._trace.note(f"job {key} is requeued")
                self.own[key].requeued_ms = self._clock.now_ms
                self._twin.outside.requeue(key)
            elif self._random.random() < 0.5:
                self._trace.note(f"job {key} is cancelled")
                self.own[key].is_cancelled = True
                self._twin.outside.cancel(key)


def _readers(submission: Submission) -> Readers | None:
    is_private = "private: true\n" in (submission.metadata or "")
    return Readers(uids=(submission.uid,)) if is_private else None
