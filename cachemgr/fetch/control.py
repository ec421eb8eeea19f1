"""The terms of a running transfer: pause, resume, cancel, deadline. Any thread may pull them."""

from __future__ import annotations


class Control:
    """What others want of a transfer. The engine looks at it several times a second."""

    def __init__(self, *, deadline_s: int | None = None) -> None:
        self._deadline_s = deadline_s
        self._is_paused = False
        self._cancelled: str | None = None

    @property
    def deadline_s(self) -> int | None:
        return self._deadline_s

    @property
    def is_paused(self) -> bool:
        return self._is_paused

    @property
    def cancelled(self) -> str | None:
        """Why it was cancelled, if it was."""
        return self._cancelled

    def set_deadline(self, deadline_s: int | None) -> None:
        self._deadline_s = deadline_s

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False

    def cancel(self, reason: str) -> None:
        self._cancelled = reason
