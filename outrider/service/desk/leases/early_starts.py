"""The earliest start that a refusal names, looked for in slices, so that nobody waits for a whole search.

What others change in between counts from then on, and what is named would be accepted in the end.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import nullcontext
from dataclasses import replace
from typing import TypeVar

from outrider.core.model import Workspace
from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.earliest import MOST_STARTS_TRIED, StartSearch, search_after, search_from
from outrider.core.reservations.refusal import Cause, Refusal
from outrider.service.desk.reservations.admission import ReservationAdmission
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.wishes import Wish

Found = TypeVar("Found")

MOST_ENDS_TRIED = 4
"""How many ends of others are tried in search of a start that the policies allow."""

Slices = Generator[None, None, Rejected]
"""What is done of a search at a time; in the end the refusal with the start, if there is one."""


def with_earliest(site: Site, admission: ReservationAdmission, wish: Wish, rejected: Rejected) -> Slices:
    """What has just been refused, with the first start that the book would accept and that neither the
    policies nor offers to others are against."""
    workspace, refusal = wish.workspace, rejected.refusal
    if wish.document.open is not None or refusal.message:
        # Its start is not its own to choose; or no other start would help.
        return replace(rejected, earliest_start_s=None)
    assert workspace.start_s is not None
    # Of what may start at several times the last of these was refused, and all before it.
    is_floating = workspace.finish_by_s is not None or workspace.is_immediate
    first_s = yield from _first_start(site, workspace, workspace.start_s, None if is_floating else refusal)
    if first_s is not None:
        yield
        first_s = yield from _allowed(site, admission, wish, first_s)
    return replace(rejected, earliest_start_s=first_s)


def without(site: Site, name: str, slices: Generator[None, None, Found]) -> Generator[None, None, Found]:
    """The same as if a reservation were not there: it takes nothing while a slice lasts."""
    while True:
        is_there = name in site.book.entries
        with site.book.without(name, site.now_s) if is_there else nullcontext():
            try:
                next(slices)
            except StopIteration as ended:
                found: Found = ended.value
                return found
        yield


def renewed_from(site: Site, wish: Wish, rejected: Rejected) -> Slices:
    """A change of a reservation that has been refused, with the first start that the book would accept."""
    workspace, refusal = wish.workspace, rejected.refusal
    if refusal.message:
        return rejected
    assert workspace.start_s is not None
    is_floating = workspace.finish_by_s is not None or workspace.is_immediate
    slices = _first_start(site, workspace, workspace.start_s, None if is_floating else refusal)
    first_s = yield from without(site, workspace.name, slices)
    return replace(rejected, earliest_start_s=first_s)


_Starts = Generator[None, None, int | None]


def _allowed(site: Site, admission: ReservationAdmission, wish: Wish, first_s: int) -> _Starts:
    """The first start that is allowed, of the first that the book has and a few more."""
    workspace = replace(wish.workspace, start_s=first_s, finish_by_s=None)
    if admission.allows(wish, workspace):
        return first_s
    for from_s in [end_s for end_s in admission.ends_of_others(wish) if end_s > first_s][:MOST_ENDS_TRIED]:
        yield
        start_s = yield from _first_start(site, workspace, from_s)
        if start_s is None:
            break
        if admission.allows(wish, replace(workspace, start_s=start_s)):
            return start_s
    return None


def _first_start(site: Site, workspace: Workspace, from_s: int, refusal: Refusal | None = None) -> _Starts:
    """The first one from `from_s` on that the book accepts. `refusal`: why that one was refused just now."""
    search: StartSearch | None = None
    if refusal is not None and refusal.cause is Cause.SLOTS:
        search = search_after(site.book, workspace, from_s, site.now_s, refusal, [])
    reached_s, steps = from_s, 0
    while steps < MOST_STARTS_TRIED:
        seen = site.writes, site.now_s
        if search is None:
            search = search_from(site.book, workspace, max(reached_s, site.now_s), site.now_s)
        while (site.writes, site.now_s) == seen and steps < MOST_STARTS_TRIED:
            try:
                reached_s = next(search)
            except StopIteration as ended:
                return None if ended.value is None else int(ended.value.start_s)
            steps += 1
            yield
        search = None
    return None
