"""Who may do what: images that others do not see, quotas, and proofs of a right to a source.

A private image is for its owner, for those whom the owner named, and for whoever proves a
right to its source with credentials of their own. Knowing a digest proves nothing.
"""

from __future__ import annotations

import dataclasses
import os

from cachemgr.base.errors import BadRequest, NotAllowed, NotInPool, SourceFailed, Unsuitable
from cachemgr.base.steady import past_s
from cachemgr.fetch.carrier import address_of, origin_of, own_name
from cachemgr.instances.acl import READ, grant
from cachemgr.pool import instance_book, pins
from cachemgr.pool.layout import disk_errors
from cachemgr.pool.records import PUBLIC, digest_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.fetch.bring import Origin
    from cachemgr.pool.pool import ImagePool
    from cachemgr.pool.records import PoolImage
    from cachemgr.protocol import AddRequest, Readers


def require_privilege(caller: NodeCaller, what: str) -> None:
    if not caller.is_privileged:
        raise NotAllowed(f"{what} is for root and the pool's own user")


def names_meant(caller: NodeCaller, text: str) -> list[str]:
    """What a name may mean for this caller, the most special first.

    An address is looked for among the caller's own first: only of those is it known that they
    are what the caller sees at that path, or with the caller's credentials.
    """
    if digest_of(text):
        return [text]
    if not text.startswith("/") and "://" not in text:
        return [text]
    try:
        origin = origin_of(text, is_trusted=False)
    except BadRequest:
        return [text]
    own = [] if caller.sees_all else [own_name(caller.uid, origin.name)]
    return [*own, origin.name]


def may_use(pool: ImagePool, caller: NodeCaller, image: PoolImage) -> bool:
    if caller.sees_all or image.readers.is_public:
        return True
    # A user's groups may be far away (a directory service), so they are asked only if it matters.
    gids = caller.gids() if image.readers.gids else frozenset()
    try:
        pool.authorise(image.digest, caller.uid, gids)
    except (NotAllowed, NotInPool):
        return False
    return True


def may_see_arriving(caller: NodeCaller, image: PoolImage) -> bool:
    """Whether what is arriving is this caller's business; there is no digest yet to ask the pool by."""
    readers = image.readers
    if caller.sees_all or readers.is_public or caller.uid in (0, image.owner_uid, *readers.uids):
        return True
    return bool(readers.gids) and not caller.gids().isdisjoint(readers.gids)


def find_visible(node: NodeContext, caller: NodeCaller, text: str) -> PoolImage:
    """The image of that name, if it is here and this caller may use it."""
    for name in names_meant(caller, text):
        image = node.pool.find(name)
        if image is not None and may_use(node.pool, caller, image):
            return image
    raise NotInPool(f"image {text} is not in the pool: add it first")


def is_anothers_claim(caller: NodeCaller, wanted: AddRequest, arriving: PoolImage) -> bool:
    """Whether an ordinary user says that these bytes come from elsewhere: nobody else waits for that.

    Its size may be wrong, its source may never end, and nobody else may be allowed to see it.
    """
    is_own = arriving.owner_uid in (0, os.geteuid(), caller.uid)
    return bool(wanted.digest) and not is_own and arriving.uri != wanted.uri


def prove(node: NodeContext, caller: NodeCaller, image: PoolImage, origin: Origin) -> PoolImage:
    """Let a user use a private image who can reach its source; otherwise `NotAllowed`.

    The source must be the very address from which it came: being able to reach any other
    says nothing about these bytes.
    """
    refusal = NotAllowed(
        f"image {image.short} is private: ask its owner (uid {image.owner_uid}) to name you as a reader, "
        "or add it by the address from which it came, with credentials of your own"
    )
    _ask_without_our_rights(node, image, origin, refusal)
    node.log.info(
        "reader proved access", culprit=caller.culprit, uid=caller.uid, image=image.digest[:12] or image.uri
    )
    return image


def prove_for_all(node: NodeContext, image: PoolImage, origin: Origin) -> None:
    """`NotAllowed` unless the very address from which a private image came gives it to anybody."""
    if image.readers.is_public:
        return
    refusal = NotAllowed(
        f"image {image.short} is private, and not everybody is known to get it where it came from: "
        "ask its owner to make it public"
    )
    _ask_without_our_rights(node, image, origin, refusal)
    node.log.info("source is open to all", image=image.digest[:12] or image.uri)


def _ask_without_our_rights(node: NodeContext, image: PoolImage, origin: Origin, refusal: NotAllowed) -> None:
    if address_of(origin.name) not in (address_of(image.uri), *image.read_at):
        raise refusal
    try:
        found = node.carrier.resolve(
            dataclasses.replace(origin, is_trusted=False), node.config.resolve_timeout_s
        )
    except SourceFailed as error:
        raise refusal from error
    if found.size_bytes != image.size_bytes or found.digest not in ("", f"sha256:{image.digest}"):
        raise refusal


def allow(node: NodeContext, image: PoolImage, uids: set[int]) -> PoolImage:
    """Add users to a private image's readers, on the record and on the file."""
    known = {0, os.geteuid(), image.owner_uid, *image.readers.uids}
    for uid in sorted(uids - known):
        image = node.pool.allow(image, uid)
    share(node, image)
    return image


def share(node: NodeContext, image: PoolImage) -> None:
    """Let a private image's readers open its file by its path, where the file system can say so."""
    readers = image.readers
    if readers.is_public:
        return
    uids = {image.owner_uid, *readers.uids} - {0, os.geteuid()}
    path = node.pool.data_path(image.digest)
    try:
        with disk_errors(f"sharing image {image.short}"):
            grant(node.pool.disk, path, mode=image.data_mode, uids=uids, gids=readers.gids, permission=READ)
    except (Unsuitable, BadRequest) as error:
        # Instances are made all the same: what cannot be had is the image's own path.
        node.log.warning(
            "image not shared by path", culprit=image.owner_uid, image=image.digest[:12], reason=error
        )


def publish(node: NodeContext, image: PoolImage) -> PoolImage:
    """Make a private image everybody's: its owner or somebody privileged wants it so."""
    changed = dataclasses.replace(image, readers=PUBLIC)
    node.pool.change_image(changed)
    return changed


def opening(node: NodeContext, uri: str, readers: Readers | None) -> Callable[[PoolImage], PoolImage]:
    """What lets these users, or everybody, use a private image that was read at that address. Who comes by it
    later need not read it again."""

    def open_it(image: PoolImage) -> PoolImage:
        if readers is None:
            return publish(node, image)
        return allow(node, node.pool.note_address(image, address_of(uri)), set(readers.uids))

    return open_it


def check_image_quota(node: NodeContext, caller: NodeCaller) -> None:
    """Refuse more images than a user may bring. Called with the admission's lock."""
    most = node.config.user_images
    if caller.is_privileged or not most:
        return
    count = node.holders.of(node.pool, caller.uid)
    if count >= most:
        raise NotAllowed(
            f"you have {count} images in the pool and may have {most}: wait until some have "
            "left, or ask the administrator for user_images"
        )


def check_instance_quota(node: NodeContext, caller: NodeCaller, owner: str, label: str) -> None:
    most = node.config.user_instances
    if caller.is_privileged or not most:
        return
    key = instance_book.key_of(owner, label)
    mine = [each for each in instance_book.instances(node.pool) if each.uid == caller.uid and each.key != key]
    if len(mine) >= most:
        raise NotAllowed(f"you have {len(mine)} instances and may have {most}: release some")


def check_pin_quota(node: NodeContext, caller: NodeCaller, folder: str, owner: str) -> None:
    """Refuse more than a few pins of a user on one image, and on all: each is a file that everybody's
    requests read."""
    if caller.is_privileged:
        return
    if not node.pool.disk.exists(pins.pin_path(folder, owner)):
        node.pins.check(caller.uid)
    most = node.config.user_image_pins
    if not most:
        return
    disk, now_s = node.pool.disk, past_s(node.clock)
    with disk_errors("counting pins"):
        mine = [pin for pin in pins.read_pins(disk, folder) if pin.uid == caller.uid and pin.owner != owner]
        mine = [pin for pin in mine if pin.kind != "instance"]
        if len(mine) < most:
            return
        over = [pin for pin in mine if pin.expires_s <= now_s]
        for pin in over:
            pins.remove_pin(disk, folder, pin.owner)
    if len(mine) - len(over) >= most:
        raise NotAllowed(
            f"you have {len(mine) - len(over)} pins on this image and may have {most}: "
            "give some back, or renew one"
        )


def checked_until(node: NodeContext, caller: NodeCaller, until_s: int) -> int:
    """A user's lease ends some time; who is privileged is bound by the pool's own limit only."""
    longest_s = node.config.user_lease_s
    if not caller.is_privileged and until_s > node.clock.now_s() + longest_s:
        raise NotAllowed(f"a lease of yours may last {longest_s / 86_400:g} days: renew it when needed")
    return until_s
