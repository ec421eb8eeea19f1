"""Which image leaves a full pool first: a table of eviction policies.

A policy turns what is known of an image, and the time, into a key; the image with the
smallest key leaves first. Policies are pure, so the simulator uses the same ones. What may
not be evicted at all (a pinned image) is decided here too; deleting files is not.

A hook imports this file before a job may start: it must stay cheap, hence no dataclasses
and no typing module at run time.
"""

from __future__ import annotations

# Type checkers take this name for true; at run time nothing below it is imported.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Key = tuple[int, ...]
    Policy = Callable[["PolicyEntry", int], Key]

# A day without use halves what an image's uses count for. Within an experiment of hours
# this is the thesis' plain LFU; in a pool of years last term's favourite does not stay.
HALF_LIFE_S = 86_400
# No call evicts more than this, so that a job never waits for an unbounded clean-up.
MAX_VICTIMS = 256


class PolicyEntry:
    """An image in a pool and its statistics: a value, to be replaced rather than changed.

    `expires_s` is until when it was promised (thesis, Algorithm 4), `next_use_s` when an
    accepted reservation needs it next; None where there is no such time.
    """

    __slots__ = (
        "added_s",
        "expires_s",
        "is_pinned",
        "key",
        "last_use_s",
        "next_use_s",
        "size_bytes",
        "uses",
    )

    def __init__(
        self,
        *,
        key: str,
        size_bytes: int,
        added_s: int,
        uses: int = 0,
        last_use_s: int | None = None,
        expires_s: int | None = None,
        next_use_s: int | None = None,
        is_pinned: bool = False,
    ) -> None:
        if size_bytes < 0 or uses < 0:
            raise ValueError(f"image {key} has {size_bytes} bytes and {uses} uses: below 0")
        self.key = key
        self.size_bytes = size_bytes
        self.added_s = added_s
        self.uses = uses
        self.last_use_s = added_s if last_use_s is None else last_use_s
        self.expires_s = expires_s
        self.next_use_s = next_use_s
        self.is_pinned = is_pinned

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"Entry({fields})"

    def used(self, now_s: int) -> PolicyEntry:
        """The same image after one more use."""
        return PolicyEntry(
            key=self.key,
            size_bytes=self.size_bytes,
            added_s=self.added_s,
            uses=self.uses + 1,
            last_use_s=now_s,
            expires_s=self.expires_s,
            next_use_s=self.next_use_s,
            is_pinned=self.is_pinned,
        )


def lfu(entry: PolicyEntry, now_s: int) -> Key:
    """The least frequently used first, a use counting half after each idle half-life."""
    idle_s = max(0, now_s - entry.last_use_s)
    return (entry.uses >> (idle_s // HALF_LIFE_S), entry.last_use_s)


def lru(entry: PolicyEntry, now_s: int) -> Key:
    """The longest unused first."""
    return (entry.last_use_s,)


def timeout(entry: PolicyEntry, now_s: int) -> Key:
    """The soonest expired first (thesis, Algorithm 4); what has no expiry last, by use."""
    if entry.expires_s is None:
        return (1, entry.last_use_s)
    return (0, entry.expires_s)


def largest_first(entry: PolicyEntry, now_s: int) -> Key:
    """The largest first, so that as few images as possible leave."""
    return (-entry.size_bytes, entry.last_use_s)


def calendar(entry: PolicyEntry, now_s: int) -> Key:
    """What no reservation needs first, by LFU; then what is needed furthest ahead."""
    if entry.next_use_s is None:
        return (0, *lfu(entry, now_s))
    return (1, -entry.next_use_s)


POLICIES: dict[str, Policy] = {
    "lfu": lfu,
    "lru": lru,
    "timeout": timeout,
    "largest_first": largest_first,
    "calendar": calendar,
}


def victims(
    entries: Iterable[PolicyEntry], need_bytes: int, policy: Policy, now_s: int
) -> list[PolicyEntry] | None:
    """What to evict for `need_bytes` more room, in order; None if that cannot be had.

    Never a pinned image. Equal keys are told apart by the image's key. An image that
    turns out not to be needed, because a larger one had to go after it, is spared. At most
    `MAX_VICTIMS`: if those are not enough, evict them and ask again.
    """
    evictable = [entry for entry in entries if not entry.is_pinned]
    if sum(entry.size_bytes for entry in evictable) < need_bytes:
        return None
    evictable.sort(key=lambda entry: (policy(entry, now_s), entry.key))

    chosen: list[PolicyEntry] = []
    freed_bytes = 0
    for entry in evictable[:MAX_VICTIMS]:
        if freed_bytes >= need_bytes:
            break
        chosen.append(entry)
        freed_bytes += entry.size_bytes
    return _without_the_needless(chosen, freed_bytes - need_bytes)


def expired(entries: Iterable[PolicyEntry], now_s: int) -> list[PolicyEntry]:
    """What has outlived its promise and is not pinned, the soonest expired first."""
    due = [
        (entry.expires_s, entry.key, entry)
        for entry in entries
        if entry.expires_s is not None and entry.expires_s <= now_s and not entry.is_pinned
    ]
    return [entry for _, _, entry in sorted(due, key=lambda item: item[:2])][:MAX_VICTIMS]


def _without_the_needless(chosen: list[PolicyEntry], surplus_bytes: int) -> list[PolicyEntry]:
    """Spare what the surplus covers, starting with the image that is worth most."""
    kept: list[PolicyEntry] = []
    for entry in reversed(chosen):
        if entry.size_bytes <= surplus_bytes:
            surplus_bytes -= entry.size_bytes
        else:
            kept.append(entry)
    kept.reverse()
    return kept
