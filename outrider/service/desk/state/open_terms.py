"""What an open reservation promises: nodes and image are ready for an event, and it starts soon after it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from outrider.metadata.notation.events import CALL, EventSpec
from outrider.metadata.workspace import DeploymentSection
from outrider.service.settings import Settings

LEAST_LEAD_S = 30
"""The batch system's reservation begins at least so much later than now while its event is waited for."""
LEAST_WITHIN_S = 60
"""What is asked to start sooner than that after its event cannot be promised: whatever runs on its nodes for
less than the lead has to end, and the batch system to be told."""
LEAST_MOVE_S = 10
"""At most so often the batch system is told another start."""
SECRET_BYTES = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenTerms:
    """The event may come from `from_s` until `until_s`; the reservation starts within `within_s` of it, and
    lasts `duration_s`. `secret` signs calls, if these are among its events."""

    from_s: int
    until_s: int
    within_s: int
    duration_s: int
    begins: tuple[EventSpec, ...] = ()
    ends: tuple[EventSpec, ...] = ()
    secret: str = ""

    def lead_s(self, settings: Settings) -> int:
        """How far ahead the batch system's reservation is kept: what the batch system starts until then has
        ended, and is cleaned up after, within the time that was promised."""
        return max(LEAST_LEAD_S, self.within_s - settings.requeue_margin_s)

    def move_every_s(self, settings: Settings) -> int:
        """How often its start is moved on."""
        return max(LEAST_MOVE_S, self.lead_s(settings) // 3)


def terms_of(deployment: DeploymentSection) -> OpenTerms | None:
    """What a deployment asks for; None if it waits for no event."""
    if deployment.open_from_s is None:
        return None
    assert deployment.open_until_s is not None
    assert deployment.ready_within_s is not None
    return OpenTerms(
        from_s=deployment.open_from_s,
        until_s=deployment.open_until_s,
        within_s=deployment.ready_within_s,
        duration_s=deployment.duration_s,
        begins=deployment.begins,
        ends=deployment.ends,
    )


def with_secret(terms: OpenTerms) -> OpenTerms:
    """The same with a secret of its own, if calls are to be signed."""
    if not any(each.kind == CALL for each in (*terms.begins, *terms.ends)):
        return terms
    return replace(terms, secret=secrets.token_hex(SECRET_BYTES))


def read_terms(found: Mapping[str, Any] | None) -> OpenTerms | None:
    """As they are in the store."""
    if found is None:
        return None
    specs = {
        name: tuple(EventSpec(each["kind"], each["text"]) for each in found[name])
        for name in ("begins", "ends")
    }
    return OpenTerms(**{**found, **specs})
