"""One rate for all transfers that only ordinary users want, so that promised ones have the rest."""

from __future__ import annotations

from cachemgr.base.rate import RateLimit, never

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.clock import Clock


class OfUsers(RateLimit):
    """The users' rate as one transfer sees it: none from the moment on when the service wants it, too."""

    def __init__(self, shared: RateLimit, is_ordinary: Callable[[], bool], clock: Clock) -> None:
        super().__init__(None, clock)
        self._shared = shared
        self._is_ordinary = is_ordinary

    @property
    def rate_bytes_per_s(self) -> int | None:
        return self._shared.rate_bytes_per_s if self._is_ordinary() else None

    def step_bytes(self, most: int) -> int:
        return self._shared.step_bytes(most) if self._is_ordinary() else most

    def take(self, size_bytes: int, is_stopped: Callable[[], bool] = never) -> None:
        if self._is_ordinary():
            self._shared.take(size_bytes, lambda: is_stopped() or not self._is_ordinary())
