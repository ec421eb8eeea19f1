"""The verb `claim`: the image that a job was promised, as an instance for its user.

Called by root's prolog, with what the batch system says of the job and not with what the user
says: either the ticket that the service has put on the job, or the reservation in which it runs.
"""

from __future__ import annotations

import os

from cachemgr import instance_book, pins
from cachemgr.daemon import access
from cachemgr.daemon.leasing import instance_of
from cachemgr.daemon.shapes import instance_fields
from cachemgr.errors import BadRequest, Missing, NotAllowed
from cachemgr.job_tickets import JOB, checked_ticket
from cachemgr.records import digest_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.line import Line
    from cachemgr.daemon.node import Node
    from cachemgr.daemon.peer import Caller
    from cachemgr.daemon.requests import Request
    from cachemgr.records import Image

# The epilog takes the instance away, or a later boot does, or the service, which compares: this
# end is for nodes that have lost all of them. A job must not lose its disk while it runs.
LONGEST_S = pins.LONGEST_LEASE_S - 60
OWNER = "job-"
RESERVATION = "reservation:"


def claim(node: Node, caller: Caller, request: Request, line: Line) -> dict[str, object]:
    begin_s = node.clock.monotonic_s()
    access.require_privilege(caller, "claiming a job's image")
    job, attempt = request.text("job"), request.optional_number("attempt")
    ticket, reservation = request.optional_text("ticket"), request.optional_text("reservation")
    until_s = request.optional_number("until_s")
    request.finish()
    if not JOB.fullmatch(job):
        raise BadRequest(f"{job[:60]!r} is no number of a job")
    # A prolog that was killed meanwhile is followed by the epilog, which may be there already.
    line.check_is_heard()
    image = _promised(node, caller, job, ticket, reservation)
    owner, label = f"{OWNER}{job}", "" if attempt is None else f"attempt-{attempt}"
    _clear_earlier(node, owner, label)
    made = instance_of(
        node,
        caller,
        image,
        owner=owner,
        label=label,
        until_s=until_s or node.clock.now_s() + LONGEST_S,
        begin_s=begin_s,
    )
    return instance_fields(made)


def _promised(node: Node, caller: Caller, job: str, ticket: str | None, reservation: str | None) -> Image:
    if ticket is not None:
        found = checked_ticket(node.keys, ticket, job=job, uid=caller.uid, now_s=node.clock.now_s())
        digest = found.digest
    elif reservation is not None:
        digest = _reserved(node, reservation)
    else:
        raise BadRequest("a claim needs a ticket or a reservation")
    image = node.pool.find(digest)
    if image is None:
        node.metrics.count("outrider_image_requests_total", "miss")
        raise Missing(f"image sha256:{digest[:12]} of job {job} is not on this node")
    if not access.may_use(node.pool, caller, image):
        raise NotAllowed(f"image {image.short} is private, and uid {caller.uid} is not among its readers")
    return image


def _reserved(node: Node, reservation: str) -> str:
    """The image that the service has pinned for a reservation; users' pins have other names."""
    owner, now_s = f"{RESERVATION}{reservation}", node.clock.now_s()
    trusted = {0, os.geteuid()}
    names = node.pool.disk.names(node.pool.layout.folder("images"))
    digests = [
        digest
        for digest in names
        if digest_of(digest)
        and node.pool.disk.exists(pins.pin_path(node.pool.layout.image(digest), owner))
        and any(
            pin.owner == owner and pin.uid in trusted and pins.holds(pin, now_s)
            for pin in node.pool.pins(digest)
        )
    ]
    if not digests:
        raise Missing(f"no image is held on this node for reservation {reservation}")
    if len(digests) > 1:
        raise BadRequest(f"reservation {reservation} has {len(digests)} images here: its jobs need tickets")
    return digests[0]


def _clear_earlier(node: Node, owner: str, label: str) -> None:
    """A job that was started again begins with a fresh copy, also if the epilog was never run."""
    for key in instance_book.keys_of(node.pool, owner):
        if label and key != instance_book.key_of(owner, label):
            instance_book.remove_instance(node.pool, node.maker, key)
            node.log.info("earlier instance removed", owner=owner, instance=key)
