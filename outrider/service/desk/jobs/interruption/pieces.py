"""Jobs in leases that consist of pieces: each goes on in the next piece when its own one ends.

A job that may be requeued is signalled before the end of its piece, requeued, and bound to the next piece; so
is one that has not started. Its limit is what its piece has left, in minutes, so that the batch system
starts it although its user has asked for more than that. Jobs that may not be requeued end with their piece.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.metadata.errors import TextError
from outrider.metadata.joblines import parse_job_lines
from outrider.rms.base import JobState, RmsJob, Sight
from outrider.service.desk.nodes.preemptible_jobs import PreemptibleJob, PreemptibleJobs
from outrider.service.desk.state.documents import PIECE
from outrider.service.desk.state.site import Live, Site

MINUTE_S = 60
OWN_LIMIT_S = 2 * MINUTE_S
"""A job whose limit ends so much earlier than its piece was not given it by us: it ends by that."""


@dataclass(frozen=True, slots=True)
class PieceEnd:
    """A job that runs in a piece which is not the last: by when it has to be gone, and where it goes on."""

    job: PreemptibleJob
    piece: str
    end_s: int
    following: str


def cut_jobs(site: Site, sight: Sight, preemptible: PreemptibleJobs) -> Mapping[str, PieceEnd]:
    """The jobs that run now and go on in a later piece, by their keys."""
    found: dict[str, PieceEnd] = {}
    if not site.has_series:
        return found
    for job in sight.jobs:
        live = None if job.reservation is None else site.live.get(job.reservation)
        if live is None or job.state is not JobState.RUNNING or not live.document.pieces:
            continue
        following, end_s = next_piece(site, job), live.reservation.end_s
        if following is None or job.start_s is None:
            continue
        if job.limit_s is not None:
            own_s = job.start_s + job.limit_s
            if own_s < end_s - OWN_LIMIT_S:
                continue
            end_s = min(end_s, own_s)
        cut = preemptible.until(job, end_s)
        if cut is not None:
            found[job.key] = PieceEnd(cut, live.name, end_s, following.name)
    return found


def next_piece(site: Site, job: RmsJob) -> Live | None:
    """The piece that follows the one that a job is bound to, which may be over."""
    match = PIECE.fullmatch(job.reservation or "")
    if match is None or not site.has_series:
        return None
    later = [
        live
        for live in site.owned(job.uid)
        if live.document.pieces
        and live.document.series == match[1]
        and live.document.occurrence > int(match[2])
    ]
    return min(later, key=lambda live: live.document.occurrence, default=None)


def goes_on(job: RmsJob) -> bool:
    """Whether a job is to go on when its piece is over: it says that it can be requeued."""
    try:
        lines = parse_job_lines(job.metadata or "")
    except TextError:
        return False
    return lines.is_preemptible and not lines.is_suspendable


def moves_on(site: Site, job: RmsJob, live: Live | None) -> Live | None:
    """The piece to which a job that waits is to be bound, since its own is over or about to be; None: it
    stays where it is."""
    if PIECE.fullmatch(job.reservation or "") is None:
        return None
    # One that was requeued has had a limit of whole minutes, and does not begin once more in what is left.
    least_s = site.settings.requeue_margin_s + OWN_LIMIT_S
    if live is not None and live.reservation.end_s > site.now_s + least_s:
        return None
    return next_piece(site, job) if goes_on(job) else None


def limit_in(live: Live, now_s: int) -> int:
    """The limit of a job that waits in a piece, in whole minutes."""
    reservation = live.reservation
    left_s = reservation.end_s - max(now_s, reservation.start_s)
    return max(1, left_s // MINUTE_S) * MINUTE_S
