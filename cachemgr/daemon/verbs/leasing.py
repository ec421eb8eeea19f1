"""The verbs of leases: pins, and instances with their pins."""

from __future__ import annotations

from contextlib import nullcontext

from cachemgr.base.errors import BadRequest, NotInPool
from cachemgr.daemon import copies
from cachemgr.daemon.network import neighbours
from cachemgr.daemon.verbs import access, quota
from cachemgr.daemon.verbs.adding import checked_pin, pin_image
from cachemgr.daemon.verbs.shapes import image_entry, instance_entry
from cachemgr.instances.methods import is_writable_unasked
from cachemgr.pool import instance_book, layered, pins
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.records import checked_name, digest_of
from cachemgr.protocol import (
    ForgetRequest,
    Forgotten,
    ImageEntry,
    InstanceEntry,
    InstanceRequest,
    PinRequest,
    Released,
    ReleaseRequest,
    Unpinned,
    UnpinRequest,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.verbs.requests import Listener, VerbRequest
    from cachemgr.pool.instance_book import Instance
    from cachemgr.pool.records import PoolImage


def pin(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> ImageEntry:
    given = request.read(PinRequest)
    wanted = checked_pin(node, caller, given)
    image = access.find_visible(node, caller, given.name)
    access.check_pin_quota(node, caller, node.pool.layout.image(image.digest), wanted.owner)
    pin_image(node, caller, image, wanted)
    node.log.info(
        "image pinned",
        culprit=caller.culprit,
        digest=image.digest[:12],
        owner=wanted.owner,
        until_s=wanted.expires_s,
    )
    return image_entry(node, caller, image)


def unpin(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> Unpinned:
    wanted = request.read(UnpinRequest)
    names, owner = access.names_meant(caller, wanted.name), caller.owner(wanted.owner)
    # All of them, not the first that succeeds.
    given_back = [node.pool.unpin(each, owner) for each in names]
    if caller.is_privileged:
        # What was made for a pin goes with it.
        copies.drop(node, owner, [found for each in names if (found := _digest(node, each))])
    node.poke("images", node.clock.now_s())
    return Unpinned(any(given_back))


def instance(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> InstanceEntry:
    """One at a time for each ordinary user: so nobody gets past a quota by asking for many at once, and
    large copies for one user keep the disk no busier than for another."""
    wanted = request.read(InstanceRequest)
    with nullcontext() if caller.is_privileged else node.one_at_a_time.of(caller.uid):
        return _instance(node, caller, wanted, request.listener)


def _instance(
    node: NodeContext, caller: NodeCaller, wanted: InstanceRequest, listener: Listener
) -> InstanceEntry:
    begin_s = node.clock.monotonic_s()
    owner, label = caller.owner(wanted.owner), wanted.label or ""
    until_s = access.checked_until(node, caller, wanted.until_s)
    if wanted.made_for:
        access.require_privilege(caller, "taking a copy that was made for a pin")
    try:
        image = access.find_visible(node, caller, wanted.name)
    except NotInPool:
        node.metrics.count("outrider_image_requests_total", "miss")
        raise
    is_writable = wanted.is_writable
    if is_writable is None:
        is_writable = wanted.method is not None or is_writable_unasked(node.maker, image)
    access.check_instance_quota(node, caller, owner, label)
    key = instance_book.key_of(owner, label)
    copy_bytes = 0
    if not caller.is_privileged and instance_book.read_instance(node.pool, key) is None:
        chosen = node.maker.choose(image, wanted.method, is_writable=is_writable)
        copy_bytes = node.maker.taken_bytes(chosen, image)
    what = f"an instance of image {image.short}"
    with quota.held(node, caller, image, what, until_s=until_s, copy_key=key, copy_bytes=copy_bytes):
        made = instance_of(
            node,
            caller,
            image,
            owner=owner,
            label=label,
            until_s=until_s,
            begin_s=begin_s,
            method=wanted.method,
            is_writable=is_writable,
            context=wanted.context,
            made_for=wanted.made_for or (),
            watch=copies.Telling(node, listener, image.size_bytes) if caller.is_privileged else None,
        )
    return instance_entry(made)


def instance_of(
    node: NodeContext,
    caller: NodeCaller,
    image: PoolImage,
    *,
    owner: str,
    label: str,
    until_s: int,
    begin_s: float,
    method: str | None = None,
    is_writable: bool = True,
    context: dict[str, object] | None = None,
    made_for: Sequence[str] = (),
    watch: Callable[[int], None] | None = None,
) -> Instance:
    """An instance for the caller's user, counted and logged; the same one again if it was made before.

    A copy that was made for one of the pins `made_for` becomes the instance. `watch` is told how far a
    full copy is.
    """
    there = instance_book.read_instance(node.pool, instance_book.key_of(owner, label))
    is_there = there is not None and there.is_ready
    made_before = [] if is_there or watch is None else copies.taken(node, made_for, watch)
    made = instance_book.make_instance(
        node.pool,
        node.maker,
        image,
        owner=owner,
        label=label,
        uid=caller.uid,
        until_s=until_s,
        method=method,
        is_writable=is_writable,
        context=context,
        made_before=made_before,
        watch=watch,
    )
    if made.uid != caller.uid:
        raise BadRequest(f"{owner} has this instance for uid {made.uid} already: release it first")
    seconds = node.clock.monotonic_s() - begin_s
    node.metrics.observe("outrider_instance_seconds", seconds, made.method)
    node.metrics.count("outrider_image_requests_total", "hit")
    node.poke("instances", made.expires_s)
    node.log.info(
        "instance ready",
        culprit=caller.culprit,
        instance=made.key,
        owner=owner,
        digest=image.digest[:12],
        uid=made.uid,
        method=made.method,
        milliseconds=f"{seconds * 1000:.1f}",
    )
    return made


def release(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> Released:
    """Called by epilogs, hence right when nothing is there, and when asked twice."""
    wanted = request.read(ReleaseRequest)
    owner, label = caller.owner(wanted.owner), wanted.label
    if caller.is_privileged and label is None and not wanted.nodes:
        copies.drop(node, owner)
    if wanted.nodes:
        access.require_privilege(caller, "releasing on other nodes")
        answers = neighbours.ask_all(node, wanted.nodes, "release", ReleaseRequest(owner, label), Released)
        answers.check()
        found = answers.results.values()
        return Released(sum(each.removed for each in found), sum(each.pins for each in found))
    removed = instance_book.remove_instances(node.pool, node.maker, owner, label)
    given_back = _unpin_all(node, owner) if label is None else 0
    if removed or given_back:
        node.poke("images", node.clock.now_s())
        node.log.info("released", culprit=caller.culprit, owner=owner, instances=removed, pins=given_back)
    return Released(removed, given_back)


def forget(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> Forgotten:
    alias = request.read(ForgetRequest).alias
    if digest_of(alias):
        raise BadRequest("a digest is not an alias: evict the image instead")
    names = access.names_meant(caller, alias)
    if not caller.is_privileged:
        is_file = names[-1].startswith("file:")
        names = [name for name in names if name.startswith(f"uid:{caller.uid}:")]
        if not is_file and not any(node.pool.alias(name) for name in names):
            access.require_privilege(caller, "forgetting a name that others use")
    removed = [node.pool.remove_alias(checked_name(name, "an alias")) for name in names]
    return Forgotten(any(removed))


def _digest(node: NodeContext, name: str) -> str | None:
    """The digest that a name stands for, whether its image is here or not."""
    alias = node.pool.alias(name) if digest_of(name) is None else None
    return digest_of(name) if alias is None else alias.digest


def _unpin_all(node: NodeContext, owner: str) -> int:
    """Give back every pin of an owner, on whatever image."""
    pool = node.pool
    given_back = 0
    with disk_errors(f"giving back the pins of {owner}"):
        for digest, folder in list(layered.folders(pool)):
            if pins.remove_pin(pool.disk, folder, owner):
                given_back += 1
                if layered.is_layered(pool, digest):
                    layered.let_go(pool, digest, owner)
    return given_back
