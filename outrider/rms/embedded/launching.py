"""What runs a job's command: values and two Protocols. `processes` runs it on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from outrider.rms.base import Submission


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """What is to be run, as whom, and what it is told of itself."""

    job: str
    uid: int
    argv: tuple[str, ...]
    variables: Mapping[str, str]
    folder: str = ""
    """Where it begins; empty: in its user's home."""


class Handle(Protocol):
    """A command that was launched. It does nothing before `begin`, and never does if nobody calls it."""

    @property
    def identity(self) -> str:
        """By which a later service finds it again."""

    def begin(self) -> None: ...

    def is_over(self) -> bool:
        """Whether it has ended, by itself or by a signal."""

    def ask_to_end(self) -> None:
        """Tell it that its time is over; `kill` follows."""

    def kill(self) -> None:
        """End it with all that it has started; it is over afterwards."""

    def signal(self, name: str) -> None:
        """Send a signal (`USR1`) to the command's own process."""

    def stop(self) -> None:
        """Let it stand still."""

    def go_on(self) -> None:
        """Let it go on after a `stop`."""

    def leave(self) -> None:
        """Let it run without this service."""


class Launcher(Protocol):
    def refusal(self, submission: Submission) -> str | None:
        """Why such a job can never be run here; None if it can."""

    def launch(self, command: Command) -> Handle:
        """Raises OSError if there cannot be another process now."""

    def adopt(self, identity: str) -> Handle | None:
        """What an earlier service launched; None if it is over."""
