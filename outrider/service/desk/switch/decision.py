"""A switch as it is stored before its first step, and what is remembered of earlier ones."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace

from outrider.store.errors import Damaged

VERSION = 1
HOUR_S = 3600
RUNS, DONE, FAILED = "runs", "done", "failed"


@dataclass(frozen=True, kw_only=True, slots=True)
class DecidedStep:
    """One action of a job; `state` is `waits`, `runs` or `done`. `source`, `target`: of several machines the
    nodes of all, with commas, in the order of the machines."""

    stage: int
    kind: str
    job: str
    source: str
    target: str
    pause_s: int
    state: str = "waits"
    looks: int = 0
    """How often it was not done although nothing is under way for it."""
    asked_s: int = 0
    done_s: int | None = None
    """When it was seen to be done: what is moved is on its new node, and waits for its start there."""
    back_s: int | None = None
    """When a machine that was moved or resumed was seen to run again."""

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self.source.split(",")) if self.source else ()

    @property
    def targets(self) -> tuple[str, ...]:
        return tuple(self.target.split(",")) if self.target else ()

    @property
    def left(self) -> tuple[str, ...]:
        """The nodes that it has no machine on in the end."""
        return tuple(node for node in self.sources if node not in self.targets)

    @property
    def is_away(self) -> bool:
        """Whether its machine is to run and does not yet."""
        return self.kind in ("migrate", "resume") and self.back_s is None


@dataclass(frozen=True, kw_only=True, slots=True)
class SwitchDecision:
    """What the service is about to do, whatever becomes of it meanwhile. Of `moved` and `acted` what is older
    than an hour is forgotten."""

    number: int = 0
    state: str = ""
    by: str = ""
    is_automatic: bool = False
    begun_s: int = 0
    ended_s: int | None = None
    cost_mib: int = 0
    bound_mib: int = 0
    steps: tuple[DecidedStep, ...] = ()
    drained: tuple[str, ...] = ()
    fences: dict[str, str] = field(default_factory=dict)
    attempts: int = 1
    """How often it was planned: an action that fails leads to a new plan from there."""
    wants_plan: bool = False
    """Whether an action has failed, and the new plan is not there yet."""
    asleep: tuple[str, ...] = ()
    moved: dict[str, int] = field(default_factory=dict)
    acted: tuple[int, ...] = ()
    words: str = ""

    def left(self, a_hour: int, now_s: int) -> int:
        """How many actions the service may begin by itself now."""
        return max(0, a_hour - sum(at_s > now_s - HOUR_S for at_s in self.acted))

    def pruned(self, now_s: int) -> SwitchDecision:
        return replace(
            self,
            moved={job: at_s for job, at_s in self.moved.items() if at_s > now_s - HOUR_S},
            acted=tuple(at_s for at_s in self.acted if at_s > now_s - HOUR_S),
        )


def write_switch(decision: SwitchDecision) -> str:
    return json.dumps({"version": VERSION} | asdict(decision), separators=(",", ":"))


def read_switch(text: str | None) -> SwitchDecision:
    """Raises Damaged."""
    if text is None:
        return SwitchDecision()
    try:
        found = json.loads(text)
        if found.pop("version") != VERSION:
            raise ValueError("of another version")
        found["steps"] = tuple(DecidedStep(**each) for each in found["steps"])
        for name in ("drained", "asleep", "acted"):
            found[name] = tuple(found[name])
        return SwitchDecision(**found)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        words = f"{type(error).__name__} {error}"
        raise Damaged(f"store: a switch cannot be read ({words}): put a backup back") from error
