"""What is answered about what was decided, and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionLine:
    """Something that was decided, or that happened."""

    number: int
    at_s: int
    kind: str
    name: str
    outcome: str
    reason: str
    user: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class DecisionList:
    decisions: tuple[DecisionLine, ...]
    last: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """Why it is as it is: sentences, and the decisions that were written down."""

    name: str
    sentences: tuple[str, ...]
    decisions: tuple[DecisionLine, ...]
