"""Whether the service lives, and whether it promises: what load balancers, systemd and people ask."""

from __future__ import annotations

from outrider.service.answers.site import Status
from outrider.service.front import Health

OLDEST_BEAT_S = 30.0
"""The longest decision takes less; a loop that has not turned for so long hangs."""


def judge(*, beat_age_s: float, is_running: bool, status: Status | None) -> Health:
    """How the service is, from its loop's last turn and the desk's own account."""
    if not is_running:
        return Health(is_alive=False, is_ready=False, troubles=("the service is stopping",))
    if beat_age_s > OLDEST_BEAT_S:
        words = f"the desk has been busy with one thing for {beat_age_s:.0f} s; see the log"
        return Health(is_alive=False, is_ready=False, troubles=(words,))
    if status is None:
        return Health(is_alive=True, is_ready=False, troubles=("the service has only just started",))
    return Health(is_alive=True, is_ready=status.is_promising, troubles=status.troubles)
