"""What an administrator sets for reservations."""

from __future__ import annotations

from pydantic import Field

from outrider.metadata.validation import Section
from outrider.service.daemon.configuration.types import TimeOrNone, given


class ReservationsSection(Section):
    """What is offered in the place of a reservation that is refused."""

    offers_held_s: TimeOrNone = Field(
        60,
        alias="offers_held",
        description="how long offers are held that are made in the place of a refusal; 0: they are only told",
        json_schema_extra=given("60s"),
    )
    offered_users: int = Field(16, ge=1, le=1_000, description="to so many users offers are held at once")
