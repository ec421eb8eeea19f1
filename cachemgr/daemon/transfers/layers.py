"""`add` of a container image as it is: the blobs that its manifest names, each once in the pool, and the
manifest, which comes last.

One transfer brings what is missing, one blob after the other in the manifest's order. Its bytes are
reserved before the first of them, so that neighbours that ask for a later blob wait for it instead of
going to the registry.
"""

from __future__ import annotations

import dataclasses
import hashlib
from contextlib import suppress

from cachemgr.base.errors import (
    BadRequest,
    CacheError,
    Cancelled,
    NotInPool,
    SourceFailed,
    Unsuitable,
    WrongBytes,
)
from cachemgr.daemon.transfers.content import Content
from cachemgr.fetch.bring import BringOrder, TransferTerms, bring
from cachemgr.fetch.carrier import FetchCarrier, origin_of, pinned
from cachemgr.fetch.control import Control
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.references import SCHEMES, read_reference
from cachemgr.fetch.registry.session import FoundContainer, Session
from cachemgr.pool import ingest as ingests
from cachemgr.pool import layered
from cachemgr.pool.pool import INGEST_LEASE_S, Want
from cachemgr.pool.records import PUBLIC, Alias, ImageAccess, PoolPin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Set as AbstractSet

    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.transfers.transfer import PoolTransfer, Work
    from cachemgr.fetch.bring import Origin
    from cachemgr.fetch.ports import Resolved, Sink
    from cachemgr.fetch.report import FetchProgress
    from cachemgr.pool.ingest import Writer
    from cachemgr.pool.layered import Part
    from cachemgr.pool.records import PoolImage
    from cachemgr.protocol import AddRequest

LAYERS = layered.LAYERS
# Where the head hands out what it has brought: blobs lie beside the manifest, by their digests.
MADE = ("relay", "file")
# For whom blobs are held that nobody has pinned, until all of them are here.
ARRIVING = "arriving"
# After so long whoever took a blob over has begun to write it.
YIELD_S = 1.0


@dataclasses.dataclass(frozen=True)
class Layered:
    """An image of layers that is wanted: its manifest, and what of it this pool has not."""

    manifest: bytes
    want: Want
    parts: tuple[Part, ...]
    missing: tuple[Part, ...]

    @property
    def missing_bytes(self) -> int:
        return len(self.manifest) + sum(part.size_bytes for part in self.missing)

    def want_of(self, part: Part) -> Want:
        """A blob, under the image's address: it says whom to ask for it."""
        want = self.want
        return Want(
            uri=want.uri,
            size_bytes=part.size_bytes,
            digest=part.digest,
            owner_uid=want.owner_uid,
            readers=want.readers,
        )


def look(node: NodeContext, caller: NodeCaller, wanted: AddRequest, origins: Sequence[Origin]) -> Layered:
    """What the image consists of, as its manifest says: the pool's, or the registry's."""
    image = node.pool.find(wanted.digest or wanted.uri)
    if image is not None and image.format == layered.LAYERS:
        manifest = layered.manifest_of(node.pool, image)
    else:
        manifest = _asked(node, wanted, origins)
    digest = hashlib.sha256(manifest).hexdigest()
    if wanted.digest not in (None, "", digest):
        raise WrongBytes(
            f"image {wanted.uri} was said to be sha256:{wanted.digest}, but its manifest is sha256:{digest}: "
            "correct the digest"
        )
    readers = PUBLIC
    if wanted.readers is not None or wanted.private:
        named = wanted.readers
        readers = ImageAccess(
            is_public=False, uids=named.uids if named else (), gids=named.gids if named else ()
        )
    want = Want(
        uri=wanted.uri,
        size_bytes=len(manifest),
        digest=digest,
        format=layered.LAYERS,
        owner_uid=caller.uid,
        readers=readers,
        expires_s=wanted.expires_s,
    )
    parts = layered.read_parts(manifest)
    missing = tuple(part for part in parts if node.pool.image(part.digest) is None)
    return Layered(manifest, want, parts, missing)


def present(node: NodeContext, found: Layered, pin: PoolPin | None) -> PoolImage | None:
    """The image, pinned and named, if all of it is here."""
    image = node.pool.image(found.want.digest)
    if image is None or found.missing or _is_hidden(node, found):
        return None
    if pin is not None:
        try:
            node.pool.pin(image.digest, pin)
        except NotInPool:
            return None
    elif not layered.is_whole(node.pool, image):
        return None
    if node.pool.find(found.want.uri) is None:
        expires_s = node.clock.now_s() + node.config.alias_lifetime_s
        node.pool.add_alias(Alias(found.want.uri, image.digest, expires_s))
    node.metrics.count("outrider_image_requests_total", "hit")
    return image


def _is_hidden(node: NodeContext, found: Layered) -> bool:
    """Whether some blob of an image for everybody came with a private one."""
    blobs = [node.pool.image(part.digest) for part in found.parts]
    return found.want.readers.is_public and any(each and not each.readers.is_public for each in blobs)


def begin(
    node: NodeContext,
    caller: NodeCaller,
    wanted: AddRequest,
    origins: Sequence[Origin],
    pin: PoolPin | None,
    found: Layered,
) -> PoolTransfer:
    """The transfer of what is missing; its bytes are reserved, and what is here is held."""
    held = pin or PoolPin(
        owner=ARRIVING,
        kind="hold",
        uid=caller.uid,
        expires_s=node.clock.now_s() + INGEST_LEASE_S,
        from_s=node.clock.now_s(),
    )
    if not found.want.readers.is_public:
        allow_parts(node, found.parts, found.want.readers.uids)
    missing = _reserve(node, found, held)
    found = dataclasses.replace(found, missing=missing)
    node.poke("ingests", held.expires_s)
    transfer, is_joined = node.transfers.join(
        found.want.key,
        uri=wanted.uri,
        size_bytes=found.missing_bytes,
        uid=caller.uid,
        origins=origins,
        work=_work(node, found, is_temporary=pin is None),
        deadline_s=wanted.deadline_s,
        rate_bytes_per_s=wanted.rate_bytes_per_s,
        expected_rate_bytes_per_s=wanted.expected_rate_bytes_per_s,
        names=(wanted.uri,),
    )
    node.metrics.count("outrider_image_requests_total", "joined" if is_joined else "miss")
    node.log.info(
        "transfer joined" if is_joined else "transfer queued",
        transfer=transfer.name,
        uri=wanted.uri,
        digest=found.want.digest[:12],
        layers=len(found.parts) - 1,
        missing_bytes=found.missing_bytes,
        uid=caller.uid,
    )
    return transfer


def _asked(node: NodeContext, wanted: AddRequest, origins: Sequence[Origin]) -> bytes:
    """The manifest, of a registry among the origins: neighbours have it last of all."""
    carrier = node.carrier
    asked = next((each for each in reversed(origins) if each.scheme in SCHEMES), None)
    if asked is None and origins[-1].scheme in MADE and wanted.digest:
        return _given(node, origins[-1])
    if asked is None or not isinstance(carrier, FetchCarrier):
        raise BadRequest("an image of layers comes from a registry: write docker://HOST/NAME:TAG")
    settings = carrier.settings_for(asked)
    session = Session(read_reference(asked.uri), settings.registries, settings.web, node.clock)
    try:
        found = session.find(node.config.resolve_timeout_s)
    except SourceFault as fault:
        raise SourceFailed(f"image {asked.name} cannot be looked up: {fault}") from fault
    if not isinstance(found, FoundContainer):
        raise Unsuitable(f"image {asked.name} is one file and has no layers: add it without the format")
    return found.body


def _given(node: NodeContext, origin: Origin) -> bytes:
    """The manifest, of the head, which has brought an image that nodes may not fetch themselves."""
    size_bytes = node.carrier.resolve(origin, node.config.resolve_timeout_s).size_bytes
    if size_bytes > layered.MOST_MANIFEST_BYTES:
        raise Unsuitable(f"image {origin.name} has a manifest of {size_bytes} bytes: it is none")
    sink = Content(size_bytes)
    node.carrier.carry(sink, [origin], TransferTerms(control=Control()))
    return bytes(sink.data)


def allow_parts(node: NodeContext, parts: Sequence[Part], uids: Sequence[int]) -> None:
    """Let users use what is private of an image's blobs: they have shown a right to all of them."""
    for part in parts:
        image = node.pool.image(part.digest)
        if image is not None and not image.readers.is_public:
            for uid in sorted(set(uids) - set(image.readers.uids)):
                image = node.pool.allow(image, uid)


def allow_all(node: NodeContext, image: PoolImage) -> PoolImage:
    """The same for all readers of an image that is here, if it is one of layers."""
    allow_parts(node, layered.parts_of(node.pool, image), image.readers.uids)
    return image


def _prove_public(node: NodeContext, transfer: PoolTransfer, found: Layered, terms: TransferTerms) -> None:
    """What came here with a private image is everybody's once a registry gives it to anybody: its bytes,
    since a manifest may name what its registry has not."""
    for part in found.parts:
        image = node.pool.image(part.digest)
        if image is None or image.readers.is_public:
            continue
        origins = [each for each in _origins(transfer, part) if each.scheme in SCHEMES]
        sink = Content(part.size_bytes, keeps=False)
        node.carrier.carry(sink, origins, dataclasses.replace(terms, on_progress=None))
        if sink.digest != part.digest:
            raise WrongBytes(
                f"the registry sends other bytes for layer {part.digest[:12]} than its digest says"
            )
        node.pool.change_image(dataclasses.replace(image, readers=PUBLIC))


def prove(node: NodeContext, wanted: AddRequest, found: Layered) -> Callable[..., None]:
    """What reads an image that is here for others at its registry, as anybody may, with its manifest: its
    blobs are everybody's then."""

    def read(transfer: PoolTransfer, terms: TransferTerms) -> None:
        if _asked(node, wanted, transfer.origins) != found.manifest:
            raise WrongBytes(f"image {transfer.uri} has another manifest by now: correct its digest")
        _prove_public(node, transfer, found, terms)

    return read


def _reserve(node: NodeContext, found: Layered, held: PoolPin) -> tuple[Part, ...]:
    """Hold what is here, then reserve the bytes of all the rest, or nothing; what is missing."""
    pool, digest = node.pool, found.want.digest
    part_pin = layered.part_pin(held, digest)
    missing = []
    try:
        for part in found.parts:
            try:
                pool.pin(part.digest, part_pin)
            except NotInPool:
                missing.append(part)
        wants = [(found.want_of(part), part_pin) for part in missing]
        for want, pin in [*wants, (found.want, held)]:
            pool.want(want, pin)
    except BaseException:
        _give_up(node, found, held.owner)
        raise
    return tuple(missing)


def hold(node: NodeContext, found: Layered, pin: PoolPin, blobs: AbstractSet[str]) -> bool:
    """Pin these blobs, as far as they are here, and reserve nothing; whether all of it is here."""
    for part in found.parts:
        if part.digest in blobs:
            with suppress(NotInPool):
                node.pool.pin(part.digest, layered.part_pin(pin, found.want.digest))
    return not found.missing and node.pool.image(found.want.digest) is not None


def _give_up(node: NodeContext, found: Layered, owner: str) -> None:
    """Hold nothing of it any more; what is arriving for nobody else goes."""
    digest = found.want.digest
    keys = [(part.digest, layered.part_owner(owner, digest)) for part in found.parts]
    for key, name in [*keys, (digest, owner)]:
        with suppress(CacheError):
            ingests.cancel(node.pool, key, name)
    layered.let_go(node.pool, digest, owner)


def _work(node: NodeContext, found: Layered, *, is_temporary: bool) -> Work:
    """What the transfer's thread does."""

    def work(transfer: PoolTransfer, terms: TransferTerms) -> PoolImage:
        came_bytes = 0
        if found.want.readers.is_public:
            _prove_public(node, transfer, found, terms)
        for part in found.missing:
            order = BringOrder(
                want=found.want_of(part),
                origins=lambda part=part: _origins(transfer, part),  # type: ignore[misc]
                is_believed=True,
            )
            _bring_blob(node, transfer, order, _beyond(terms, came_bytes, found.missing_bytes))
            came_bytes += part.size_bytes
        order = BringOrder(
            want=found.want,
            origins=lambda: list(transfer.origins),
            names=tuple(sorted(transfer.names)),
            is_believed=True,
            alias_lifetime_s=node.config.alias_lifetime_s,
        )
        image = bring(node.pool, order, _Known(found.manifest), dataclasses.replace(terms, on_progress=None))
        if is_temporary:
            layered.let_go(node.pool, image.digest, ARRIVING)
            node.pool.unpin(image.digest, ARRIVING)
        node.log.info(
            "image added",
            transfer=transfer.name,
            uri=transfer.uri,
            digest=image.digest[:12],
            size_bytes=came_bytes,
        )
        node.poke("aliases", node.clock.now_s() + node.config.alias_lifetime_s)
        return image

    return work


def _bring_blob(node: NodeContext, transfer: PoolTransfer, order: BringOrder, terms: TransferTerms) -> None:
    """One blob. If a more urgent transfer needs it, too, that one brings it, with the bytes that are here: it
    does not wait for what another may take of the link, or for what another's sources send. Nor does one that
    is less urgent, if the blob comes too slowly for what it was planned with."""
    tell, is_mine = terms.on_progress, False

    def told(progress: FetchProgress) -> None:
        if not is_mine:
            node.transfers.take_over(transfer, progress.offset_bytes)
        if tell is not None:
            tell(progress)

    def on_sink(writer: Writer) -> None:
        nonlocal is_mine
        is_mine = True
        if terms.on_sink is not None:
            terms.on_sink(writer)

    while True:
        with node.transfers.turn(transfer, order.want.digest) as turn:
            try:
                own = dataclasses.replace(terms, control=turn, on_progress=told, on_sink=on_sink)
                bring(node.pool, order, node.carrier, own)
                return
            except Cancelled:
                if transfer.control.cancelled is not None:
                    raise
        is_mine = False
        node.clock.sleep(YIELD_S)


def _origins(transfer: PoolTransfer, part: Part) -> list[Origin]:
    """Where a blob is to be had: neighbours and registries are asked for it by its own digest."""
    own = []
    for each in pinned(transfer.origins, part.digest):
        if each.scheme in MADE:
            address, kind = each.uri.rpartition("/")[0], "sha256:" if each.scheme == "relay" else ""
            each = origin_of(f"{address}/{kind}{part.digest}", is_trusted=each.is_trusted)
        own.append(each)
    return own


def _beyond(terms: TransferTerms, before_bytes: int, all_bytes: int) -> TransferTerms:
    """The same, with what came before counted among what has come."""
    tell = terms.on_progress
    if tell is None:
        return terms

    def told(progress: FetchProgress) -> None:
        tell(
            dataclasses.replace(
                progress, offset_bytes=before_bytes + progress.offset_bytes, size_bytes=all_bytes
            )
        )

    return dataclasses.replace(terms, on_progress=told)


class _Known:
    """A manifest that is here already, as something that brings it."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def resolve(self, origin: Origin, timeout_s: float) -> Resolved:
        raise SourceFailed("a manifest is asked for before it is brought")

    def carry(self, sink: Sink, origins: Sequence[Origin], terms: TransferTerms) -> tuple[str, ...]:
        sink.write(self._data[sink.offset :])
        return ()
