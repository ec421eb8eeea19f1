"""Faults to plan for a twin: of its answers, and of the epilogs on its nodes."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum

from outrider.rms.base import BatchSystem

CALLS = tuple(name for name in vars(BatchSystem) if not name.startswith("_") and name != "name")
"""The calls that faults can be planned for."""


class Fault(Enum):
    """What goes wrong with one call."""

    UNREACHED = "the request did not arrive: nothing was changed"
    ANSWER_LOST = "the change was made, but the answer did not arrive"
    REFUSED = "it said no"


class EpilogFault(Enum):
    """What goes wrong with one epilog on one node."""

    LOST = "it never ran"
    DOUBLED = "it ran twice"


@dataclass(frozen=True, slots=True)
class Slow:
    """The call takes so long; time passes before the change is made."""

    seconds: int

    def __post_init__(self) -> None:
        if self.seconds < 0:
            raise ValueError(f"a call cannot take {self.seconds} s")


class Faults:
    """What was planned, in order: each fault meets one call and is then used up."""

    def __init__(self) -> None:
        self._of_calls: dict[str, deque[Fault | Slow]] = {name: deque() for name in CALLS}
        self._of_epilogs: deque[EpilogFault] = deque()
        self._back_at_s = 0

    def plan(self, call: str, *faults: Fault | Slow) -> None:
        """Lets the next calls of that name meet these faults, one each."""
        if call not in self._of_calls:
            raise ValueError(f"there is no call {call}: one of {', '.join(CALLS)}")
        self._of_calls[call].extend(faults)

    def plan_epilogs(self, *faults: EpilogFault) -> None:
        """Lets the next epilogs, each on one node, meet these faults."""
        self._of_epilogs.extend(faults)

    def be_unreachable_until(self, back_at_s: int) -> None:
        """Lets every call fail before that instant. The jobs go on."""
        self._back_at_s = back_at_s

    def of_call(self, call: str, now_s: int) -> Fault | Slow | None:
        """What this call meets; whoever asks has made the call."""
        if now_s < self._back_at_s:
            return Fault.UNREACHED
        planned = self._of_calls[call]
        return planned.popleft() if planned else None

    def epilog_runs(self) -> int:
        """How often the next epilog runs."""
        fault = self._of_epilogs.popleft() if self._of_epilogs else None
        return {None: 1, EpilogFault.LOST: 0, EpilogFault.DOUBLED: 2}[fault]
