"""Leases with a deadline that may be had in pieces: where no place is free for all of it, each piece is a
reservation of its own, and all are decided at once.

The core finds the stretches, as it does for simulations. A piece is called like the lease with its number
behind a dot: solve-17.p2. Its jobs go on from their checkpoints in the next one, for which each piece has
some time more at its ends. What is free as a whole is had as a whole. Until it begins a piece may move for
another request, but not to an earlier time, nor beyond the beginning of the next one as it was accepted, the
last one not beyond the lease's deadline. So they stay in their order, whichever of them moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outrider.core.model import LeasePiece
from outrider.core.reservations.splitting import plan_split
from outrider.core.reservations.trial import Trial
from outrider.metadata.conversion import deployment_of
from outrider.metadata.decision import PolicyRefusal
from outrider.metadata.joblines import GRACE_S
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Trouble
from outrider.service.desk.leases.together import (
    Tried,
    in_turn,
    occurrence_of,
    plans_of,
    settled,
    sum_of,
)
from outrider.service.desk.reservations.admission import Doubtful, Doubts, Judged, ReservationAdmission
from outrider.service.desk.reservations.making_way import MOVABLE
from outrider.service.desk.state.documents import name_of_piece
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.wishes import Wish
from outrider.service.requests import Reserve
from outrider.service.settings import Settings

MINUTE_S = 60
NOTE = (
    "its jobs go on from one piece to the next only with preemptible: requeue in their lines; the others end "
    "with their piece"
)


def overhead_s(settings: Settings) -> int:
    """What a piece has beside its part of the duration, at each end at which a job stops or goes on: to save
    and to read a checkpoint, to be requeued, and what is left of a minute."""
    return GRACE_S + settings.requeue_margin_s + MINUTE_S


def fault(settings: Settings) -> str:
    """Why this site has no leases in pieces; nothing if it has."""
    if not settings.moves_starts:
        return (
            "least_piece: this site's batch system binds a job to one reservation for good, so that none "
            "goes on in the next piece: leave it out"
        )
    if not settings.allows_preemptible:
        return (
            "least_piece: this site requeues no jobs (jobs.preemptible), so that none goes on: leave it out"
        )
    return ""


class PiecesAdmission:
    """Decides about such a request, on the book itself: each piece has to see those before it."""

    def __init__(self, site: Site, admission: ReservationAdmission) -> None:
        self._site = site
        self._admission = admission

    def decide(
        self, request: Reserve, wish: Wish, program: PolicyRefusal | None, doubts: Doubts
    ) -> Judged | Doubtful | Trouble:
        """Accept it, as a whole or in pieces, or refuse it; a plan changes nothing."""
        words = fault(self._site.settings)
        if words:
            return Trouble(code="invalid", message=words)
        planned = self._admission.plan(wish, program)
        rejected = planned.rejected
        if rejected is not None and rejected.refusal.cause in MOVABLE:
            pieces = self._pieces(request, wish)
            if pieces:
                judged = self._in_pieces(request, wish, program, doubts, pieces)
                if judged is not None:
                    return judged
        return planned if request.is_plan else self._admission.reserve(wish, program, doubts)

    def _pieces(self, request: Reserve, wish: Wish) -> tuple[LeasePiece, ...]:
        """Stretches that together have time enough; none if there are none."""
        site, book = self._site, self._site.book
        least_s, more_s = deployment_of(request.workspace).least_piece_s, overhead_s(site.settings)
        assert least_s is not None
        terms = book.terms
        book.terms = replace(terms, split_overhead_s=lambda resources: more_s, least_piece_s=least_s)
        try:
            plan = plan_split(book, replace(wish.workspace, may_yield=True), site.now_s)
        finally:
            book.terms = terms
        return () if plan is None else plan.pieces

    def _in_pieces(
        self,
        request: Reserve,
        wish: Wish,
        program: PolicyRefusal | None,
        doubts: Doubts,
        pieces: Sequence[LeasePiece],
    ) -> Judged | Doubtful | None:
        """None if one of them cannot be had, as it would be by the policies."""
        trial = Trial(self._site.book, self._site.now_s)
        ends = [*(piece.start_s for piece in pieces[1:]), wish.workspace.finish_by_s]
        wishes = [
            _wish_of(wish, number, piece, until_s, len(pieces))
            for number, (piece, until_s) in enumerate(zip(pieces, ends, strict=True), 1)
        ]
        tried = in_turn(self._admission, trial, wishes, program)
        if len(plans_of(tried)) < len(pieces):
            trial.undo()
            return None
        return settled(self._admission, trial, request, wish, tried, self._decision(wish, tried), doubts)

    def _decision(self, wish: Wish, tried: Sequence[Tried]) -> Decision:
        """The answer to all: as to the first, with all of them."""
        return replace(
            self._admission.decision(tried[0].wish, tried[0].answer),
            name=wish.workspace.name,
            price=sum_of(tried),
            notes=(*wish.notes, NOTE),
            occurrences=tuple(occurrence_of(self._site, each) for each in tried),
        )


def _wish_of(wish: Wish, number: int, piece: LeasePiece, until_s: int | None, count: int) -> Wish:
    document = replace(wish.document, series=wish.workspace.name, occurrence=number, pieces=count)
    workspace = replace(
        wish.workspace,
        name=name_of_piece(wish.workspace.name, number),
        start_s=piece.start_s,
        duration_s=piece.end_s - piece.start_s,
        finish_by_s=until_s,
    )
    return replace(wish, workspace=workspace, document=document)
