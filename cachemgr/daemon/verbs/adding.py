"""The verb `add`: an image that is here, on its way, or begun now, and who may have it."""

from __future__ import annotations

import dataclasses
import os

from cachemgr.base.errors import BadRequest, CacheError, NotAllowed, NotInPool, WrongBytes
from cachemgr.base.hashing import ThreadedHasher
from cachemgr.daemon.transfers import layers, proofs
from cachemgr.daemon.transfers.places import close_files
from cachemgr.daemon.transfers.transfer import PoolTransfer
from cachemgr.daemon.verbs import access, quota
from cachemgr.daemon.verbs.promising import dry_run
from cachemgr.daemon.verbs.shapes import image_entry, transfer_entry, transfer_progress
from cachemgr.fetch.bring import BringOrder, Origin, bring, name_it
from cachemgr.fetch.carrier import open_origin, origin_of, pinned, user_origin
from cachemgr.fetch.registry.references import SCHEMES as REGISTRIES
from cachemgr.fetch.sources.kinds import RESUMED
from cachemgr.pool import pins
from cachemgr.pool.pool import INGEST_LEASE_S, Want
from cachemgr.pool.records import PIN_KINDS, PUBLIC, ImageAccess, PoolImage, PoolPin, checked_digest
from cachemgr.protocol import (
    AddRequest,
    DryRun,
    ImageEntry,
    PinFields,
    PinRequest,
    Readers,
    TransferEntry,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.transfers.places import Admission
    from cachemgr.daemon.transfers.transfer import Work
    from cachemgr.daemon.verbs.requests import VerbRequest
    from cachemgr.fetch.bring import TransferTerms
    from cachemgr.pool.ingest import Ingest

    # Where the bytes of one image are to come from, in the order of preference.
    Origins = tuple[Origin, ...]  # novm

# Who waits hears at least this often that the daemon is alive.
TELL_S = 1.0


def add(node: NodeContext, caller: NodeCaller, request: VerbRequest) -> ImageEntry | TransferEntry | DryRun:
    wanted = request.read(AddRequest)
    pin = checked_pin(node, caller, wanted.pin) if wanted.pin else None
    wanted = _checked(node, caller, wanted)
    # Last, since it takes a descriptor that nobody would close if more could be refused.
    name, origins = _origins(node, caller, wanted.uri, wanted.sources or (), request.descriptors)
    if caller.is_privileged:
        origins = pinned(origins, wanted.digest or "")
    try:
        found = _begin(node, caller, wanted.changed(uri=name), origins, pin)
    except BaseException:
        close_files(origins)
        raise
    if not isinstance(found, PoolTransfer):
        close_files(origins)
        return found
    if not wanted.wait:
        return transfer_entry(node, found)
    seen = -1
    while not found.has_ended:
        request.listener.progress(transfer_progress(found))
        seen = node.transfers.wait(found, seen, TELL_S)
    if found.error is not None or found.image is None:
        raise found.error or CacheError(f"the transfer {found.name} ended without an image")
    return image_entry(node, caller, node.pool.image(found.image.digest) or found.image)


def checked_pin(node: NodeContext, caller: NodeCaller, given: PinFields | PinRequest) -> PoolPin:
    """The pin that `add` and `pin` are asked for."""
    kind = given.kind or "hold"
    if kind not in PIN_KINDS or kind == "instance":
        raise BadRequest(f"there is no kind of pin {kind!r}: choose hold or expect")
    return PoolPin(
        owner=caller.owner(given.owner),
        kind=kind,
        uid=caller.uid,
        expires_s=access.checked_until(node, caller, given.until_s),
        from_s=node.clock.now_s() if given.from_s is None else given.from_s,
    )


def pin_image(node: NodeContext, caller: NodeCaller, image: PoolImage, pin: PoolPin) -> None:
    """Put the pin on an image that is here, if this user may hold so much."""
    if pin.kind != "hold":
        node.pool.pin(image.digest, pin)
        return
    with quota.held(node, caller, image, f"image {image.short}", until_s=pin.expires_s):
        node.pool.pin(image.digest, pin)


def _checked(node: NodeContext, caller: NodeCaller, wanted: AddRequest) -> AddRequest:
    """The request with its digest as pools write it, and what this node takes where it does not say."""
    is_ours = wanted.sources or wanted.expires_s is not None or wanted.expected_rate_bytes_per_s is not None
    if (is_ours or wanted.vouched or wanted.everybody or wanted.proof) and not caller.is_privileged:
        raise NotAllowed("sources, an expiry and an expected rate are for root and the pool's own user")
    return wanted.changed(
        digest=checked_digest(wanted.digest) if wanted.digest else "",
        private=wanted.private if wanted.readers is None else True,
        rate_bytes_per_s=wanted.rate_bytes_per_s or node.config.transfer_rate_bytes_per_s or None,
    )


def _origins(
    node: NodeContext, caller: NodeCaller, uri: str, sources: tuple[str, ...], descriptors: tuple[int, ...]
) -> tuple[str, tuple[Origin, ...]]:
    """The image's name, and where its bytes are to come from."""
    if caller.is_privileged:
        if sources and "://" not in uri and not uri.startswith("/"):
            name = uri
        else:
            name = origin_of(uri, is_trusted=True).name
        if descriptors:
            raise BadRequest("root and the pool's own user name a file by its path, not as an open file")
        return name, tuple(origin_of(each, is_trusted=True) for each in sources or (uri,))
    origin = user_origin(uri, caller.uid)
    allowed = node.config.user_schemes
    if origin.scheme not in allowed:
        raise NotAllowed(
            f"images may be added from {', '.join(allowed) or 'nowhere'}, not from {origin.scheme}: "
            "ask the administrator for user_schemes"
        )
    if origin.scheme == "file":
        if not descriptors:
            raise NotAllowed(f"{uri} must be opened by you and handed over: `cachemgr add` does so")
        origin = open_origin(uri, caller.uid, os.dup(descriptors[0]))
    return origin.name, (origin,)


def _begin(
    node: NodeContext, caller: NodeCaller, wanted: AddRequest, origins: Origins, pin: PoolPin | None
) -> ImageEntry | DryRun | PoolTransfer:
    """The answer, if it is known at once, or the transfer that brings the image, which `wanted.uri` names."""
    if wanted.format == layers.LAYERS:
        return _begin_layers(node, caller, wanted, origins, pin)
    _drop_stale_name(node, wanted, origins[0])
    image = node.pool.find(wanted.digest or wanted.uri)
    if image is not None and wanted.proof:
        opens = access.opening(node, wanted.uri, wanted.readers)
        return proofs.begin(node, caller.uid, wanted, origins[0], image, opens)
    if image is not None:
        return _present(node, caller, wanted, origins, pin, image)
    wanted, origins, size_bytes = _looked_up(node, caller, wanted, origins)
    image = node.pool.find(wanted.digest) if wanted.digest else None
    if image is not None:
        return _present(node, caller, wanted, origins, pin, image)
    want = _want(caller, wanted, size_bytes)
    if wanted.dry_run:
        _, is_arriving = _joinable(node, caller, wanted, origins, want)
        return dry_run(node, size_bytes, is_arriving=is_arriving)
    want, found, admission = _reserved(node, caller, wanted, origins, pin, want)
    node.poke("stalled", node.clock.now_s() + node.config.user_stall_s)
    node.poke("ingests", pin.expires_s if pin else node.clock.now_s() + INGEST_LEASE_S)
    if isinstance(found, PoolImage):
        node.transfers.turn_back(admission)
        return _present(node, caller, wanted, origins, pin, found)
    promised = wanted.digest or ""
    transfer, is_joined = node.transfers.join(
        want.key,
        uri=want.uri,
        size_bytes=size_bytes,
        uid=caller.uid,
        origins=origins,
        work=_work(node, want, want.uri, is_believed=caller.is_privileged, promised=promised),
        is_ordinary=not caller.is_privileged,
        deadline_s=wanted.deadline_s,
        rate_bytes_per_s=wanted.rate_bytes_per_s,
        expected_rate_bytes_per_s=wanted.expected_rate_bytes_per_s,
        names=(want.uri,) if caller.is_privileged else (),
        admission=admission,
    )
    node.poke("turns", node.clock.now_s() + node.config.user_turn_s)
    node.metrics.count("outrider_image_requests_total", "joined" if is_joined else "miss")
    node.log.info(
        "transfer joined" if is_joined else "transfer queued",
        culprit=caller.culprit,
        transfer=transfer.name,
        uri=want.uri,
        digest=promised[:12] or None,
        size_bytes=size_bytes,
        uid=caller.uid,
        deadline_s=wanted.deadline_s,
    )
    return transfer


def _begin_layers(
    node: NodeContext, caller: NodeCaller, wanted: AddRequest, origins: Origins, pin: PoolPin | None
) -> ImageEntry | DryRun | PoolTransfer:
    """The same of an image that stays in its layers."""
    access.require_privilege(caller, "adding an image as its layers")
    found = layers.look(node, caller, wanted, origins)
    if wanted.hold is not None and pin is not None:
        blobs = {checked_digest(each) for each in wanted.hold}
        return DryRun(fits=True, is_present=layers.hold(node, found, pin, blobs), evicted=())
    there = node.pool.image(found.want.digest)
    if wanted.proof and there is not None and not found.missing and wanted.readers is None:
        opens, reads = access.opening(node, wanted.uri, None), layers.prove(node, wanted, found)
        return proofs.begin(node, caller.uid, wanted, origins[0], there, opens, reads)
    image = layers.present(node, found, None if wanted.dry_run else pin)
    if wanted.dry_run:
        return dry_run(node, found.missing_bytes, is_arriving=image is not None)
    if image is None:
        return layers.begin(node, caller, wanted, origins, pin, found)
    return image_entry(node, caller, image)


def _want(caller: NodeCaller, wanted: AddRequest, size_bytes: int) -> Want:
    """What is wanted of the pool."""
    readers = wanted.readers or Readers()
    return Want(
        uri=wanted.uri,
        size_bytes=size_bytes,
        digest=wanted.digest or "",
        format=wanted.format or "file",
        owner_uid=caller.uid,
        readers=ImageAccess(is_public=False, uids=readers.uids, gids=readers.gids)
        if wanted.private
        else PUBLIC,
        expires_s=wanted.expires_s,
    )


def _check_hold(node: NodeContext, caller: NodeCaller, want: Want, pin: PoolPin | None) -> None:
    """Refuse a user's reservation of bytes that are beyond their share, or promised."""
    until_s = node.clock.now_s() if pin is None else pin.expires_s
    what = f"image {want.uri}"
    quota.check_hold(node, caller, f"ingest:{want.key}", want.size_bytes, what, until_s=until_s)


def _reserved(
    node: NodeContext,
    caller: NodeCaller,
    wanted: AddRequest,
    origins: Origins,
    pin: PoolPin | None,
    want: Want,
) -> tuple[Want, PoolImage | Ingest, Admission]:
    """What is wanted, with its bytes and a place for its transfer; or the image, if it has come meanwhile."""
    while True:
        want, is_arriving = _joinable(node, caller, wanted, origins, want)
        if pin is not None:
            access.check_pin_quota(node, caller, node.pool.layout.ingest(want.key), pin.owner)
        with node.admission:
            if not is_arriving and node.pool.ingest(want.key) is not None:
                # Begun by somebody meanwhile: whether this caller may join is not known yet.
                continue
            admission = node.transfers.admit(
                want.key,
                caller.uid,
                is_ordinary=not caller.is_privileged,
                files=sum(origin.descriptor is not None for origin in origins),
            )
            try:
                if not is_arriving:
                    access.check_image_quota(node, caller)
                if not is_arriving or pin is not None:
                    _check_hold(node, caller, want, pin)
                found = node.pool.want(want, pin)
            except BaseException:
                node.transfers.turn_back(admission)
                raise
            return want, found, admission


def _joinable(
    node: NodeContext, caller: NodeCaller, wanted: AddRequest, origins: Origins, want: Want
) -> tuple[Want, bool]:
    """What to want, and whether that is arriving already; refuses who may not join what is."""
    arriving = node.pool.ingest(want.key)
    if arriving is not None and access.is_anothers_claim(caller, wanted, arriving.image):
        want = dataclasses.replace(want, digest="")
        arriving = node.pool.ingest(want.key)
    if arriving is not None and not wanted.dry_run and _drop_outdated(node, arriving, want.size_bytes):
        arriving = None
    if arriving is not None and wanted.everybody:
        access.prove_for_all(node, arriving.image, origins[0])
    if arriving is not None and not access.may_see_arriving(caller, arriving.image):
        access.prove(node, caller, arriving.image, origins[0])
    return want, arriving is not None


def _drop_outdated(node: NodeContext, arriving: Ingest, size_bytes: int) -> bool:
    """Give up what nobody brings any more, if its source has another size by now: it could never end."""
    if arriving.image.digest or arriving.size_bytes == size_bytes:
        return False
    now_s = node.clock.now_s()
    if any(pins.holds(pin, now_s) for pin in pins.read_pins(node.pool.disk, arriving.folder)):
        return False
    try:
        writer = arriving.writer(ThreadedHasher())
    except NotInPool:
        return True
    if writer is None:
        return False
    writer.abandon()
    return True


def resume(node: NodeContext, ingest: Ingest) -> PoolTransfer | None:
    """Go on with what a daemon before this one began, if it is pinned and its address says all.

    Other sources, and credentials, died with that daemon; who needs them asks again, and
    the bytes that are here count.
    """
    image = ingest.image
    if image.format == layers.LAYERS:
        # Its blobs are gone on with by themselves; who wants them together asks again.
        return None
    now_s = node.clock.now_s()
    wanted = [pin for pin in pins.read_pins(node.pool.disk, ingest.folder) if pin.expires_s > now_s]
    is_privileged = image.owner_uid in (0, os.geteuid())
    try:
        origin = origin_of(image.uri, is_trusted=is_privileged)
    except BadRequest:
        return None
    schemes = RESUMED if is_privileged else node.config.user_schemes
    is_complete = origin.name == image.uri and (is_privileged or origin.scheme != "file")
    if not wanted or not is_complete or origin.scheme not in schemes:
        return None
    want = Want(
        uri=image.uri,
        size_bytes=image.size_bytes,
        digest=image.digest,
        format=image.format,
        owner_uid=image.owner_uid,
        readers=image.readers,
        expires_s=image.expires_s,
    )
    transfer, _ = node.transfers.join(
        ingest.key,
        uri=image.uri,
        size_bytes=image.size_bytes,
        uid=image.owner_uid,
        origins=pinned([origin], image.digest),
        work=_work(node, want, image.uri, is_believed=is_privileged),
        is_ordinary=not is_privileged,
        rate_bytes_per_s=node.config.transfer_rate_bytes_per_s or None,
    )
    node.log.info("transfer resumed", transfer=transfer.name, uri=image.uri, bytes=ingest.arrived_bytes())
    return transfer


def _work(node: NodeContext, want: Want, name: str, *, is_believed: bool, promised: str = "") -> Work:
    """What a transfer's thread does."""

    def work(transfer: PoolTransfer, terms: TransferTerms) -> PoolImage:
        order = BringOrder(
            want=want,
            origins=lambda: list(transfer.origins),
            names=(name,),
            is_believed=is_believed,
            alias_lifetime_s=node.config.alias_lifetime_s,
            names_uid=None if is_believed else transfer.begun_by,
            promised=promised,
        )
        return _bring(node, order, transfer, terms)

    return work


def _bring(node: NodeContext, order: BringOrder, transfer: PoolTransfer, terms: TransferTerms) -> PoolImage:
    """A transfer's thread: the image in the pool, its names and readers, and the counts."""
    begin_s = node.clock.monotonic_s()
    culprit = transfer.begun_by if transfer.is_ordinary else None
    node.log.info("transfer started", culprit=culprit, transfer=transfer.name, uri=transfer.uri)
    try:
        image = bring(node.pool, order, node.carrier, terms)
    except CacheError as error:
        node.log.warning(
            "transfer ended", culprit=culprit, transfer=transfer.name, uri=transfer.uri, error=error
        )
        raise
    if not image.readers.is_public:
        image = access.allow(node, image, set(transfer.wanted_by))
    # Who joined may have called it by another name.
    missing = tuple(name for name in sorted(transfer.names) if node.pool.find(name) is None)
    name_it(node.pool, image, dataclasses.replace(order, names=missing, names_uid=None))
    if order.names_uid is not None:
        node.names.note(order.names_uid, order.names)
    duration_s = node.clock.monotonic_s() - begin_s
    node.log.info(
        "image added",
        culprit=culprit,
        transfer=transfer.name,
        uri=transfer.uri,
        digest=image.digest[:12],
        size_bytes=image.size_bytes,
        seconds=f"{duration_s:.1f}",
    )
    if transfer.deadline_s is not None:
        slack_s = transfer.deadline_s - node.clock.now_s()
        node.metrics.set("outrider_deadline_slack_seconds", slack_s)
        if slack_s < 0:
            node.metrics.count("outrider_late_transfers_total")
    if image.expires_s is not None:
        node.poke("images", image.expires_s)
    node.poke("aliases", node.clock.now_s() + node.config.alias_lifetime_s)
    return image


def _present(
    node: NodeContext,
    caller: NodeCaller,
    wanted: AddRequest,
    origins: Origins,
    pin: PoolPin | None,
    image: PoolImage,
) -> ImageEntry | DryRun:
    """It is here already: check the caller's right, pin it, and name it if that is believed."""
    if not access.may_use(node.pool, caller, image):
        access.prove(node, caller, image, origins[0])
        if not wanted.dry_run:
            image = access.allow(node, image, {caller.uid})
    elif wanted.vouched and wanted.readers and not (wanted.dry_run or image.readers.is_public):
        image = layers.allow_all(node, access.allow(node, image, set(wanted.readers.uids)))
    if wanted.size_bytes not in (None, image.size_bytes):
        raise BadRequest(f"image {image.short} has {image.size_bytes} bytes, not {wanted.size_bytes}")
    if wanted.everybody:
        access.prove_for_all(node, image, origins[0])
    if wanted.dry_run:
        return DryRun(fits=True, is_present=True, evicted=())
    is_owner = caller.is_privileged or caller.uid == image.owner_uid
    is_to_be_public = wanted.everybody or (wanted.private is False and is_owner)
    if is_to_be_public and not image.readers.is_public:
        image = access.publish(node, image)
    if pin is not None:
        access.check_pin_quota(node, caller, node.pool.layout.image(image.digest), pin.owner)
        pin_image(node, caller, image, pin)
    if caller.is_privileged and node.pool.find(wanted.uri) is None:
        order = BringOrder(
            want=Want(uri=wanted.uri, size_bytes=image.size_bytes),
            origins=list,
            names=(wanted.uri,),
            alias_lifetime_s=node.config.alias_lifetime_s,
        )
        name_it(node.pool, image, order)
    node.metrics.count("outrider_image_requests_total", "hit")
    return image_entry(node, caller, image)


def _looked_up(
    node: NodeContext, caller: NodeCaller, wanted: AddRequest, origins: Origins
) -> tuple[AddRequest, Origins, int]:
    """How many bytes to reserve, and of a registry the digest. An ordinary user's word is compared with
    the source's."""
    origin = origins[-1]
    is_sure = caller.is_privileged and (wanted.digest or origin.scheme not in REGISTRIES)
    if wanted.size_bytes is not None and is_sure:
        return wanted, origins, wanted.size_bytes
    found = node.carrier.resolve(origin, node.config.resolve_timeout_s)
    if wanted.size_bytes not in (None, found.size_bytes):
        raise WrongBytes(
            f"image {wanted.uri} was said to have {wanted.size_bytes} bytes, but its source has "
            f"{found.size_bytes}: correct the size"
        )
    if not found.digest or origin.scheme not in REGISTRIES:
        return wanted, origins, found.size_bytes
    digest = checked_digest(found.digest)
    if wanted.digest not in ("", digest):
        raise WrongBytes(
            f"image {wanted.uri} was said to be sha256:{wanted.digest}, but is {found.digest} by now: "
            "correct the digest"
        )
    return wanted.changed(digest=digest), pinned(origins, digest), found.size_bytes


def _drop_stale_name(node: NodeContext, wanted: AddRequest, origin: Origin) -> None:
    """A user's file that has changed since is another image: its name must not find the old one."""
    if origin.descriptor is None or wanted.digest:
        return
    image = node.pool.find(wanted.uri)
    if image is None:
        return
    found = os.fstat(origin.descriptor)
    if found.st_size != image.size_bytes or int(found.st_mtime) >= image.added_s:
        node.pool.remove_alias(wanted.uri)
