"""A deadline lease that may yield, in several pieces round what has been promised.

All its instances run at the same time and stay on their nodes, so a piece is a stretch in which every one of
the nodes has room. The memory of all instances is written at the end of each piece but the last and read at
the beginning of the next one; the image stays from the first piece to the last. Nodes are chosen one after
the other, each time the one that leaves most time to all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from outrider.core.model import LeasePiece, Workspace
from outrider.core.nodes.selection import Fit
from outrider.core.nodes.timeline import numbers
from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.reservations.planning import plan_images
from outrider.core.reservations.refusal import Cause, Refusal
from outrider.core.reservations.stock import Stock

MOST_STARTS_TRIED = 32
"""How many first starts are tried for the sake of the image."""

MOST_NODES_COMPARED = 64
"""Of larger sites only so many nodes, or twice as many as are needed, are looked at: those free longest."""

Span = tuple[int, int]


def plan_split(book: Book, workspace: Workspace, now_s: int) -> ReservationPlan | None:
    """A plan in pieces that ends by the workspace's deadline; None if there is none or it may not yield."""
    if not workspace.may_yield or workspace.finish_by_s is None or book.terms.split_overhead_s is None:
        return None
    assert workspace.start_s is not None
    from_s, until_s = max(workspace.start_s, now_s), workspace.finish_by_s
    for _ in range(MOST_STARTS_TRIED):
        if from_s >= until_s:
            return None
        found = _pieces(book, workspace, from_s, until_s)
        if found is None:
            return None
        fits, pieces = found
        answer = _with_image(book, workspace, fits, pieces, now_s)
        if isinstance(answer, ReservationPlan):
            return replace(answer, pieces=pieces if len(pieces) > 1 else ())
        from_s = _next_start(book, answer, pieces[0].start_s, now_s)
    return None


def _with_image(
    book: Book, workspace: Workspace, fits: tuple[Fit, ...], pieces: tuple[LeasePiece, ...], now_s: int
) -> ReservationPlan | Refusal:
    start_s, end_s = pieces[0].start_s, pieces[-1].end_s
    if workspace.image is None:
        return ReservationPlan(workspace=workspace, start_s=start_s, end_s=end_s, fits=fits)
    stock = Stock(book, workspace.image, start_s, end_s, now_s)
    for chosen in fits:
        if stock.nodes >> chosen.node & 1:
            stock.holds(chosen.node)
    return plan_images(book, workspace, workspace.image, list(fits), stock, start_s, end_s, now_s)


def _next_start(book: Book, refusal: Refusal, start_s: int, now_s: int) -> int:
    """A later first start at which the image may be there."""
    if refusal.cause is Cause.LINK:
        return max(start_s + 1, book.link.earliest_deadline(refusal.needed_s, now_s, start_s))
    nodes = [book.timeline.number_of[name] for name in refusal.nodes]
    ends = (
        life.expires_s + refusal_s
        for node in nodes
        for lives in book.pools.pools[node].lives.values()
        for life in lives
        for refusal_s in (0, refusal.needed_s)
    )
    return min((at_s for at_s in ends if at_s > start_s), default=start_s + 1)


def _pieces(
    book: Book, workspace: Workspace, from_s: int, until_s: int
) -> tuple[tuple[Fit, ...], tuple[LeasePiece, ...]] | None:
    """Nodes and pieces with time enough for all the work; None if they are not found."""
    rows, need = book.timeline.rows, book.timeline.layout.pack(workspace.resources)
    limit = workspace.instances
    free = {
        node: list(_free(book, node, need, from_s, until_s))
        for node in numbers(book.available)
        if book.timeline.layout.most(need, rows[node].capacity, 1)
    }
    most = max(MOST_NODES_COMPARED, 2 * limit)
    nodes = sorted(free, key=lambda node: (-_length(free[node]), node))[:most]
    counts: dict[int, int] = {}
    common: list[Span] = [(from_s, until_s)]
    for _ in range(limit):
        best: tuple[int, int] | None = None
        spans: list[Span] = []
        for node in nodes:
            count = counts.get(node, 0) + 1
            if count > workspace.most_per_node:
                continue
            own = free[node] if count == 1 else list(_free(book, node, need * count, from_s, until_s))
            both = list(_both(common, own))
            rank = (-_length(both), node)
            if best is None or rank < best:
                best, spans = rank, both
        if best is None or not best[0]:
            return None
        counts[best[1]] = counts.get(best[1], 0) + 1
        common = spans
    pieces = _laid(book, workspace, max(counts.values()), common)
    if pieces is None:
        return None
    return tuple(Fit(node, count) for node, count in sorted(counts.items())), pieces


def _laid(
    book: Book, workspace: Workspace, most_on_node: int, spans: Sequence[Span]
) -> tuple[LeasePiece, ...] | None:
    """The work laid into these stretches; the instances of a node write and read one after the other."""
    overhead_of = book.terms.split_overhead_s
    assert overhead_of is not None
    overhead_s = overhead_of(workspace.resources) * most_on_node
    pieces: list[LeasePiece] = []
    left_s, resume_s = workspace.duration_s, 0
    for start_s, end_s in spans:
        if start_s + resume_s + left_s <= end_s:
            return (*pieces, LeasePiece(start_s, start_s + resume_s + left_s, resume_s))
        useful_s = end_s - start_s - resume_s - overhead_s
        if useful_s >= max(1, min(book.terms.least_piece_s, left_s)):
            pieces.append(LeasePiece(start_s, end_s, resume_s, overhead_s))
            left_s, resume_s = left_s - useful_s, overhead_s
    return None


def _free(book: Book, node: int, need: int, from_s: int, until_s: int) -> Iterator[Span]:
    """When a node has room for so much."""
    row = book.timeline.rows[node]
    while from_s < until_s:
        start_s = row.next_fit(need, from_s)
        if start_s >= until_s:
            return
        from_s = row.free_until(need, start_s, until_s)
        yield start_s, from_s


def _both(one: Sequence[Span], other: Sequence[Span]) -> Iterator[Span]:
    """What is in both of two sequences of stretches."""
    index = 0
    for start_s, end_s in one:
        while index < len(other) and other[index][1] <= start_s:
            index += 1
        for begin_s, stop_s in other[index:]:
            if begin_s >= end_s:
                break
            yield max(start_s, begin_s), min(end_s, stop_s)


def _length(spans: Sequence[Span]) -> int:
    return sum(end_s - start_s for start_s, end_s in spans)
