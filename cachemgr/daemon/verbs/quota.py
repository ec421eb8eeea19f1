"""What ordinary users may hold of a pool: shares of one and of all, and nothing that is promised.

An image that nobody holds is no question: it leaves when its room is wanted. What counts is what
cannot leave, as `held` finds it, for whatever way it is kept: on its way, pinned, or as a copy.
"""

from __future__ import annotations

from contextlib import contextmanager

from cachemgr.base.errors import NoRoom, NotAllowed
from cachemgr.base.shares import BYTES, Shares
from cachemgr.base.sizes import in_words
from cachemgr.config import share_bytes
from cachemgr.pool.held import PoolAccount, PoolHolding, account, with_holdings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from cachemgr.base.shares import Share
    from cachemgr.config import NodeConfig
    from cachemgr.daemon.network.peer import NodeCaller
    from cachemgr.daemon.node import NodeContext
    from cachemgr.pool.records import PoolImage

THING = "bytes of the pool"
MOST_NAMED = 3


def shared_bytes(config: NodeConfig, limit_bytes: int) -> Shares:
    """What counts refusals, and says what one user may hold."""
    most_of_one = share_bytes(config.user_bytes, limit_bytes)
    return Shares(THING, most=limit_bytes, most_of_one=most_of_one or limit_bytes, unit=BYTES)


def account_of(node: NodeContext) -> PoolAccount:
    """The pool's bytes. The pool's lock is taken only if its index is not open yet."""
    if node.is_index_ready and node.pool.index.is_open:
        found = account(node.pool)
    else:
        with node.pool.changing("counting what is held"):
            found = account(node.pool)
    return with_holdings(found, tuple(node.pending))


@contextmanager
def held(
    node: NodeContext,
    caller: NodeCaller,
    image: PoolImage,
    what: str,
    *,
    until_s: int,
    copy_key: str = "",
    copy_bytes: int = 0,
) -> Iterator[None]:
    """Whoever is in here may hold that image, and the bytes of a copy: it is counted until they do.

    Making a copy takes long, so nobody waits for it: what is about to be held counts as held.
    """
    if caller.is_privileged:
        yield
        return
    key, uids = f"image:{image.digest}", frozenset({caller.uid})
    mine = [PoolHolding(key, image.digest, image.short, image.size_bytes, until_s, uids)]
    if copy_bytes:
        mine.append(PoolHolding(f"instance:{copy_key}", "", what, copy_bytes, until_s, uids))
    with node.admission:
        check_hold(node, caller, key, image.size_bytes, what, more_bytes=copy_bytes, until_s=until_s)
        node.pending.extend(mine)
    try:
        yield
    finally:
        with node.admission:
            for each in mine:
                node.pending.remove(each)


def check_hold(
    node: NodeContext,
    caller: NodeCaller,
    key: str,
    size_bytes: int,
    what: str,
    *,
    more_bytes: int = 0,
    until_s: int = 0,
) -> None:
    """Refuse a hold on what `key` stands for (`image:DIGEST`, `ingest:KEY`), and `more_bytes` of copies.

    Called with the admission's lock. What is held already may be held by more users, and until then;
    for longer only if nothing of it was promised.
    """
    if caller.is_privileged:
        return
    found = account_of(node)
    there = next((each for each in found.holdings if each.key == key), None)
    uids = frozenset() if there is None else there.uids
    mine_bytes = more_bytes + (0 if caller.uid in uids else size_bytes)
    users_bytes = more_bytes + (0 if uids else size_bytes)
    is_held = there is not None and there.is_others
    need_bytes = more_bytes + (0 if is_held else size_bytes)
    is_longer = there is None or until_s > there.until_s
    try:
        _check_shares(node, found, caller.uid, what, mine_bytes=mine_bytes, users_bytes=users_bytes)
        if (need_bytes or is_longer) and need_bytes > found.left_bytes:
            raise NoRoom(_promised_words(found, caller.uid, need_bytes, what))
    except (NotAllowed, NoRoom):
        node.shared_bytes.refuse(caller.uid)
        raise


def shares(node: NodeContext) -> list[Share]:
    """Who holds how many bytes of the pool, may hold how many, and was refused more."""
    counted: dict[Hashable, int] = {}
    for each in account_of(node).holdings:
        for uid in each.uids:
            counted[uid] = counted.get(uid, 0) + each.size_bytes
    return node.shared_bytes.shares(counted)


def _check_shares(
    node: NodeContext, found: PoolAccount, uid: int, what: str, *, mine_bytes: int, users_bytes: int
) -> None:
    config, limit_bytes = node.config, found.limit_bytes
    mine = found.of(uid)
    held_bytes = sum(each.size_bytes for each in mine)
    most = share_bytes(config.user_bytes, limit_bytes)
    if most and mine_bytes and held_bytes + mine_bytes > most:
        raise NotAllowed(
            f"{what} needs {in_words(mine_bytes)}, and you may hold {in_words(most)} of this pool: you hold "
            f"{_named(found, uid)}; unpin or release some, wait for what is on its way, or ask the "
            "administrator for user_bytes"
        )
    most = share_bytes(config.users_bytes, limit_bytes)
    if most and users_bytes and found.users_bytes + users_bytes > most:
        raise NoRoom(
            f"{what} needs {in_words(users_bytes)}, and all users together may hold {in_words(most)} of this "
            f"pool and hold {in_words(found.users_bytes)}, of which you hold {_named(found, uid)}: unpin or "
            "release some, wait until others have, or ask the administrator for users_bytes"
        )


def _promised_words(found: PoolAccount, uid: int, need_bytes: int, what: str) -> str:
    needs = f"needs {in_words(need_bytes)}" if need_bytes else "cannot be held for longer"
    limit = f" (its limit is {in_words(found.limit_bytes)}, but its disk has no room for that)"
    return (
        f"{what} {needs}: of the {in_words(found.capacity_bytes)} that this pool can hold"
        f"{limit if found.capacity_bytes < found.limit_bytes else ''} {in_words(found.promised_bytes)} are "
        f"promised to reservations, and {in_words(found.others_bytes)} are held otherwise, of which you hold "
        f"{_named(found, uid)}: unpin or release some, or wait until reservations have ended"
    )


def _named(found: PoolAccount, uid: int) -> str:
    """What a user holds: all of it, and the largest by name."""
    mine = found.of(uid)
    if not mine:
        return "nothing"
    total = in_words(sum(each.size_bytes for each in mine))
    named = ", ".join(f"{each.name} {in_words(each.size_bytes)}" for each in mine[:MOST_NAMED])
    others = f" and {len(mine) - MOST_NAMED} more" if len(mine) > MOST_NAMED else ""
    return f"{total} ({named}{others})"
