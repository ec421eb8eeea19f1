"""What is answered about switches of the whole site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Step = Literal["migrate", "suspend", "resume", "run"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchStep:
    """One action: of which job, from where to where, in which stage. `pause_s`: at most about so long. A job
    with several machines has the nodes of all, with commas: what stays has the same one on both sides."""

    stage: int
    kind: Step
    job: str
    source: str
    target: str
    pause_s: int
    state: Literal["waits", "runs", "done", "left to the batch system"]
    asked_s: int | None = None
    done_s: int | None = None
    """When it was seen to be done: what is moved is on its new node, and waits for its start there."""
    back_s: int | None = None
    """When a machine that was moved or resumed was seen to run again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchUse:
    """What a job's machine has of processors, in hundredths: what it has asked for, what it used until so
    long ago, and what it counts as: of several machines the one that uses the most. `words`: why it counts as
    what it has asked for, if it does."""

    job: str
    node: str
    asked: int
    used: int | None
    age_s: int | None
    counted: int
    words: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchView:
    """A switch that is planned, runs, or was the last one. Costs are MiB of memory that are moved."""

    state: Literal["none", "planned", "runs", "done", "failed"]
    number: int
    by: str
    begun_s: int | None
    ended_s: int | None
    cost_mib: int
    bound_mib: int
    steps: tuple[SwitchStep, ...]
    asleep: tuple[str, ...]
    """Jobs that it has suspended because there is no room for them; they go on with the next one."""
    kept: tuple[str, ...]
    """Jobs whose machines stay where they are, each with the reason."""
    explanation: tuple[str, ...]
    words: str
    is_consolidating: bool
    """Whether the service begins switches by itself."""
    actions_left: int
    """Of those that it may begin by itself within an hour."""
    is_by_use: bool = False
    """Of a plan: whether machines count as what they use of processors."""
    uses: tuple[SwitchUse, ...] = ()
    """Then: of those that run."""
