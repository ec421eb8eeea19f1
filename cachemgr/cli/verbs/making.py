"""`cachemgr init`: a pool made, or its settings changed, and what follows from that."""

from __future__ import annotations

import json
import os
from contextlib import closing

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, NotInPool, PoolDamaged
from cachemgr.base.sizes import in_words
from cachemgr.cli.identity import acting_as, group_id, user_id, user_name
from cachemgr.pool import room
from cachemgr.pool.index import SqliteIndex
from cachemgr.pool.layout import SEARCHABLE, PoolLayout, PoolSettings, disk_errors, read_settings
from cachemgr.pool.pool import ImagePool
from cachemgr.pool.records import MOST_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.cli.session import VerbSession

POLICY = "lfu"


def init(session: VerbSession, *, limit_bytes: int | None, policy: str | None, user: str | None) -> None:
    """Make the pool, or change it; only what is said changes."""
    root = os.path.realpath(session.config.pool)
    uid = _owner(root, user or session.config.user)
    before = _settings(root)
    if before is None and limit_bytes is None:
        raise BadRequest(f"how large may the pool {root} become? say --limit 50GiB, for instance")
    settings = PoolSettings(
        limit_bytes=limit_bytes if limit_bytes is not None else before.limit_bytes if before else 0,
        policy=policy or (before.policy if before else POLICY),
    )
    if before is None:
        _make_root(root, uid)
    with acting_as(uid):
        if before is None or _text(before) != _text(settings):
            ImagePool.create(RealDisk(), root, settings)
        used_bytes = _used_bytes(session, root)
    result = {
        "pool": root,
        "limit_bytes": settings.limit_bytes,
        "policy": settings.policy,
        "owner_uid": uid,
        "used_bytes": used_bytes,
        "is_new": before is None,
    }
    session.show(result, _said(root, uid, before, settings))
    _remark(session, root, before, settings, used_bytes)


def _owner(root: str, user: str) -> int:
    """Whose the pool is or will be."""
    wanted = user_id(user) if user else None
    try:
        there = os.stat(f"{root}/pool.json").st_uid
    except OSError:
        return os.geteuid() if wanted is None else wanted
    if wanted not in (None, there):
        raise BadRequest(
            f"the pool {root} belongs to {user_name(there)}: stop its daemon and `chown -R` it first"
        )
    return there


def _settings(root: str) -> PoolSettings | None:
    """What the pool is set to; None if there is none, or if that cannot be read any more."""
    layout = PoolLayout(root)
    with disk_errors(f"reading the pool {root}"):
        try:
            return read_settings(RealDisk(), layout)
        except NotInPool:
            return None
        except PoolDamaged:
            if _is_json(RealDisk().read(layout.settings, MOST_BYTES)):
                # Another program's, or a newer version's: not ours to replace.
                raise
            return None


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True


def _make_root(root: str, uid: int) -> None:
    """The folder and those above it; what is there already stays as it is."""
    with disk_errors(f"making the pool {root}"):
        os.makedirs(os.path.dirname(root), mode=0o755, exist_ok=True)
        if not os.path.isdir(root):
            os.mkdir(root, SEARCHABLE)
            os.chmod(root, SEARCHABLE)
        # A file system's root folder that was mounted here is given away when it is empty.
        is_given = os.geteuid() == 0 and not set(os.listdir(root)) - {"lost+found"}
        if is_given:
            os.chown(root, uid, group_id(uid))


def _used_bytes(session: VerbSession, root: str) -> int:
    pool = ImagePool(RealDisk(), root, session.clock, SqliteIndex(PoolLayout(root).index))
    with closing(pool), disk_errors(f"looking at the pool {root}"):
        entries, taken = room.scan(pool)
    return sum(entry.size_bytes for entry in entries) + sum(taken.values())


def _text(settings: PoolSettings) -> str:
    return f"{in_words(settings.limit_bytes)}, {settings.policy}"


def _said(root: str, uid: int, before: PoolSettings | None, settings: PoolSettings) -> str:
    if before is None:
        return (
            f"made the pool {root} of {user_name(uid)}: "
            f"at most {in_words(settings.limit_bytes)}, evicting by {settings.policy}"
        )
    changes = []
    if before.limit_bytes != settings.limit_bytes:
        changes.append(f"limit {in_words(before.limit_bytes)} -> {in_words(settings.limit_bytes)}")
    if before.policy != settings.policy:
        changes.append(f"policy {before.policy} -> {settings.policy}")
    return f"the pool {root}: {', '.join(changes) or 'nothing to change'}"


def _remark(
    session: VerbSession, root: str, before: PoolSettings | None, settings: PoolSettings, used_bytes: int
) -> None:
    """What follows, for whoever would not expect it."""
    over_bytes = used_bytes - settings.limit_bytes
    if over_bytes > 0:
        session.say(
            f"it holds {in_words(used_bytes)}, {in_words(over_bytes)} more than its limit now: nothing is "
            "deleted yet, but the next image that comes in evicts at least that much, and is refused while "
            "pins hold it; `cachemgr evict --need 1` does it now"
        )
    free_bytes = RealDisk().free_bytes(root)
    short_bytes = settings.limit_bytes - used_bytes - free_bytes
    if short_bytes > 0:
        session.say(
            f"the disk has {in_words(free_bytes)} free, {in_words(short_bytes)} less than the limit allows: "
            "images are evicted earlier"
        )
    if before is not None and _text(before) != _text(settings):
        from cachemgr.cli.askers import daemon_of

        if daemon_of(session.config) is not None:
            session.say("the daemon works with the old settings until it is restarted")
