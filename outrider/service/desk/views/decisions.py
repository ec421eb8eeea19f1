"""Decisions of the store, as they are shown."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

from outrider.service.answers.records import DecisionLine
from outrider.store.records import RecordedDecision


def decision_lines(found: Iterable[RecordedDecision]) -> tuple[DecisionLine, ...]:
    """The oldest first."""
    return tuple(
        DecisionLine(
            number=each.number,
            at_s=each.at_s,
            kind=each.kind,
            name=each.name,
            outcome=each.outcome,
            reason=each.reason,
        )
        for each in sorted(found, key=attrgetter("number"))
    )
