"""When the batch system is looked at beside the regular looks, since somebody has said that there is
something new. Whoever says so how often costs a bounded part of the batch system's time, and of ours."""

from __future__ import annotations

SETTLE_S = 0.1
"""A submit filter is asked before there is the job: that is seen so much later."""
AGAIN_S = 1.0
"""Where it takes longer until there is the job, it is seen so much later at the latest."""
LEAST_PAUSE_S = 0.25
SHARE = 4
"""Looks that somebody asked for take a fifth of the time at most: after each nothing is looked at for so
many times as long as it took."""


class LookPace:
    """All instants are of one clock that only runs on, and are told by the caller."""

    def __init__(self) -> None:
        self._wanted_s: float | None = None
        """When is to be looked for what was said last."""
        self._again_s: float | None = None
        """When is to be looked for it once more."""
        self._due_s: float | None = None
        self._began_s: float | None = None
        """When the look that is under way began."""
        self._rest_until_s = 0.0

    def want(self, now_s: float, *, settle_s: float = SETTLE_S) -> None:
        """There is something new, or is about to be."""
        self._wanted_s, self._again_s = now_s + settle_s, now_s + AGAIN_S
        self._due_s = self._wanted_s if self._due_s is None else min(self._due_s, self._wanted_s)

    def told(self, now_s: float) -> None:
        """Whoever looks knows that it is to be done now."""
        later = [at_s for at_s in (self._wanted_s, self._again_s) if at_s is not None and at_s > now_s]
        self._due_s = min(later, default=None)

    def began(self, now_s: float) -> None:
        """A look has begun, whoever wanted it: it shows all that was there by now."""
        self._began_s = now_s
        self.told(now_s)

    def ended(self, now_s: float) -> None:
        if self._began_s is not None:
            took_s = now_s - self._began_s
            self._began_s, self._rest_until_s = None, now_s + max(LEAST_PAUSE_S, SHARE * took_s)

    def wait_s(self, now_s: float) -> float | None:
        """How long until a look is due; None if none is, or while one is under way."""
        if self._due_s is None or self._began_s is not None:
            return None
        return max(0.0, max(self._due_s, self._rest_until_s) - now_s)
