"""The story on a real site: machines on all nodes, a reservation of most of them, and everybody comes back.

A first act by hand measures what each step costs here: all machines are suspended and resumed once. From
that, and from the site's own settings, the simulator says how the second act goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from bench.machine_story.systems import AGAIN_S, AccountedRun, StorySystem, outside
from bench.machine_story.watch import JobTimes, WatchedGuest, Watcher
from cachemgr.base.clock import SystemClock
from outrider.metadata.notation.hostlists import expand
from outrider_client.answers import Decision
from outrider_client.reading import read
from testbed.linux_guest import append, linux_guest
from testbed.slurm import HEAD
from tests.daemons import reservations

if TYPE_CHECKING:
    from collections.abc import Callable

    from testbed.clustersite import ServedImage

MB = 1_000_000
CLOCK = SystemClock()
LONGEST_S = 600
EARLY_COUNT = 3
"""So far has a machine counted when something is done with it."""
TOO_SOON_S = 3
TRIES = 6
SPARE_S = 2
"""Between being told an earliest start and asking for it."""
WORK = """cd {folder}
echo began
i=0; while [ $i -lt {last} ]; do i=$((i+1)); echo $i; sleep 2; done
echo "$i" > counted
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCosts:
    """What the steps of a machine took in the first act, in seconds: medians over all nodes."""

    boot_s: float
    """From its job's begin to its script's first word."""
    count_s: float
    """From one number to the next."""
    leave_s: float
    """From the last number until nothing is left of it."""
    order_s: float
    """From the order to save it until its guest stands still."""
    saving_s: float
    """From then on until it is on the disk."""
    resuming_s: float
    """From the beginning of reading it until its guest continues."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToldJob:
    """A machine of the second act, and what is known of it afterwards."""

    job: str
    node: str
    times: JobTimes
    is_right: bool
    """Whether it counted every number once, in order, and brought its result back."""
    runs: list[AccountedRun]


@dataclass(frozen=True, kw_only=True, slots=True)
class ToldReservation:
    """The reservation of the second act. Times are those of the day."""

    name: str
    asked_s: float
    start_s: int
    end_s: int
    image_bytes: int
    arrived_s: float
    """When the image was on the last of its nodes."""
    free_s: dict[str, float]
    """When the batch system had nothing more on each of its nodes."""
    begun_s: float
    """When its job said its first word."""
    is_met: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """Both acts."""

    costs: StepCosts
    jobs: list[ToldJob]
    reservation: ToldReservation
    last: int
    memory_mib: int
    left: list[str]
    """What there is of machines on the nodes when all is over."""


class LiveStory:
    """The story on one site."""

    def __init__(self, system: StorySystem, memory_mib: int, say: Callable[[str], None]) -> None:
        self._system, self._site, self._memory_mib, self._say = system, system.site, memory_mib, say
        self._zero_s = float(self._site.cluster.run(HEAD, ["date", "+%s.%N"]).stdout) - CLOCK.monotonic_s()

    def told(self, last: int, last_alone: int, duration_s: int) -> Told:
        cluster, nodes = self._site.cluster, self._site.cluster.nodes
        guest = linux_guest()
        for node in nodes:
            folder = "/etc/outrider/boot/debian"
            cluster.write(node, f"{folder}/kernel", guest.kernel.read_bytes())
            cluster.write(node, f"{folder}/initrd", guest.initrd.read_bytes())
            cluster.write(node, f"{folder}/append", append())
        image = self._site.image("machine.qcow2", 4 * MB)
        self._say("first act: all machines are suspended and resumed by hand")
        costs = self._measured(image, last_alone)
        self._say(f"  {costs}")
        self._say(f"second act: {len(nodes)} nodes of machines, a reservation of {len(nodes) - 1}")
        jobs = self._begun("story", image, last)
        watched = [watched for _, watched in jobs]
        watcher = Watcher(watched, CLOCK, self._zero_s)
        watcher.start()
        try:
            reservation = self._reserved(watched, duration_s)
            for job, _ in jobs:
                self._system.wait_over(job, LONGEST_S)
            self._await("machines to be gone", lambda: all(each.times.over_s for each in watched))
        finally:
            watcher.end()
        found = [
            self._of(job, each, node, last) for (job, each), node in zip(jobs, nodes, strict=True)
        ]  # fmt: skip
        return Told(
            costs=costs,
            jobs=found,
            reservation=reservation,
            last=last,
            memory_mib=self._memory_mib,
            left=[each for node in nodes for each in self._left(node)],
        )

    def _left(self, node: str) -> list[str]:
        uid = self._site.cluster.people.of("ada").uid
        command = f"pgrep -u {uid} -l qemu; ls -A /var/tmp/outrider-{uid} 2>/dev/null"
        found: str = self._site.cluster.run(node, ["/bin/sh", "-c", command], check=False).stdout
        return found.split()

    def _now_s(self) -> float:
        return self._zero_s + CLOCK.monotonic_s()

    def _await(self, what: str, is_so: Callable[[], bool]) -> None:
        self._site.cluster.wait_for(what, is_so, LONGEST_S, self._site.logs)

    def _begun(self, act: str, image: ServedImage, last: int) -> list[tuple[str, WatchedGuest]]:
        """A machine on each node, the first a little older than the others."""
        found = []
        uid = self._site.cluster.people.of("ada").uid
        for number, node in enumerate(self._site.cluster.nodes):
            folder = f"{self._site.home()}/{act}-{node}"
            self._site.cluster.run(HEAD, ["mkdir", "-p", folder], user="ada")
            work = WORK.format(folder=folder, last=last)
            job = self._system.submit(image, work, node, folder, self._memory_mib)
            record = f"/var/tmp/outrider-{uid}/job-{job}/machine.json"
            words = outside(self._system, HEAD, self._system.output(job, folder))
            found.append((job, WatchedGuest(outside(self._system, node, record), words)))
            if number == 0:
                self._await("the first machine", found[0][1].record.exists)
        return found

    def _measured(self, image: ServedImage, last: int) -> StepCosts:
        jobs = self._begun("alone", image, last)
        watched = [each for _, each in jobs]
        watcher = Watcher(watched, CLOCK, self._zero_s)
        watcher.start()
        try:
            self._counting(watched)
            ordered = self._ordered("suspend", jobs)
            self._await("machines to be saved", lambda: all(each.times.saved_s for each in watched))
            nodes = self._site.cluster.nodes
            self._await("nodes to be free", lambda: all(map(self._system.is_free, nodes)))
            CLOCK.sleep(AGAIN_S)
            self._ordered("resume", jobs)
            self._await("machines to be gone", lambda: all(each.times.over_s for each in watched))
        finally:
            watcher.end()
        times = [each.times for each in watched]
        steps = [
            (after_s - before_s) / (after - before)
            for each in times
            for (before_s, before), (after_s, after) in zip(each.counts, each.counts[1:], strict=False)
            if not before_s <= (each.saving_s or 0) <= after_s and after > before
        ]
        return StepCosts(
            boot_s=median(each.counts[0][0] - (each.began_s or 0) for each in times),
            count_s=median(steps),
            leave_s=median((each.over_s or 0) - each.counts[-1][0] for each in times),
            order_s=median((each.saving_s or 0) - at_s for each, at_s in zip(times, ordered, strict=True)),
            saving_s=median((each.saved_s or 0) - (each.saving_s or 0) for each in times),
            # What is read at once may never be seen.
            resuming_s=median(
                (each.continued_s or 0) - (each.loading_s or each.continued_s or 0) for each in times
            ),
        )

    def _ordered(self, verb: str, jobs: list[tuple[str, WatchedGuest]]) -> list[float]:
        """When each was told so."""
        at_s = []
        for job, _ in jobs:
            at_s.append(self._now_s())
            self._site.outrider(verb, job)
        return at_s

    def _counting(self, watched: list[WatchedGuest]) -> None:
        self._await("machines to count", lambda: all(each.times.counted() >= EARLY_COUNT for each in watched))

    def _reserved(self, watched: list[WatchedGuest], duration_s: int) -> ToldReservation:
        """Asked for too early, then for the earliest start that was offered, and lived through."""
        site, count = self._site, len(watched) - 1
        image = reservations.workspace(site, "flock", 8 * MB)
        self._counting(watched)
        asked_s, answer = self._accepted(count, duration_s)
        assert answer.start_s is not None, answer
        assert answer.end_s is not None, answer
        self._say(f"  refused for now+{TOO_SOON_S}s; accepted for {answer.start_s - asked_s:.1f} s from then")
        inside = self._system.submit_inside(self._key(answer.name), count)
        nodes = [node for node in site.cluster.nodes if node in expand(answer.nodes)]
        free_s: dict[str, float] = {}
        while len(free_s) < count and self._now_s() < answer.start_s:
            for node in nodes:
                if node not in free_s and self._system.is_free(node):
                    free_s[node] = self._now_s()
            CLOCK.sleep(0.5)
        arrived = site.arrived_s(image)
        self._system.wait_over(inside, LONGEST_S)
        reservations.wait_reservation(site, answer.name, "ended")
        receipt = site.service().show(answer.name).receipt
        said = site.cluster.read(HEAD, self._system.output(inside, site.home()))
        return ToldReservation(
            name=answer.name,
            asked_s=asked_s,
            start_s=answer.start_s,
            end_s=answer.end_s,
            image_bytes=image.size_bytes,
            arrived_s=max((arrived[node] for node in nodes if node in arrived), default=0.0),
            free_s=free_s,
            begun_s=min(map(float, said.split())),
            is_met=receipt is not None and receipt.is_met and set(nodes) <= arrived.keys(),
        )

    def _key(self, name: str) -> str:
        """The reservation's name, once the batch system has it."""
        self._await("the reservation", lambda: self._system.has(name))
        return name

    def _accepted(self, count: int, duration_s: int) -> tuple[float, Decision]:
        """For the earliest start that it is offered; a command that takes long is offered a later one."""
        start = f"now+{TOO_SOON_S}s"
        for _ in range(TRIES):
            asked_s = self._now_s()
            answer = self._asked(count, start, duration_s)
            if answer.result == "accepted":
                return asked_s, answer
            assert answer.earliest_start_s is not None, answer
            start = f"uts{answer.earliest_start_s + SPARE_S}"
        raise AssertionError(f"refused {TRIES} times, at last: {answer.reason}")

    def _asked(self, count: int, start: str, duration_s: int) -> Decision:
        options = (f"--nodes={count}", f"--start={start}", f"-t{duration_s}s")
        return read(Decision, reservations.reserve(self._site, "flock", *options))

    def _of(self, job: str, watched: WatchedGuest, node: str, last: int) -> ToldJob:
        path = f"{self._site.home()}/story-{node}/counted"
        result = self._site.cluster.run(HEAD, ["cat", path], check=False).stdout
        words = ["began", *map(str, range(1, last + 1))]
        is_right = watched.said() == words and result == f"{last}\n"
        return ToldJob(
            job=job, node=node, times=watched.times, is_right=is_right, runs=self._system.runs(job)
        )  # fmt: skip
