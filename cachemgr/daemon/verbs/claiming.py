"""The verb `claim`: the image that a job was promised, as an instance for its user.

Called by root's prolog, with what the batch system says of the job and not with what the user
says: a ticket that the service or the submit filter has signed, the reservation in which it runs,
or nothing but its number, if the service has pinned an image here for it.
"""

from __future__ import annotations

import os

from cachemgr.base.errors import BadRequest, CacheError, NotAllowed, NotInPool, Unsuitable
from cachemgr.base.steady import past_s
from cachemgr.daemon.copies import Telling
from cachemgr.daemon.network import neighbours
from cachemgr.daemon.network.line import Gone
from cachemgr.daemon.verbs import access
from cachemgr.daemon.verbs.leasing import instance_of
from cachemgr.daemon.verbs.shapes import instance_entry
from cachemgr.instances.methods import is_writable_unasked
from cachemgr.network.channel import NODE
from cachemgr.network.job_tickets import JOB, MOST_FURTHER, checked_ticket, further_name
from cachemgr.pool import instance_book, pins
from cachemgr.pool.records import digest_of
from cachemgr.protocol import (
    FURTHER,
    JOB_OWNER,
    RESERVATION_OWNER,
    ClaimedElsewhere,
    ClaimRequest,
    InstanceEntry,
    Released,
    ReleaseRequest,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.verbs.requests import Listener, VerbRequest
    from cachemgr.pool.records import PoolImage

# The epilog takes the instance away, or a later boot does, or the service, which compares: this
# end is for nodes that have lost all of them. A job must not lose its disk while it runs.
LONGEST_S = pins.LONGEST_LEASE_S - 60


def claim(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> InstanceEntry | ClaimedElsewhere:
    begin_s = node.clock.monotonic_s()
    access.require_privilege(caller, "claiming a job's image")
    wanted = request.read(ClaimRequest)
    job, ticket, reservation = wanted.job, wanted.ticket, wanted.reservation
    if not JOB.fullmatch(job):
        raise BadRequest(f"{job[:60]!r} is not a job's number")
    if ticket is None and reservation is None and not wanted.pinned:
        raise BadRequest("a claim needs a ticket or a reservation")
    # A prolog that was killed meanwhile is followed by the epilog, which may be there already.
    request.listener.check_is_heard()
    # Each task of an array has a copy of its own; their tickets and pins are the array's.
    name = job if wanted.task is None else f"{job}.{wanted.task}"
    owner, label = f"{JOB_OWNER}{name}", "" if wanted.attempt is None else f"attempt-{wanted.attempt}"
    if wanted.nodes:
        there = wanted.changed(uid=caller.uid, nodes=None)
        return _claim_elsewhere(node, wanted.nodes, owner, there, request.listener)
    image, count = _promised(node, caller, job, (name, job), ticket, reservation)
    further = _further(node, caller, (name, job), count)
    _clear_earlier(node, owner, [label, *(f"{label}{FURTHER}{number}" for number in further)])
    until_s = wanted.until_s or node.clock.now_s() + LONGEST_S
    for number, each in further.items():
        # The image itself, by its path in the pool: nobody writes to it.
        instance_of(
            node,
            caller,
            each,
            owner=owner,
            label=f"{label}{FURTHER}{number}",
            until_s=until_s,
            begin_s=begin_s,
            method="shared",
            is_writable=False,
        )
    made = instance_of(
        node,
        caller,
        image,
        owner=owner,
        label=label,
        until_s=until_s,
        begin_s=begin_s,
        is_writable=is_writable_unasked(node.maker, image),
        made_for=_pins_of({name, job}, reservation),
        watch=Telling(node, request.listener, image.size_bytes),
    )
    return instance_entry(made)


def _claim_elsewhere(
    node: NodeContext, names: tuple[str, ...], owner: str, wanted: ClaimRequest, listener: Listener
) -> ClaimedElsewhere:
    """The other nodes of a job: an instance on each of them, or on none."""
    wrong = [name for name in names if not NODE.fullmatch(name)]
    if wrong:
        raise BadRequest(f"{wrong[0][:60]!r} is not the name of a node")
    answers = neighbours.ask_all(node, names, "claim", wanted, InstanceEntry)
    for name, made in sorted(answers.results.items()):
        if made.state == "prepared":
            answers.errors[name] = Unsuitable(
                "this instance needs mounts, which nobody there makes: let its daemon be root"
            )
    try:
        answers.check()
        listener.check_is_heard()
    except (CacheError, Gone):
        neighbours.ask_all(node, names, "release", ReleaseRequest(owner), Released)
        raise
    node.log.info("claimed on other nodes", owner=owner, nodes=len(names))
    return ClaimedElsewhere(owner, {name: made.path for name, made in answers.results.items()})


def _promised(
    node: NodeContext,
    caller: NodeCaller,
    job: str,
    names: tuple[str, ...],
    ticket: str | None,
    reservation: str | None,
) -> tuple[PoolImage, int | None]:
    """The job's own image, and how many it needs beside it; None if nobody says."""
    count: int | None = 0
    if ticket is not None:
        found = checked_ticket(node.keys, ticket, job=job, uid=caller.uid, now_s=past_s(node.clock))
        digest, count = found.digest, found.further
    elif reservation is not None:
        digest = _reserved(node, reservation)
    else:
        digest, count = _pinned(node, job, names), None
    return _usable(node, caller, digest, job), count


def _further(
    node: NodeContext, caller: NodeCaller, names: tuple[str, ...], count: int | None
) -> dict[int, PoolImage]:
    """The images that a job needs beside its own, by their numbers: as many as its ticket says, and all that
    are pinned for it if it has none."""
    found: dict[int, PoolImage] = {}
    for number in range(1, (MOST_FURTHER if count is None else count) + 1):
        pinned = [further_name(name, number) for name in names]
        digests = _held(node, {f"{RESERVATION_OWNER}{JOB_OWNER}{each}" for each in pinned})
        if len(digests) != 1 and count is None:
            break
        if len(digests) != 1:
            raise NotInPool(f"image {number + 1} of job {names[-1]} is not on this node")
        found[number] = _usable(node, caller, digests[0], names[-1])
    return found


def _usable(node: NodeContext, caller: NodeCaller, digest: str, job: str) -> PoolImage:
    image = node.pool.find(digest)
    if image is None:
        node.metrics.count("outrider_image_requests_total", "miss")
        raise NotInPool(f"image sha256:{digest[:12]} of job {job} is not on this node")
    if not access.may_use(node.pool, caller, image):
        raise NotAllowed(f"image {image.short} is private, and uid {caller.uid} is not among its readers")
    return image


def _reserved(node: NodeContext, reservation: str) -> str:
    """The image that the service has pinned for a reservation; users' pins have other names."""
    digests = _held(node, {f"{RESERVATION_OWNER}{reservation}"})
    if not digests:
        raise NotInPool(f"no image is held on this node for reservation {reservation}")
    if len(digests) > 1:
        raise BadRequest(f"reservation {reservation} has {len(digests)} images here: its jobs need tickets")
    return digests[0]


def _pinned(node: NodeContext, job: str, names: tuple[str, ...]) -> str:
    """The image that the service has pinned for a job or its array; it pins both kinds by one rule."""
    owners = {f"{RESERVATION_OWNER}{JOB_OWNER}{name}" for name in names}
    digests = _held(node, owners)
    if len(digests) == 1:
        return digests[0]
    if digests:
        raise BadRequest(f"job {job} has {len(digests)} images here: it needs a ticket")
    if any(_holds(node, node.pool.layout.ingest(ingest.key), owners) for ingest in node.pool.ingests()):
        raise NotInPool(f"the image of job {job} is still on its way to this node")
    raise NotAllowed(f"no image is held on this node for job {job}, and it has no ticket: submit it again")


def _pins_of(jobs: set[str], reservation: str | None) -> list[str]:
    """Under which names the service pins for a job: a copy may have been made for one of them."""
    owners = [f"{RESERVATION_OWNER}{JOB_OWNER}{each}" for each in sorted(jobs)]
    return owners if reservation is None else [*owners, f"{RESERVATION_OWNER}{reservation}"]


def _held(node: NodeContext, owners: set[str]) -> list[str]:
    """The digests of the images here that the service has pinned under one of these names."""
    disk, layout = node.pool.disk, node.pool.layout
    names = [name for name in disk.names(layout.folder("images")) if digest_of(name)]
    return [name for name in names if _holds(node, layout.image(name), owners)]


def _holds(node: NodeContext, folder: str, owners: set[str]) -> bool:
    disk, now_s, trusted = node.pool.disk, past_s(node.clock), {0, os.geteuid()}
    if not any(disk.exists(pins.pin_path(folder, owner)) for owner in owners):
        return False
    return any(
        pin.owner in owners and pin.uid in trusted and pins.holds(pin, now_s)
        for pin in pins.read_pins(disk, folder)
    )


def _clear_earlier(node: NodeContext, owner: str, labels: Sequence[str]) -> None:
    """A job that was started again begins with a fresh copy, also if the epilog was never run."""
    kept = {instance_book.key_of(owner, label) for label in labels}
    for key in instance_book.keys_of(node.pool, owner):
        if labels[0] and key not in kept:
            instance_book.remove_instance(node.pool, node.maker, key)
            node.log.info("earlier instance removed", owner=owner, instance=key)
