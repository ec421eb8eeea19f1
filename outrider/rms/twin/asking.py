"""What anybody may ask of the world and what is refused: for the service and for everybody else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from outrider.rms.base import Refused, RmsReservation, Submission, Unknown
from outrider.rms.twin.jobs import OCCUPYING, TwinJob
from outrider.rms.twin.placing import fits
from outrider.rms.twin.world import TwinCluster


def job(world: TwinCluster, key: str) -> TwinJob:
    """A job that has not ended."""
    found = world.jobs.get(key)
    if found is None:
        why = world.ended.get(key)
        raise Unknown(f"there is no job {key}" if why is None else f"job {key} has ended: {why}")
    return found


def check_nodes(world: TwinCluster, names: Iterable[str]) -> None:
    unknown = [name for name in names if name not in world.nodes]
    if unknown:
        raise Unknown(f"there is no node {', '.join(unknown)}")


def check_use(world: TwinCluster, name: str, user: str) -> None:
    """Whether a user's job may be bound to that reservation."""
    reservation = world.reservations.get(name)
    if reservation is None or reservation.end_s <= world.now_s:
        raise Unknown(f"there is no reservation {name}")
    if user not in reservation.users:
        raise Refused(f"reservation {name} is for {', '.join(reservation.users)}, not for {user}")


def reserve(world: TwinCluster, wanted: RmsReservation) -> None:
    """Makes a reservation, or changes the one of that name."""
    check_nodes(world, wanted.nodes)
    old = world.reservations.get(wanted.name)
    if old is not None and old.is_ours != wanted.is_ours:
        raise Refused(f"the name {wanted.name} belongs to somebody else's reservation")
    if wanted.is_ours and not wanted.users:
        raise Refused(f"reservation {wanted.name} is for nobody: name its users")
    if wanted.end_s <= world.now_s:
        raise Refused(f"reservation {wanted.name} would have ended at {wanted.end_s}: it is {world.now_s}")
    start_s = max(wanted.start_s, world.now_s)
    if old is not None and old.start_s <= world.now_s and wanted.start_s <= world.now_s:
        start_s = old.start_s
    wanted = replace(wanted, start_s=start_s)
    if wanted == old:
        return
    _check_overlaps(world, wanted)
    _check_jobs_inside(world, wanted)
    world.put_reservation(wanted, "changed" if old is not None else "made")


def _check_overlaps(world: TwinCluster, wanted: RmsReservation) -> None:
    for other in world.all_reservations():
        shared = sorted(set(other.nodes) & set(wanted.nodes))
        overlaps = other.start_s < wanted.end_s and wanted.start_s < other.end_s
        if other.name != wanted.name and shared and overlaps and not fits_beside(world, wanted, shared):
            raise Refused(
                f"reservation {wanted.name} overlaps {other.name}, which has {', '.join(shared)} "
                f"from {other.start_s} until {other.end_s}"
            )


def fits_beside(world: TwinCluster, wanted: RmsReservation, nodes: Iterable[str]) -> bool:
    """Whether each of these nodes has room for it beside what others have of it, throughout its time."""
    for node in nodes:
        others = [
            other
            for other in world.all_reservations()
            if other.name != wanted.name
            and node in other.nodes
            and other.start_s < wanted.end_s
            and wanted.start_s < other.end_s
        ]
        if wanted.is_whole or any(other.is_whole for other in others):
            return False
        # What is taken grows only when another begins.
        for at_s in {wanted.start_s, *(other.start_s for other in others)}:
            at_once = [wanted, *(other for other in others if other.start_s <= at_s < other.end_s)]
            free = dict(world.nodes[node].capacity.amounts)
            for each in at_once:
                for name, amount in each.size.amounts:
                    free[name] = free.get(name, 0) - amount
            if at_s >= wanted.start_s and min(free.values()) < 0:
                return False
    return True


def _check_jobs_inside(world: TwinCluster, wanted: RmsReservation) -> None:
    for each in world.bound_to(wanted.name):
        if each.state in OCCUPYING:
            outside = sorted(set(each.nodes) - set(wanted.nodes))
            if outside or wanted.start_s > world.now_s:
                raise Refused(f"job {each.key} runs in reservation {wanted.name}: end it first")


def submit(world: TwinCluster, submission: Submission, *, eligible: tuple[str, ...] = ()) -> TwinJob:
    """Takes a job, if it could ever start."""
    check_nodes(world, eligible)
    if submission.reservation is not None:
        check_use(world, submission.reservation, submission.user)
    check_size(world, submission, eligible)
    job = world.add_job(submission)
    job.eligible = eligible
    return job


def check_size(world: TwinCluster, submission: Submission, eligible: tuple[str, ...]) -> None:
    """Whether a job of this size could ever start."""
    large = [
        node
        for node in world.nodes.values()
        if fits(submission.resources, dict(node.capacity.amounts)) and (not eligible or node.name in eligible)
    ]
    if not 1 <= submission.nodes_wanted <= len(large):
        raise Refused(
            f"a job on {submission.nodes_wanted} nodes with {submission.resources} on each "
            f"can never start: {len(large)} nodes have that"
        )
    if submission.limit_s is not None and submission.limit_s < 1:
        raise Refused(f"a limit of {submission.limit_s} s is too short: ask for 1 or more")
