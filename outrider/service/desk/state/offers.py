"""Offers that are held: terms that one user was offered and may accept by name for a short time.

Nothing of an offer is in the book. It is *held* as long as it is remembered, and *protected* meanwhile: a
plan of another user after which it could not be kept any more is refused. So that nobody can keep others away
by asking in vain:

- each user has the offers of one answer, the last, and they are held to a bounded number of users;
- of `PROTECTED_ONCE_IN` times as long as offers are held, a user's are protected once: those of another
  answer within the same time end with it, later ones are held without protection, and so are those of others
  meanwhile: only one user's are protected at a time;
- a request that starts before the protection ends is not refused for it.

Offers are in memory only: after a restart none is left, and no name is given twice.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from outrider.core.alternatives import Alternative
from outrider.core.model import Workspace
from outrider.core.reservations.admission import Rejected, assess
from outrider.core.reservations.book import Book, ReservationPlan
from outrider.core.reservations.trial import Trial
from outrider.service.requests import Caller, Reserve

PROTECTED_ONCE_IN = 10
TRIED = "?"
"""What a plan is called while offers are tried beside it: no reservation is."""
TIME_TO_ACCEPT_S = 30
"""So long an offer stays at least once it is being accepted: the site's program, or nodes, may be asked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOffer:
    """What is reserved if it is accepted."""

    name: str
    request: Reserve
    workspace: Workspace
    """Under the offer's own name, since the next request may get the name that it would be booked under."""


@dataclass(slots=True)
class _Answer:
    """The offers of one refusal."""

    offers: tuple[HeldOffer, ...]
    until_s: int
    protected_until_s: int


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldNames:
    """How offers are held: their names, and until when; None if they are not."""

    names: tuple[str, ...] = ()
    until_s: int | None = None
    is_protected: bool = False


class HeldOffers:
    """The offers of all users."""

    def __init__(self, book: Book, held_s: int, most_users: int) -> None:
        self._book = book
        self._held_s = held_s
        self._most_users = most_users
        self._answers: dict[int, _Answer] = {}
        self._protected_from_s: dict[int, int] = {}

    def hold(
        self, caller: Caller, found: Sequence[tuple[Alternative, Reserve]], now_s: int, serial: int
    ) -> HeldNames:
        """Remember what a user was offered, in the place of what was offered before.

        `serial` is never the same twice, not even over a restart, and names are made of it.
        """
        self._forget(now_s)
        self._answers.pop(caller.uid, None)
        if not found or not self._held_s or len(self._answers) >= self._most_users:
            return HeldNames()
        told = hashlib.sha256(f"{caller.uid} {serial}".encode()).digest()
        stem = base64.b32encode(told)[:6].decode().lower()
        offers = tuple(
            HeldOffer(name=name, request=request, workspace=replace(alternative.workspace, name=name))
            for number, (alternative, request) in enumerate(found, 1)
            for name in (f"offer-{stem}-{number}",)
        )
        until_s = now_s + self._held_s
        protected_until_s = self._protected_until_s(caller.uid, now_s)
        self._answers[caller.uid] = _Answer(offers, until_s, protected_until_s)
        return HeldNames(
            names=tuple(each.name for each in offers),
            until_s=until_s,
            is_protected=protected_until_s >= until_s,
        )

    def find(self, name: str, caller: Caller, now_s: int) -> HeldOffer | None:
        """The offer of that name, if it is theirs and still held; it is not given up for a little while."""
        self._forget(now_s)
        answer = self._answers.get(caller.uid)
        for offer in answer.offers if answer is not None else ():
            if offer.name == name:
                assert answer is not None
                answer.until_s = max(answer.until_s, now_s + TIME_TO_ACCEPT_S)
                return offer
        return None

    def of(self, uid: int, now_s: int) -> tuple[HeldOffer, ...]:
        """What is held for a user now."""
        answer = self._answers.get(uid)
        return () if answer is None or answer.until_s <= now_s else answer.offers

    def drop(self, uid: int) -> None:
        """One of a user's offers was accepted: the others were offered instead of it."""
        self._answers.pop(uid, None)

    def protected_ends(self, uid: int, now_s: int) -> set[int]:
        """When what other users are offered, and what is protected, would begin and end."""
        return {
            at_s
            for other, answer in self._answers.items()
            if other != uid and now_s < answer.protected_until_s
            for offer in answer.offers
            if (start_s := offer.workspace.start_s) is not None
            for at_s in (start_s, start_s + offer.workspace.duration_s)
        }

    def objection(self, plan: ReservationPlan, uid: int, now_s: int) -> str:
        """Why a plan of this user is not carried out: another user was offered its place. Else nothing."""
        protected = [
            answer
            for other, answer in self._answers.items()
            if other != uid and now_s < answer.protected_until_s <= plan.start_s
        ]
        if not protected:
            return ""
        entry = self._book.entries.get(plan.workspace.name)
        if entry is not None and (entry.reservation.start_s, entry.fits) == (plan.start_s, plan.fits):
            # It is there on trial, with others moved for it: what was possible before is not known any more.
            lost = [answer for answer in protected if not all(self._kept(answer.offers, now_s))]
        else:
            lost = self._lost_to(plan, protected, now_s)
        if not lost:
            return ""
        left_s = max(answer.protected_until_s for answer in lost) - now_s
        return (
            f"its place is offered to another user, who has {left_s} s left to accept that: ask again then, "
            "or for another time"
        )

    def _lost_to(self, plan: ReservationPlan, protected: Sequence[_Answer], now_s: int) -> list[_Answer]:
        """Those that are possible now, and would not be with a plan."""
        possible = [answer for answer in protected if all(self._kept(answer.offers, now_s))]
        if not possible:
            return []
        trial = Trial(self._book, now_s)
        # A reservation that is changed is in the book under its name.
        trial.place(replace(plan, workspace=replace(plan.workspace, name=TRIED)))
        lost = [answer for answer in possible if not all(self._kept(answer.offers, now_s))]
        trial.undo()
        return lost

    def _kept(self, offers: Iterable[HeldOffer], now_s: int) -> Iterable[bool]:
        """Whether each could be accepted as the book is now."""
        for offer in offers:
            answer = assess(self._book, offer.workspace, now_s, tells_earliest=False)
            yield not isinstance(answer, Rejected)

    def _protected_until_s(self, uid: int, now_s: int) -> int:
        """Until when the offers that a user gets now are protected; an instant that is over if not at all."""
        if any(now_s < each.protected_until_s for each in self._answers.values()):
            # Two that are possible one after the other may not be in the other order.
            return now_s
        from_s = self._protected_from_s.get(uid)
        if from_s is None or now_s >= from_s + PROTECTED_ONCE_IN * self._held_s:
            self._protected_from_s[uid] = from_s = now_s
        return from_s + self._held_s

    def _forget(self, now_s: int) -> None:
        self._answers = {uid: each for uid, each in self._answers.items() if each.until_s > now_s}
        last_s = now_s - PROTECTED_ONCE_IN * self._held_s
        self._protected_from_s = {
            uid: from_s for uid, from_s in self._protected_from_s.items() if from_s > last_s
        }
