"""What befalls the world beside the service: nodes, other people's jobs, administrators, clocks."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

from outrider.core.model import Resources
from outrider.rms.base import NodeState, Refused, RmsNode, RmsReservation, Sight, Submission
from outrider.rms.twin import Faults, Twin
from outrider.service.ports import NodeImage
from tests.simulation.dst.clockwork import Clockwork, Trace
from tests.simulation.dst.knobs import MEGABYTE, Knobs
from tests.simulation.dst.office import Office
from tests.simulation.dst.pools import Network

JUMPS_S = (1, 5, 20, 600, 86_400, 31_557_600, 315_576_000)
LONGEST_JUMP_S = 100


class Mishaps:
    """One after the other, at random instants; `end_all` puts everything right again."""

    def __init__(
        self,
        clock: Clockwork,
        trace: Trace,
        random: Random,
        knobs: Knobs,
        network: Network,
        twin: Twin,
        office: Office,
    ) -> None:
        self._clock = clock
        self._trace = trace
        self._random = random
        self._knobs = knobs
        self._network = network
        self._twin = twin
        self._office = office
        self._number = 0
        self.deleted: set[str] = set()
        """Our reservations that an administrator has deleted in the batch system."""
        self.has_lost_node = False
        """Whether a node was no longer in the batch system for a while."""
        self._is_over = False
        self._taken_out: dict[str, RmsNode] = {}

    def plan(self) -> None:
        """Choose what happens when."""
        span_ms = self._knobs.troubled_s * 1000
        kinds: tuple[Callable[[], None], ...] = (
            self.crash_node,
            self.lose_node,
            self.empty_pool,
            self.stop_origin,
            self.fail_node,
            self.drain_node,
            self.run_job,
            self.run_job,
            self.reserve_for_others,
            self.delete_ours,
            self.change_limit,
            self.lose_batch_system,
            self.kill_service,
            self.take_node_out,
            self.use_ours,
            self.fill_pool,
            self.slow_node,
        )
        for _ in range(self._knobs.mishaps):
            kind = self._random.choice(kinds)
            self._clock.after(self._random.randrange(span_ms), self._unless_over(kind))
        for _ in range(self._knobs.clock_steps):
            self._clock.after(self._random.randrange(span_ms), self._unless_over(self.step_clock))
        for _ in range(self._knobs.clock_jumps):
            self._clock.after(self._random.randrange(span_ms), self._unless_over(self.jump_clock))

    def end_all(self) -> None:
        """From now on nothing goes wrong."""
        self._is_over = True
        self._office.jump_clock(0)
        self._network.move()
        self._network.is_origin_up = True
        self._network.origin_rate = max(
            self._network.origin_rate, self._knobs.settings.link_rate_bytes_per_s * 13 // 10
        )
        self._network.wrong_digests = 0.0
        self._network.slow.clear()
        for node in list(self._taken_out.values()):
            self._put_in(node)
        for pool in self._network.pools.values():
            pool.is_up = pool.is_reachable = True
            pool.limit_bytes = max(pool.limit_bytes, self._knobs.pool_bytes)
            self._twin.outside.repair(pool.name)
        self._twin.faults.be_unreachable_until(0)
        sight = look_in(self._twin)
        for job in sight.jobs:
            if job.metadata is not None and job.reservation is None:
                continue
            self._twin.outside.cancel(job.key)
        for each in sight.reservations:
            if not each.is_ours:
                self._twin.outside.delete_reservation(each.name)
        self._network.wake()

    def _unless_over(self, act: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            if not self._is_over:
                self._network.move()
                act()

        return guarded

    def _some_node(self) -> str:
        return self._random.choice(sorted(self._network.pools))

    def _later(self, act: Callable[[], None], most_s: int = 120) -> None:
        self._clock.after(self._random.randrange(1000, most_s * 1000), self._unless_over(act))

    def crash_node(self) -> None:
        pool = self._network.pools[self._some_node()]
        self._trace.note(f"mishap: the daemon of {pool.name} dies")
        pool.is_up = False

        def back() -> None:
            self._trace.note(f"mishap: the daemon of {pool.name} is back")
            pool.is_up = True
            self._network.wake()

        self._later(back)

    def lose_node(self) -> None:
        pool = self._network.pools[self._some_node()]
        self._trace.note(f"mishap: {pool.name} cannot be reached")
        pool.is_reachable = False

        def back() -> None:
            self._trace.note(f"mishap: {pool.name} can be reached")
            pool.is_reachable = True

        self._later(back)

    def empty_pool(self) -> None:
        name = self._some_node()
        self._trace.note(f"mishap: the pool of {name} is emptied")
        self._network.empty(name)

    def stop_origin(self) -> None:
        self._trace.note("mishap: the images' server stops")
        self._network.is_origin_up = False

        def back() -> None:
            self._trace.note("mishap: the images' server is back")
            self._network.is_origin_up = True
            self._network.wake()

        self._later(back, 60)

    def fail_node(self) -> None:
        name = self._some_node()
        if name in self._taken_out:
            return
        self._trace.note(f"mishap: {name} fails")
        self._twin.outside.fail(name)
        self._network.pools[name].is_up = False

        def back() -> None:
            self._trace.note(f"mishap: {name} has returned")
            self._repair(name)
            self._network.pools[name].is_up = True
            self._network.wake()

        self._later(back)

    def drain_node(self) -> None:
        name = self._some_node()
        if name in self._taken_out:
            return
        self._trace.note(f"mishap: {name} is drained")
        self._twin.outside.drain(name)
        self._later(lambda: self._repair(name))

    def _repair(self, name: str) -> None:
        if name in self._taken_out:
            self._taken_out[name] = replace(self._taken_out[name], state=NodeState.UP)
        else:
            self._twin.outside.repair(name)

    def run_job(self) -> None:
        self._number += 1
        limit_s = self._random.choice((20, 60, 200))
        submission = Submission(
            user="other",
            uid=2000,
            argv=("sleep", str(limit_s)),
            nodes_wanted=self._random.randint(1, self._knobs.nodes),
            resources=Resources.of(cpus=self._random.randint(1, self._knobs.cpus)),
            limit_s=limit_s,
        )
        self._trace.note(f"mishap: somebody submits a job for {limit_s} s")
        with suppress(Refused):
            self._twin.outside.submit(submission)

    def reserve_for_others(self) -> None:
        self._number += 1
        names = sorted(self._network.pools)
        start_s = self._clock.now_s() + self._random.choice((1, 60, 200))
        wanted = RmsReservation(
            name=f"other-{self._number}",
            nodes=tuple(self._random.sample(names, self._random.randint(1, len(names)))),
            start_s=start_s,
            end_s=start_s + self._random.choice((30, 120)),
            users=("other",),
        )
        with suppress(Refused):
            self._twin.outside.reserve(wanted)
            self._trace.note(f"mishap: an administrator reserves {wanted.nodes} from {start_s}")

    def delete_ours(self) -> None:
        ours = sorted(each.name for each in look_in(self._twin).reservations if each.is_ours)
        if not ours:
            return
        name = self._random.choice(ours)
        self.deleted.add(name)
        self._trace.note(f"mishap: an administrator deletes {name}")
        with suppress(Refused):
            self._twin.outside.delete_reservation(name)

    def change_limit(self) -> None:
        pool = self._network.pools[self._some_node()]
        pool.limit_bytes = self._knobs.pool_bytes * self._random.choice((1, 1, 2, 4)) // 2
        self._trace.note(f"mishap: the pool of {pool.name} may hold {pool.limit_bytes}")

    def lose_batch_system(self) -> None:
        until_s = self._clock.now_s() + self._random.choice((10, 60, 400))
        self._trace.note("mishap: the batch system does not answer")
        self._twin.faults.be_unreachable_until(until_s)

    def kill_service(self) -> None:
        if self._office.desk is not None:
            self._office.kill("by a mishap")

    def take_node_out(self) -> None:
        """A node is no longer configured in the batch system; later it is again."""
        name = self._some_node()
        nodes = self._twin._world.nodes
        if any(name in job.nodes for job in self._twin._world.jobs.values()):
            return
        node = nodes.pop(name, None)
        if node is None or not nodes:
            nodes.update({} if node is None else {name: node})
            return
        self._trace.note(f"mishap: {name} is taken out of the batch system")
        self.has_lost_node = True

        def back() -> None:
            self._trace.note(f"mishap: {name} is in the batch system again")
            if name in self._taken_out:
                self._put_in(self._taken_out[name])

        self._taken_out[name] = node
        self._later(back)

    def _put_in(self, node: RmsNode) -> None:
        nodes = self._twin._world.nodes
        self._taken_out.pop(node.name, None)
        known = {**nodes, node.name: node}
        nodes.clear()
        nodes.update({name: known[name] for name in sorted(known)})

    def use_ours(self) -> None:
        """A user runs a job in a reservation."""
        ours = [each for each in look_in(self._twin).reservations if each.is_ours]
        if not ours:
            return
        reservation = self._random.choice(ours)
        submission = Submission(
            user=reservation.users[0],
            uid=1000,
            argv=("sleep", "50"),
            nodes_wanted=1,
            resources=Resources.of(cpus=1),
            limit_s=100,
            reservation=reservation.name,
        )
        with suppress(Refused):
            self._twin.outside.submit(submission)
            self._trace.note(f"mishap: a job is submitted to {reservation.name}")

    def fill_pool(self) -> None:
        """Somebody else has an image in a pool, and needs it for a while."""
        pool = self._network.pools[self._some_node()]
        self._number += 1
        digest, now_s = f"sha256:other{self._number}", self._clock.now_s()
        size_bytes = self._random.choice((100, 300)) * MEGABYTE
        if pool.used_bytes() + size_bytes > pool.limit_bytes or not pool.others_may_hold(size_bytes, now_s):
            return
        pool.others.add("somebody")
        pool.images[digest] = NodeImage(digest=digest, size_bytes=size_bytes, added_s=now_s)
        pool.pins[digest] = {"somebody": now_s + self._random.choice((60, 200))}
        self._trace.note(f"mishap: somebody else needs {size_bytes} bytes of the pool of {pool.name}")

    def slow_node(self) -> None:
        """A node gets its bytes slowly."""
        name = self._some_node()
        self._network.slow[name] = self._random.choice((1, 3)) * MEGABYTE
        self._trace.note(f"mishap: {name} is slow")

    def step_clock(self) -> None:
        self._office.step_clock(self._random.choice((-20, -3, 3, 20, 90)))

    def jump_clock(self) -> None:
        """For less time than it takes until a clock is believed."""
        self._office.jump_clock(self._random.choice((-1, 1)) * self._random.choice(JUMPS_S))
        self._later(lambda: self._office.jump_clock(0), LONGEST_JUMP_S)


def look_in(twin: Twin) -> Sight:
    """What there is, whether or not the twin answers, and without using up a fault."""
    faults, twin.faults = twin.faults, Faults()
    world = twin._world
    world.faults, kept = twin.faults, world.faults
    try:
        return twin.look()
    finally:
        twin.faults, world.faults = faults, kept
