"""Why a reservation is refused, as facts and as the text that a user reads: every such text is here.

The facts are kept apart from the sentence because only the edge of the program knows time
zones: `Refusal.sentence` is handed a function that writes an instant. Lengths of time are handed in as texts,
too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from outrider.core.model import Image


class Cause(Enum):
    """What stands in the way."""

    SLOTS = "slots"
    LINK = "link"
    POOL = "pool"
    POLICY = "policy"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """One obstacle, with what a user needs in order to understand it."""

    cause: Cause
    start_s: int
    end_s: int
    instances: int = 0
    room: int = 0
    image: Image | None = None
    nodes: tuple[str, ...] = ()
    needed_s: int = 0
    made_s: int = 0
    """When an image is expected that is only being made: too late for this start."""
    message: str = ""
    from_s: int = 0
    """From when on the image would have to be in the pool that has no room for it."""
    held_bytes: int = 0
    """What others hold of that pool then, until `held_until_s`, of its limit."""
    held_until_s: int = 0
    limit_bytes: int = 0
    room_bytes: int = 0
    """What that pool can hold: less than its limit if its disk has no room for that."""

    def sentence(self, instant: Callable[[int], str] = str) -> str:
        if self.cause is Cause.POLICY:
            return self.message
        if self.cause is Cause.SLOTS:
            return self.message or (
                f"{self.room} of {self.instances} instances fit between "
                f"{instant(self.start_s)} and {instant(self.end_s)}: the rest of the nodes is taken"
            )
        assert self.image is not None
        what = f"image {self.image.uri} ({size(self.image.size_bytes)})"
        where = folded(self.nodes)
        if self.cause is Cause.LINK and self.made_s:
            return (
                f"{what} is being converted until about {instant(self.made_s)}, and cannot reach {where} by "
                f"{instant(self.start_s)}: it needs {self.needed_s} s of the link from then on"
            )
        if self.cause is Cause.LINK:
            return (
                f"{what} cannot reach {where} by {instant(self.start_s)}: it needs "
                f"{self.needed_s} s of a link that has less left before then"
            )
        until = instant(self.end_s)
        return f"{what} has no room in the image pool of {where} until {until}{self._takers(instant)}"

    def reason(self, instant: Callable[[int], str]) -> str:
        """The same where each instance has a node to itself, as the service's reservations have."""
        if self.message:
            return self.message
        if self.cause is Cause.SLOTS:
            start, end = instant(self.start_s), instant(self.end_s)
            return f"{self.room} of {self.instances} nodes are free from {start} to {end}"
        return self.sentence(instant)

    def remedies(self, *, instances: int, can_finish_later: bool) -> tuple[str, ...]:
        """What else would work for a request of so many nodes, or is worth a try."""
        found: list[str] = []
        where = ", ".join(self.nodes)
        if self.cause is Cause.SLOTS and 0 < self.room < instances:
            few = "1 node" if self.room == 1 else f"{self.room} nodes or fewer"
            found.append(f"ask for {few} at that time")
        if self.cause is Cause.LINK and instances > 1:
            found.append("ask for fewer nodes, or for an image that some nodes have already")
        if self.cause is Cause.POOL and not self.message:
            found.append("ask for another time, or for a smaller image")
        if self.held_bytes:
            found.append(f"ask an administrator who holds images on {where}: `cachemgr ls` shows it there")
        if self.room_bytes < self.limit_bytes:
            found.append(f"let an administrator free space on the disk of {where}, or lower its pool's limit")
        if can_finish_later:
            found.append("let it finish later")
        return tuple(found)

    def _takers(self, instant: Callable[[int], str]) -> str:
        """What takes the room beside reservations. It is not said whose it is."""
        found = ""
        if self.room_bytes < self.limit_bytes:
            found += (
                f": its disk has room for {size(self.room_bytes)} of the {size(self.limit_bytes)} that "
                "the pool may take"
            )
        if self.held_bytes:
            found += (
                f"{', and' if found else ':'} {size(self.held_bytes)} of its {size(self.limit_bytes)} are "
                f"held there by users' images and copies, until {instant(self.held_until_s)} at most"
            )
        return found


def size(size_bytes: int) -> str:
    """A size as people write it: 600 MB, 2.1 GB."""
    if size_bytes >= 10**9:
        return f"{size_bytes / 10**9:.1f} GB"
    if size_bytes >= 10**6:
        return f"{size_bytes // 10**6} MB"
    return f"{size_bytes} bytes"


def folded(nodes: tuple[str, ...]) -> str:
    """The first few nodes by name, and how many more there are."""
    if len(nodes) <= 3:
        return ", ".join(nodes)
    return f"{', '.join(nodes[:3])} and {len(nodes) - 3} more"


def of_name(name: str) -> str:
    return f"a reservation named {name} exists already: choose another name"


def of_past(late_s: int) -> str:
    return f"its start is {late_s} s in the past: ask for a start from now on"


def of_site(instances: int, resources: object, nodes: int, room: int) -> str:
    return (
        f"{instances} instances of {resources} are more than the site's {nodes} nodes can hold, even empty: "
        f"there is room for {room}"
    )


def of_resource(name: str) -> str:
    return f"no node has {name}"


def of_amount(amount: int, name: str) -> str:
    return f"{amount} of {name} are more than any node has"


def of_nodes(instances: int, resources: object, room: int) -> str:
    return f"{instances} nodes with {resources} are asked for, and the site has {room} such nodes"


def of_pools(image: Image, large: int, instances: int) -> str:
    return (
        f"image {image.uri} ({size(image.size_bytes)}) fits into the image pools of {large} nodes, and "
        f"{instances} are asked for"
    )


def of_account(user: str, account: str) -> str:
    return f"{user} is not in account {account}: name one of your groups, or none"


def of_full_site(count: int) -> str:
    return f"there are {count} reservations, the most that the site allows: try again when some have ended"


def of_program(reason: str) -> str:
    return f"the site's own policy: {reason}"


def of_silent_program(error: object) -> str:
    return f"the site's own policy gave no answer ({error}): tell the administrators, and try again later"


def of_broken_program(error: object) -> str:
    return f"the site's own policy gave no answer: {error}"


def of_denial(user: str, because: str) -> str:
    return f"{user} may not reserve: {because}"


def of_no_rule(user: str, otherwise: str) -> str:
    return f"no policy lets {user} reserve: {otherwise}"


def of_rule(rule: str, because: str) -> str:
    return f"rule {rule} lets nobody reserve: {because}"


def of_limits(rule: str, excesses: list[str]) -> str:
    """`excesses` are texts of the functions below."""
    return f"rule {rule}: {'; '.join(excesses)}"


def too_early(start: str, ahead: str, most: str, excess: str) -> str:
    return f"{start} is {ahead} ahead, and {most} are allowed: ask again in {excess}, or for an earlier time"


def too_long(duration: str, most: str) -> str:
    return f"it lasts {duration}: ask for {most} at most"


def too_large(uri: str, image: str, most: str) -> str:
    return f"image {uri} has {image}: use one of {most} at most"


def too_many(user: str, count: int, most: int) -> str:
    return (
        f"{user} has {count} reservations, and {most} are allowed at once: cancel one, or wait until one has "
        "ended"
    )


def too_many_node_hours(user: str, nodes: int, duration: str, node_hours: int, longest: str) -> str:
    """`longest` is what could be asked for; empty if nothing could."""
    remedy = "cancel a reservation, or wait until one has ended"
    if longest:
        remedy = f"ask for {longest} at most, or for fewer nodes"
    wanted = f"{nodes} nodes for {duration}"
    return f"{wanted} are more than what {user} has left of {node_hours} node-hours: {remedy}"


def too_large_share(of_whom: str, percent: int, most: int, machine_nodes: int, taken: int) -> str:
    room = max(most - taken, 0)
    few = "1 node" if room == 1 else f"{room} nodes"
    remedy = f"ask for {few} at most, or for another time" if room else "ask for another time"
    return (
        f"the share {of_whom} is {percent} %, {most} of {machine_nodes} nodes, and {taken} are taken then: "
        f"{remedy}"
    )
