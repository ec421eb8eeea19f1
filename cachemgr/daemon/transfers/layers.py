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

from cachemgr.base.errors import BadRequest, CacheError, NotInPool, SourceFailed, Unsuitable, WrongBytes
from cachemgr.fetch.bring import BringOrder, bring
from cachemgr.fetch.carrier import FetchCarrier, origin_of, pinned
from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.references import SCHEMES, read_reference
from cachemgr.fetch.registry.session import FoundContainer, Session
from cachemgr.pool import ingest as ingests
from cachemgr.pool import layered
from cachemgr.pool.pool import INGEST_LEASE_S, Want
from cachemgr.pool.records import PUBLIC, Alias, ImageAccess, PoolPin

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.daemon.transfers.transfer import PoolTransfer, Work
    from cachemgr.fetch.bring import Origin, TransferTerms
    from cachemgr.fetch.ports import Resolved, Sink
    from cachemgr.fetch.report import FetchProgress
    from cachemgr.pool.layered import Part
    from cachemgr.pool.records import PoolImage
    from cachemgr.protocol import AddRequest

LAYERS = layered.LAYERS
# For whom blobs are held that nobody has pinned, until all of them are here.
ARRIVING = "arriving"


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
        manifest = _asked(node, origins)
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
    if image is None or found.missing:
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


def _asked(node: NodeContext, origins: Sequence[Origin]) -> bytes:
    """The manifest, of a registry among the origins: neighbours have it last of all."""
    carrier = node.carrier
    asked = next((each for each in reversed(origins) if each.scheme in SCHEMES), None)
    if asked is None or not isinstance(carrier, FetchCarrier):
        raise BadRequest("an image of layers comes from a registry: write docker://HOST/NAME:TAG")
    settings = carrier.settings
    session = Session(read_reference(asked.uri), settings.registries, settings.web, node.clock)
    try:
        found = session.find(node.config.resolve_timeout_s)
    except SourceFault as fault:
        raise SourceFailed(f"image {asked.name} cannot be looked up: {fault}") from fault
    if not isinstance(found, FoundContainer):
        raise Unsuitable(f"image {asked.name} is one file and has no layers: add it without the format")
    return found.body


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


def hold(node: NodeContext, found: Layered, pin: PoolPin) -> bool:
    """Pin what is here of it, and reserve nothing; whether that is all."""
    pinned_parts = 0
    for part in found.parts:
        with suppress(NotInPool):
            node.pool.pin(part.digest, layered.part_pin(pin, found.want.digest))
            pinned_parts += 1
    return pinned_parts == len(found.parts) and node.pool.image(found.want.digest) is not None


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
        for part in found.missing:
            order = BringOrder(
                want=found.want_of(part),
                origins=lambda part=part: _origins(transfer, part),  # type: ignore[misc]
                is_believed=True,
            )
            bring(node.pool, order, node.carrier, _beyond(terms, came_bytes, found.missing_bytes))
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


def _origins(transfer: PoolTransfer, part: Part) -> list[Origin]:
    """Where a blob is to be had: neighbours and registries are asked for it by its own digest."""
    own = []
    for each in pinned(transfer.origins, part.digest):
        if each.scheme == "relay":
            address = each.uri.rpartition("/")[0]
            each = origin_of(f"{address}/sha256:{part.digest}", is_trusted=each.is_trusted)
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
