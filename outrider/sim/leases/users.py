"""Those who want a reservation: how they ask, what they do when they are refused, and how they choose.

Four models. `steadfast` asks once. `insistent` asks for later and later starts. `falling-back` hands in the
same as best effort. `choosing` weighs a reservation against best effort by what each has given lately.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from outrider.core.reservations.admission import Rejected
from outrider.sim.workload.trace import TraceSubmission
from outrider.sim.world import FinishedRun

MODELS = ("steadfast", "insistent", "falling-back", "choosing")
LATER_S = 2 * 3_600
MOST_ATTEMPTS = 5
MEMORY = 0.05
"""The weight of the newest experience."""
CURIOUS = 0.1
"""The part of choices that are made by lot, so that nobody keeps to a way that has become worse."""

Ask = Callable[[TraceSubmission], None]


@dataclass(slots=True)
class LeaseStory:
    """What became of one who wanted nodes at a time."""

    wanted_s: int
    duration_s: int
    instances: int
    run_s: int
    asked: int = 0
    """How often a reservation was asked for."""
    start_s: int | None = None
    """Of the reservation that was accepted."""
    is_best_effort: bool = False
    chose_best_effort: bool = False
    was_overbooked: bool = False
    was_broken: bool = False

    def stood_by(self, *, was_broken: bool) -> None:
        """What became of it on standby."""
        self.was_overbooked, self.was_broken = True, was_broken
        if was_broken:
            self.start_s = None


@dataclass(slots=True)
class Experience:
    """What those who came before got, newer weighing more: waiting in seconds, and refusals as a share."""

    waited_s: float = 0.0
    refused: float = 0.0
    seen_runs: int = 0

    def look(self, done: Sequence[FinishedRun]) -> None:
        """Take in the best effort that has ended since the last look."""
        for run in done[self.seen_runs :]:
            self.waited_s += MEMORY * (run.start_s - run.submit_s - self.waited_s)
        self.seen_runs = len(done)

    def answered(self, is_refused: bool) -> None:
        self.refused += MEMORY * (is_refused - self.refused)


@dataclass(slots=True)
class Lessees:
    """All who want reservations at one site, with their stories by the names of their workspaces.

    `premium_percent`: what a reservation is dearer than best effort, in parts of its duration. Who chooses
    compares that with the waiting that best effort had lately, and takes best effort if it is shorter.
    """

    model: str
    seed: str
    premium_percent: int = 50
    stories: dict[str, LeaseStory] = field(default_factory=dict)
    experience: Experience = field(default_factory=Experience)

    def __post_init__(self) -> None:
        if self.model not in MODELS:
            raise ValueError(f"users {self.model!r}: choose from {', '.join(MODELS)}")
        if self.premium_percent < 0:
            raise ValueError(f"a premium of {self.premium_percent} %: use 0 or more")

    def come(
        self,
        submission: TraceSubmission,
        done: Sequence[FinishedRun],
        refused: Sequence[tuple[TraceSubmission, Rejected]],
        ask: Ask,
        hand_in: Ask,
    ) -> None:
        """One of them comes: asks for a reservation by `ask`, or hands in best effort by `hand_in`."""
        workspace = submission.workspace
        assert workspace.start_s is not None
        story = self.stories[workspace.name] = LeaseStory(
            wanted_s=workspace.start_s,
            duration_s=workspace.duration_s,
            instances=workspace.instances,
            run_s=submission.run_s,
        )
        self.experience.look(done)
        if self.model == "choosing" and self._prefers_best_effort(submission):
            story.is_best_effort = story.chose_best_effort = True
            hand_in(as_best_effort(submission))
            return
        attempts = MOST_ATTEMPTS if self.model == "insistent" else 1
        for attempt in range(attempts):
            start_s = story.wanted_s + attempt * LATER_S
            story.asked += 1
            before = len(refused)
            ask(replace(submission, workspace=replace(workspace, start_s=start_s)))
            is_refused = len(refused) > before
            self.experience.answered(is_refused)
            if not is_refused:
                story.start_s = start_s
                return
        if self.model in ("falling-back", "choosing"):
            story.is_best_effort = True
            hand_in(as_best_effort(submission))

    def _prefers_best_effort(self, submission: TraceSubmission) -> bool:
        """Whether best effort was worth more lately: less waiting than the premium, counted with refusals."""
        random = Random(f"{self.seed}/{submission.workspace.name}")
        is_curious, by_lot = random.random() < CURIOUS, random.random() < 0.5
        if is_curious:
            return by_lot
        waits, seen = self.experience.waited_s, self.experience
        premium_s = submission.workspace.duration_s * self.premium_percent / 100
        # Who is refused has waited for nothing, and waits as best effort then.
        return waits <= premium_s + seen.refused * waits


def as_best_effort(submission: TraceSubmission) -> TraceSubmission:
    """The same without a reservation: its user comes when he wants to begin."""
    workspace = submission.workspace
    assert workspace.start_s is not None
    return replace(
        submission,
        at_s=workspace.start_s,
        workspace=replace(workspace, start_s=None),
        run_s=max(1, submission.run_s),
    )
