"""Lives of one user on many nodes: what `Pools` does for one life at a time, in one loop.

A gang has an image on hundreds of nodes, and calls for each of them were most of what it cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from outrider.core.images.pools import Life, Pools, Stay
from outrider.core.model import Image


def revive_all(
    pools: Pools, nodes: Iterable[int], image: Image, now_s: int, until_s: int
) -> list[tuple[int, Life]]:
    """`Pools.revive` on nodes on each of which the image lingers."""
    key, size_bytes = image.key, image.size_bytes
    found: list[tuple[int, Life]] = []
    for node in nodes:
        pool = pools.pools[node]
        entry = pool.lingering.pop(key)
        pools.stays.append(Stay(node, key, entry.last_use_s, now_s, entry.size_bytes))
        life = Life(image, now_s, now_s, until_s)
        pool.promised_bytes += size_bytes
        lives = pool.lives.get(key)
        if lives is None:
            pool.lives[key] = [life]
        else:
            lives.append(life)
        found.append((node, life))
    pools.number(found)
    return found


def extend_all(pools: Pools, lives: Sequence[tuple[int, Life]], user: str, until_s: int) -> None:
    """`Pools.extend` of each; they are of one image."""
    expired: list[tuple[int, Life]] = []
    key = lives[0][1].image.key if lives else ""
    for node, life in lives:
        users, uses = life.users, pools.pools[node].uses
        at_s = until_s
        if users:
            users[user] = max(until_s, users.get(user, 0))
            at_s = max(users.values())
        else:
            users[user] = until_s
        uses[key] = uses.get(key, 0) + 1
        if at_s < life.expires_s:
            expired.append((node, life))
        life.expires_s = at_s
    pools.expire(lives, expired)


def leave_all(pools: Pools, lives: Sequence[tuple[int, Life]], user: str, now_s: int) -> None:
    """`Pools.leave` of each; its transfer does not wait."""
    expired: list[tuple[int, Life]] = []
    for node, life in lives:
        users = life.users
        users.pop(user, None)
        if users:
            at_s = max(users.values())
        else:
            at_s = now_s if life.transfer is None else max(now_s, life.ready_s)
        if at_s < life.expires_s:
            expired.append((node, life))
        life.expires_s = at_s
    pools.expire(lives, expired)
