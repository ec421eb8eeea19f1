"""Who has which nodes when, of the whole site at once: what a page draws.

It says what everybody may know and nothing more, so it is the same for everybody. Of jobs, and of the batch
system's own reservations, it says that nodes are taken, and not by whom.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from outrider.core.nodes.timeline import numbers
from outrider.service.answers.site import Overview, ReservationColumns, Runs, TakenColumns
from outrider.service.desk.jobs.manager import JobManager
from outrider.service.desk.state.site import Live, Site
from outrider.service.desk.views.reservations import ReservationViews

MOST_SHOWN = 50_000
"""So many reservations are shown, and so much else that nodes are taken by."""
_RESERVATION, _JOB = "reservation ", "job "


class OverviewViews:
    """Answers whoever wants to see all of it."""

    def __init__(self, site: Site, reservations: ReservationViews, jobs: JobManager) -> None:
        self._site = site
        self._reservation_views = reservations
        self._jobs = jobs

    def overview(self) -> Overview:
        site = self._site
        timeline, book = site.book.timeline, site.book
        shown = list(site.live.values())
        taken = self._taken()
        return Overview(
            nodes=tuple(node.name for node in timeline.nodes),
            unavailable=runs(numbers(timeline.everyone & ~book.available)),
            reservations=self._reservations(shown[:MOST_SHOWN]),
            taken=_columns(taken[:MOST_SHOWN]),
            is_complete=max(len(shown), len(taken)) <= MOST_SHOWN,
        )

    def _reservations(self, shown: list[Live]) -> ReservationColumns:
        number_of = self._site.book.timeline.number_of
        return ReservationColumns(
            names=tuple(live.name for live in shown),
            users=tuple(live.record.owner.user for live in shown),
            states=tuple(live.record.state.value for live in shown),
            starts_s=tuple(live.reservation.start_s for live in shown),
            ends_s=tuple(live.reservation.end_s for live in shown),
            ready_s=tuple(map(self._ready_s, shown)),
            # One that has lost its place may name a node that the site no longer has.
            nodes=tuple(
                runs(sorted(number_of[name] for name in live.nodes if name in number_of)) for live in shown
            ),
        )

    def _ready_s(self, live: Live) -> int | None:
        """An instant that stays while nothing happens: what is there already would be ready at any time."""
        if live.kept.ready_s is not None:
            return live.kept.ready_s
        expected_s = self._reservation_views.expected_s(live)
        return None if expected_s is None or expected_s <= self._site.now_s else expected_s

    def _taken(self) -> list[tuple[str, int, int, Runs]]:
        """What runs, and what others have reserved: what it is, from when until when, and where."""
        forecast, found = self._jobs.forecast, []
        for name in forecast.names():
            is_job = name.startswith(_JOB)
            if not is_job and name.removeprefix(_RESERVATION) in self._site.live:
                continue
            spans: dict[tuple[int, int], list[int]] = {}
            for each in forecast.known(name):
                spans.setdefault((each.start_s, each.end_s), []).extend(each.nodes)
            found += [
                ("job" if is_job else "other", 0 if is_job else start_s, end_s, runs(sorted(nodes)))
                for (start_s, end_s), nodes in spans.items()
            ]
        return found


def _columns(taken: list[tuple[str, int, int, Runs]]) -> TakenColumns:
    return TakenColumns(
        kinds=tuple(each[0] for each in taken),
        starts_s=tuple(each[1] for each in taken),
        ends_s=tuple(each[2] for each in taken),
        nodes=tuple(each[3] for each in taken),
    )


def runs(ordered: Iterable[int]) -> Runs:
    """Numbers in their order as runs of neighbours: 3, 4, 5, 9 are 3, 3, 9, 1."""
    return tuple(_flat(ordered))


def _flat(ordered: Iterable[int]) -> Iterator[int]:
    first = last = -2
    for number in ordered:
        if number != last + 1:
            if last >= 0:
                yield first
                yield last - first + 1
            first = number
        last = number
    if last >= 0:
        yield first
        yield last - first + 1
