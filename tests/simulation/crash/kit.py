"""The crash kit: every scenario, a fault at each of its steps, a recovery, and a look.

After the recovery the scenario runs again to its end, and then the power is cut with nothing
kept that was not synced: what was acknowledged on the way must be there all the same. The
recovery itself is interrupted at each of its steps, too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from cachemgr.base.errors import CacheError
from tests.amount import LONG
from tests.simulation.crash.memorynodes import STRIKES, Crash, Fault
from tests.simulation.crash.scenarios import Scenario
from tests.simulation.crash.world import World

# What becomes of names and contents that were not synced, and of the index, in a power cut.
POWER_CUTS = (
    ("none", "old", 0, "kept"),
    ("all", "zeros", 0, "kept"),
    ("all", "torn", 1, "garbage"),
    ("prefix", "torn", 2, "lost"),
    ("prefix", "new", 3, "kept"),
    ("prefix", "zeros", 4, "older"),
)
Trace = list[tuple[str, str, str]]
PROCESS_CRASHES = ("kept", "older", "lost", "garbage")
RECOVERED, ACTED = "after the recovery", "after acting again"
POWER_CUT, CHECKED = "after acting again and a power cut", "after a check that mends"
STAGES = (RECOVERED, ACTED, POWER_CUT, CHECKED)
REFUSALS = ("ENOSPC", "EIO", "EROFS")
THOROUGHNESS = int(os.environ.get("OUTRIDER_CRASH_THOROUGHNESS", bool(os.environ.get(LONG))))
"""0: a third of what 1 tries: each step's end and loss of power, and some refusals. More: all there is."""


@dataclass(frozen=True)
class Case:
    """One fault at one step, and what was left."""

    kind: str
    at: int
    aftermath: tuple[str, str, int, str] | tuple[str] = ("kept",)
    is_lasting: bool = False


@dataclass(frozen=True)
class Violation:
    """A promise broken, or something left behind."""

    scenario: str
    case: Case
    step: str
    text: str

    @property
    def accident(self) -> str:
        """What brought it to light: a crash of the process, a power cut, or a refusal."""
        if self.text.startswith(POWER_CUT) or self.case.kind.startswith("power"):
            return "power"
        return "crash" if self.case.kind.startswith("crash") else "refusal"


class Kit:
    """Runs cases and counts them."""

    def __init__(self, *, thoroughness: int = THOROUGHNESS) -> None:
        self.thoroughness = thoroughness
        self.cases = 0
        self.violations: list[Violation] = []

    def run(self, scenario: Scenario, kinds: Sequence[str] = ("crash", "power", *REFUSALS)) -> None:
        """Every case of these kinds of faults in one scenario."""
        start = World()
        scenario.prepare(start)
        start.forget_process()
        trace = self._trace(scenario, start)
        for kind in kinds:
            for case in self._cases(kind, trace):
                self._run(scenario, start, case)

    def run_twice(self, scenario: Scenario) -> None:
        """A crash or power cut at each step, then another one at steps of the recovery."""
        start = World()
        scenario.prepare(start)
        start.forget_process()
        trace = self._trace(scenario, start)
        first = [*self._cases("crash", trace), *self._cases("power", trace)]
        first = [case for case in first if case.aftermath in (("kept",), POWER_CUTS[0], POWER_CUTS[4])]
        for number, case in enumerate(first):
            if self.thoroughness > 1 or number % (3 if self.thoroughness else 6) == 0:
                left = self._interrupted(scenario, start, case)
                self._interrupt_recovery(scenario, left, case, number)

    # -- one case --------------------------------------------------------------------------

    def _run(self, scenario: Scenario, start: World, case: Case) -> None:
        self.cases += 1
        world = self._interrupted(scenario, start, case)
        self._settle(scenario, world, case)

    def _interrupted(self, scenario: Scenario, start: World, case: Case) -> World:
        world = start.copy()
        trace: Trace = []
        world.disk.trace = trace
        world.disk.arm(Fault("crash" if case.kind == "power" else case.kind, case.at, case.is_lasting))
        try:
            scenario.act(world)
        except Crash:
            pass
        except CacheError:
            if case.kind in ("crash", "power"):
                raise
        except OSError as error:
            self._report(scenario, case, trace, f"the caller gets an unexplained {error!r}")
        world.disk.arm(None)
        self._last_step = trace[-1] if trace else ("", "", "")
        world.disk.trace = None
        if case.kind == "crash":
            world.after_crash(*case.aftermath[:1])
        elif case.kind == "power" and len(case.aftermath) == 4:
            world.after_power_loss(*case.aftermath)
        return world

    def _settle(self, scenario: Scenario, world: World, case: Case) -> None:
        """Recover and look; act again and look; cut the power and look."""
        stages = STAGES if case.at % 3 == 0 or self.thoroughness > 1 else STAGES[:3]
        for stage in stages:
            found: list[str] = []
            try:
                if stage == ACTED:
                    scenario.act(world)
                elif stage == POWER_CUT:
                    world.after_power_loss("none", "old")
                elif stage == CHECKED:
                    world.check_and_fix()
                world.recover()
                if not (scenario.is_damaged and stage == RECOVERED):
                    found = world.faults_found(is_checked=stage in (RECOVERED, CHECKED))
            except (CacheError, OSError, AssertionError) as error:
                found = [f"{type(error).__name__}: {error}"]
            for text in found:
                self._report(scenario, case, [self._last_step], f"{stage}: {text}")
            if found:
                return

    def _interrupt_recovery(self, scenario: Scenario, left: World, case: Case, number: int) -> None:
        steps = self._steps_of_recovery(left)
        stride = max(1, 8 // max(1, self.thoroughness))
        for at in range(number % stride, steps + 1, stride):
            world = left.copy()
            world.disk.arm(Fault("crash", at))
            with suppress(Crash):
                world.recover()
            if case.kind == "crash":
                world.after_crash()
            else:
                world.after_power_loss(*POWER_CUTS[at % len(POWER_CUTS)])
            self.cases += 1
            self._settle(scenario, world, Case(f"{case.kind} twice", case.at, case.aftermath))

    # -- which cases -----------------------------------------------------------------------

    def _cases(self, kind: str, trace: Trace) -> Iterator[Case]:
        strikes = STRIKES["crash" if kind == "power" else kind]
        steps = sum(effect in strikes for _, _, effect in trace)
        # Every second or third step is refused, of those that die and lose their power.
        stride = {"ENOSPC": 2, "EIO": 3, "EROFS": 2}.get(kind, 1) if self.thoroughness < 2 else 1
        stride *= 1 if self.thoroughness or kind == "power" else 2
        for at in range(len(trace) % stride, steps, stride):
            turn = at // stride
            if kind == "power":
                yield from (Case(kind, at, cut) for cut in self._power_cuts(at))
            elif kind == "crash":
                yield Case(kind, at, (PROCESS_CRASHES[turn % 4],))
                if turn % 4 or self.thoroughness > 1:
                    yield Case(kind, at)
            elif kind == "EIO":
                yield Case(kind, at)
            else:
                yield Case(kind, at, is_lasting=kind == "EROFS" or turn % 2 == 0)
                if self.thoroughness > 1:
                    yield Case(kind, at, is_lasting=kind != "EROFS" and turn % 2 == 1)

    def _power_cuts(self, at: int) -> Iterator[tuple[str, str, int, str]]:
        """The two extremes always; the others in turn, or all of them with other seeds. Or one alone."""
        if self.thoroughness or at % 3 == 0:
            yield POWER_CUTS[at % 2 if not self.thoroughness else 0]
        if self.thoroughness > 1 or (self.thoroughness and at % 2):
            yield POWER_CUTS[1]
        if self.thoroughness == 1 or (not self.thoroughness and at % 3):
            names, contents, seed, index = POWER_CUTS[2 + at % 4]
            yield names, contents, seed + at, index
        if self.thoroughness < 2:
            return
        for names, contents, seed, index in POWER_CUTS[2:]:
            for more in range(self.thoroughness):
                yield names, contents, seed + at + 1000 * more, index

    def _trace(self, scenario: Scenario, start: World) -> Trace:
        world = start.copy()
        trace: Trace = []
        world.disk.trace = trace
        scenario.act(world)
        world.disk.trace = None
        found = world.faults_found()
        assert found == [], f"{scenario.name} is not right even undisturbed: {found}"
        return trace

    def _steps_of_recovery(self, left: World) -> int:
        world = left.copy()
        trace: Trace = []
        world.disk.trace = trace
        world.recover()
        return sum(effect in STRIKES["crash"] for _, _, effect in trace)

    def _report(self, scenario: Scenario, case: Case, trace: Trace, text: str) -> None:
        step = " ".join(trace[-1][:2]) if trace else "before the first step"
        self.violations.append(Violation(scenario.name, case, step, text))
