"""What can go wrong between a source and the engine, and what a transfer that failed says.

A `SourceFault` is about one source and stays inside the package; the engine goes on with
another source. What leaves the package belongs to the tree of `cachemgr.base.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cachemgr.base.errors import SourceFailed

if TYPE_CHECKING:
    from cachemgr.fetch.report import Report


class SourceFault(Exception):
    """One source failed; the message says how.

    `is_final`: asking it again is useless (no such file, not allowed, another file by now).
    `is_early`: a relay that has not begun yet, which is usual when all nodes begin at once.
    `status`: what a web server has said, if that is the fault.
    """

    def __init__(
        self,
        message: str,
        *,
        is_final: bool = False,
        is_early: bool = False,
        retry_after_s: int | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message)
        self.is_final = is_final
        self.is_early = is_early
        self.retry_after_s = retry_after_s
        self.status = status


class Unauthorized(SourceFault):
    """The server that was asked first wants to know who asks; `challenge` is its header."""

    def __init__(self, challenge: str) -> None:
        super().__init__("the server says 401: the service may not read it", is_final=True, status=401)
        self.challenge = challenge


class TransferFailed(SourceFailed):
    """No source could deliver the image; `report` says what came from where until then."""

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report


class DeadlinePassed(TransferFailed):
    """The image did not arrive by its deadline."""
