"""What an administrator sets for reservations."""

from __future__ import annotations

from pydantic import Field

from outrider.metadata.validation import Section
from outrider.service.daemon.configuration.types import TimeOrNone, given


class ReservationsSection(Section):
    """Reservations that recur, and what is offered in the place of one that is refused."""

    offers_held_s: TimeOrNone = Field(
        60,
        alias="offers_held",
        description="how long offers are held that are made in the place of a refusal; 0: they are only told",
        json_schema_extra=given("60s"),
    )
    occurrences: int = Field(
        128, ge=1, le=1_000, description="how often one reservation may recur: they are decided about at once"
    )
    offered_users: int = Field(
        16, ge=1, le=1_000, description="the most users for whom offers are held at once"
    )
