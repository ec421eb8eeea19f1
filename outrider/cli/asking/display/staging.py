"""How far an image is on its nodes: nodes that are alike as one line, with a bar."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cachemgr.base.sizes import in_words
from cachemgr.base.tables import printable
from cachemgr.base.times import span_in_words
from outrider.cli.asking.display.terminal import GAP, Paint
from outrider.cli.asking.display.words import When, bar, percent, rate_in_words
from outrider.metadata.errors import TextError
from outrider.metadata.notation import hostlists

if TYPE_CHECKING:
    from outrider.service.answers.transfers import NodeStaging, TransferView

_ORDER = ("failed", "unknown", "arriving", "waiting", "ready")
"""What somebody should see first."""
MOST_GROUPS = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Nodes of the same state, with the same words about it."""

    state: str
    words: str
    members: tuple[NodeStaging, ...]

    @property
    def nodes(self) -> str:
        return folded(each.node for each in self.members)

    @property
    def arrived_bytes(self) -> int:
        return sum(each.arrived_bytes for each in self.members)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.members)

    @property
    def slowest(self) -> NodeStaging:
        """Which node will be the last, by what is missing there."""
        return max(self.members, key=lambda each: (_left_s(each), hostlists.natural(each.node)))


def groups(staging: Sequence[NodeStaging]) -> list[Group]:
    alike: dict[tuple[str, str], list[NodeStaging]] = {}
    for each in staging:
        alike.setdefault((each.state, each.words), []).append(each)
    found = [Group(state=state, words=words, members=tuple(some)) for (state, words), some in alike.items()]
    return sorted(found, key=_rank)


def staging_lines(staging: Sequence[NodeStaging], when: When, paint: Paint) -> list[str]:
    """A line for each group: nodes, state, bar, and what there is to say."""
    found = groups(staging)
    shown = found[:MOST_GROUPS]
    wide = max((len(each.nodes) for each in shown), default=0)
    words = max((len(each.state) for each in shown), default=0)
    written = [
        f"  {each.nodes.ljust(wide)}{GAP}{paint(printable(each.state).ljust(words), each.state)}{GAP}"
        f"{bar(each.arrived_bytes, each.size_bytes)}{GAP}{_standing(each, when)}"
        for each in shown
    ]
    if len(found) > len(shown):
        written.append(f"  and {len(found) - len(shown)} more groups: outrider show --json has all nodes")
    return written


def transfer_line(view: TransferView, when: When, paint: Paint) -> str:
    """A transfer while it waits or runs: bar, how much, how fast, and whether it is in time."""
    share = f"{percent(view.arrived_bytes, view.total_bytes):>3} %"
    parts = [f"{in_words(view.arrived_bytes)} of {in_words(view.total_bytes)}"]
    if view.rate_bytes_per_s:
        parts.append(rate_in_words(view.rate_bytes_per_s))
    if view.state == "waiting":
        parts.append(f"begins {when.clock(view.begin_s)}")
    parts.append(deadline_words(view.ready_s, view.deadline_s, when))
    told = ", ".join(part for part in parts if part)
    late = f"{GAP}{paint('LATE', 'red')}" if view.is_late else ""
    return f"{bar(view.arrived_bytes, view.total_bytes)} {share}{GAP}{told}{late}"


def deadline_words(ready_s: int | None, deadline_s: int | None, when: When) -> str:
    """ready 13:47:10 (in 12 s), 12 min 50 s before its deadline."""
    if ready_s is None:
        return "" if deadline_s is None else f"deadline {when.clock(deadline_s)}"
    told = f"ready {when.clock(ready_s)} ({when.distance(ready_s)})"
    if deadline_s is None:
        return told
    spare_s = deadline_s - ready_s
    side = "before" if spare_s >= 0 else "after"
    return f"{told}, {span_in_words(abs(spare_s))} {side} its deadline"


def folded(names: Iterable[str]) -> str:
    """Nodes as one set. What is no set of nodes stays as it is written."""
    texts = [each for each in names if each]
    try:
        return hostlists.fold(name for text in texts for name in hostlists.expand(text))
    except TextError:
        return printable(",".join(texts))


def _rank(group: Group) -> tuple[int, str, str]:
    rank = _ORDER.index(group.state) if group.state in _ORDER else len(_ORDER)
    return rank, group.state, group.words


def _left_s(each: NodeStaging) -> int:
    missing_bytes = each.size_bytes - each.arrived_bytes
    return missing_bytes // each.rate_bytes_per_s if each.rate_bytes_per_s else missing_bytes


def _standing(group: Group, when: When) -> str:
    parts = [f"{percent(group.arrived_bytes, group.size_bytes):>3} %"]
    if group.state == "arriving":
        parts += _last(group)
        parts.append(f"{in_words(group.arrived_bytes)} of {in_words(group.size_bytes)}")
        rate = sum(each.rate_bytes_per_s for each in group.members)
        if rate:
            parts.append(rate_in_words(rate))
        sources = sorted({printable(each.source) for each in group.members if each.source})
        if len(sources) == 1:
            parts.append(f"from {sources[0]}")
    ready = [each.ready_s for each in group.members if each.ready_s is not None]
    if ready and group.state == "ready" and max(ready) <= when.now_s:
        parts.append(f"since {when.clock(max(ready))}")
    elif ready and group.state in ("arriving", "waiting"):
        parts.append(f"ready about {when.clock(max(ready))}")
    if group.words:
        parts.append(printable(group.words))
    return ", ".join(parts)


def _last(group: Group) -> list[str]:
    """How long it takes until the last of them is there."""
    slowest = group.slowest
    missing_bytes = slowest.size_bytes - slowest.arrived_bytes
    if not slowest.rate_bytes_per_s or missing_bytes <= 0:
        return []
    told = f"{span_in_words(-(-missing_bytes // slowest.rate_bytes_per_s))} left"
    if len(group.members) == 1:
        return [told]
    least = percent(slowest.arrived_bytes, slowest.size_bytes)
    return [f"{told} ({printable(slowest.node)} is last with {least} %)"]
