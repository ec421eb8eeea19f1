"""What others do to the batch system: users, administrators, and whatever befalls a node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from outrider.rms.base import JobState, NodeState, Refused, RmsReservation, Submission
from outrider.rms.twin import asking
from outrider.rms.twin.jobs import OCCUPYING, WAITING, Holder
from outrider.rms.twin.world import TwinCluster


class Outside:
    """The doings of everybody but the service. They never meet a planned fault."""

    def __init__(self, world: TwinCluster, catch_up: Callable[[], None]) -> None:
        self._world = world
        self._catch_up = catch_up

    def submit(
        self,
        submission: Submission,
        *,
        is_held: bool = False,
        eligible: tuple[str, ...] = (),
        queue: str = "",
    ) -> str:
        """A user's own job; `is_held` is the user's own hold, `eligible` the nodes that will do."""
        self._catch_up()
        job = asking.submit(self._world, submission, eligible=tuple(sorted(set(eligible))))
        job.queue = queue
        if is_held:
            self._world.hold(job, Holder.OTHER, "held by its user")
        return job.key

    def hold(self, key: str) -> None:
        """A user or an administrator holds a waiting job."""
        self._catch_up()
        job = asking.job(self._world, key)
        if job.state not in WAITING:
            raise Refused(f"job {key} is {job.state.value}: only one that waits can be held")
        self._world.hold(job, Holder.OTHER, "held by its user or an administrator")

    def release(self, key: str) -> None:
        """An administrator ends whatever holds there are, ours too."""
        self._catch_up()
        self._world.lift(asking.job(self._world, key), Holder)

    def cancel(self, key: str) -> None:
        self._catch_up()
        self._world.end(asking.job(self._world, key), "cancelled by its user or an administrator")

    def requeue(self, key: str, *, is_held: bool = False) -> None:
        """A job that runs starts anew later, or waits for a release."""
        self._catch_up()
        job = asking.job(self._world, key)
        if job.state not in OCCUPYING:
            raise Refused(f"job {key} is {job.state.value}: only one with nodes can be requeued")
        if is_held:
            job.holders.add(Holder.OTHER)
        self._world.leave(job, JobState.PENDING, "requeued by an administrator")

    def reserve(self, wanted: RmsReservation) -> None:
        """An administrator's own reservation, made or changed."""
        self._catch_up()
        asking.reserve(self._world, replace(wanted, is_ours=False))

    def alter_ours(self, wanted: RmsReservation) -> None:
        """An administrator changes a reservation of the service."""
        self._catch_up()
        if wanted.name not in self._world.reservations:
            raise Refused(f"there is no reservation {wanted.name} to change")
        asking.reserve(self._world, replace(wanted, is_ours=True))

    def delete_reservation(self, name: str) -> None:
        """An administrator deletes anybody's reservation; what becomes of its jobs is in the rules."""
        self._catch_up()
        world = self._world
        if name not in world.reservations:
            raise Refused(f"there is no reservation {name} to delete")
        running = [job for job in world.bound_to(name) if job.state in OCCUPYING]
        if running and not world.rules.deletes_in_use:
            raise Refused(f"reservation {name} is in use by job {running[0].key}")
        world.close_reservation(name, f"reservation {name} was deleted")

    def drain(self, node: str) -> None:
        """The node finishes what it has and takes nothing new."""
        self._set_node(node, NodeState.DRAINED, "drained by an administrator")

    def fail(self, node: str) -> None:
        """The node is gone, with all that ran on it; no epilog runs there."""
        self._set_node(node, NodeState.DOWN, "failed")

    def silence(self, node: str) -> None:
        """The daemon on the node is gone, and its state does not show it yet; what runs there goes on."""
        self._catch_up()
        self._world.silent.add(node)

    def repair(self, node: str) -> None:
        """The node is back, drained or down as it was."""
        self._world.silent.discard(node)
        self._set_node(node, NodeState.UP, "returned")

    def shown(self, key: str) -> str:
        """The line that a user sees at a job."""
        self._catch_up()
        return asking.job(self._world, key).shown

    def ticket(self, key: str) -> str:
        """What the hooks on a job's nodes are given."""
        self._catch_up()
        return asking.job(self._world, key).ticket

    def why_ended(self, key: str) -> str | None:
        """Why a job ended; None while it has not."""
        self._catch_up()
        return self._world.ended.get(key)

    def _set_node(self, node: str, state: NodeState, why: str) -> None:
        self._catch_up()
        asking.check_nodes(self._world, (node,))
        if self._world.nodes[node].state is not state:
            self._world.set_node(node, state, why)
