"""Switches planned, decided, and carried out stage by stage, as looks at the batch system show how far it is.

What a stage asks of the batch system and that it was asked is one transaction, and so is the decision
before it: whoever comes after a service that was killed goes on. A step that nothing is under way for and
that is not done after some looks has failed: then a new plan is made from what is, some times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from outrider.core.switch.explanation import explain
from outrider.core.switch.model import NOWHERE, ActionKind
from outrider.core.switch.planner import NoSwitch, Switch, plan_switch
from outrider.rms.base import JobState, NodeState, Sight
from outrider.service.answers import Trouble
from outrider.service.answers.switch import SwitchStep, SwitchView
from outrider.service.desk.batch.job_effects import machine_of, resume_effect, suspend_effect
from outrider.service.desk.jobs.interruption.machine_moves import expected_pause_s, order_move
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.jobs.manager import JobManager
from outrider.service.desk.nodes.preemptible_jobs import machine_memory_bytes, saving_s
from outrider.service.desk.state.site import Site
from outrider.service.desk.switch.decision import (
    DONE,
    FAILED,
    RUNS,
    DecidedStep,
    SwitchDecision,
    read_switch,
    write_switch,
)
from outrider.service.desk.switch.fleet import ON_NODES, Fleet, NoFleet, fleet_of
from outrider.service.meter import Log
from outrider.service.requests import Caller, DecideSwitch

SETTING = "switch"
MOST_ATTEMPTS = 3
MOST_LOOKS = 3
"""So many looks may show a step undone that nothing is under way for: a look may be older than the step."""
CALM_LOOKS = 2
"""So many looks in a row have to show that a switch would help, before the service begins one by itself."""
CALM_FACTOR = 10
"""It rests for so many of its intervals after one."""
OF_THE_SERVICE = "outrider"


class SiteSwitches:
    """The one switch that goes on, or the last one."""

    def __init__(self, site: Site, jobs: JobManager, log: Log) -> None:
        self._site = site
        self._jobs = jobs
        self._entries: Mapping[str, JobEntry] = jobs.entries
        self._log = log
        self._sight: Sight | None = None
        self._decision = SwitchDecision()
        self._looked_s = 0
        self._helped: tuple[str, ...] = ()
        """Jobs that a switch would have helped at the last look, and at how many looks in a row."""
        self._calm = 0

    def take_up(self) -> None:
        """What an earlier service has decided."""
        self._decision = read_switch(self._site.store.setting(SETTING))

    def seen(self, sight: Sight) -> None:
        """A look at the batch system: go on with what goes on, or see whether something would help."""
        self._sight = sight
        if self._jobs.is_reading:
            return
        if self._decision.state == RUNS:
            self._go_on(sight)
        elif self._site.settings.consolidates:
            self._consolidate(sight)

    def show(self) -> SwitchView:
        return self._view(self._decision, (), ())

    def decide(self, request: DecideSwitch, caller: Caller) -> SwitchView | Trouble:
        """Plan a switch, and begin it unless it is only planned."""
        sight = self._sight
        if sight is None or self._jobs.is_reading:
            return Trouble(code="unavailable", message="what there is has not been looked at yet: ask again")
        if self._decision.state == RUNS and not request.is_plan:
            trouble = f"switch {self._decision.number} by {self._decision.by} goes on: wait until it is done"
            return Trouble(code="conflict", message=trouble)
        states = {node.name: node.state for node in sight.nodes}
        for name in request.drained if not request.is_plan else ():
            if states.get(name) is NodeState.UP:
                trouble = f"node {name} takes jobs: drain it in the batch system first, or new ones come"
                return Trouble(code="conflict", message=trouble)
        fences = dict(request.fences)
        try:
            fleet, switch = self._planned(sight, request.drained, fences)
        except (NoFleet, NoSwitch) as error:
            return Trouble(code="conflict", message=f"no switch: {error}")
        decision = self._decided(fleet, switch, request.drained, fences, caller.user)
        words: tuple[str, ...] = ()
        if request.explain:
            number = fleet.number(request.explain)
            if number is None:
                text = f"job {request.explain} has no machine that can be saved"
                if request.explain in fleet.kept:
                    text = f"job {request.explain} is not moved: {fleet.kept[request.explain]}"
                return Trouble(code="not-found", message=text)
            words = self._explained(fleet, switch, request.explain, number)
        if not request.is_plan:
            self._begin(decision)
            decision = self._decision
        return self._view(decision, words, self._kept_words(fleet), is_plan=request.is_plan)

    def _planned(
        self, sight: Sight, drained: Sequence[str], fences: Mapping[str, str], *, is_automatic: bool = False
    ) -> tuple[Fleet, Switch]:
        fleet = fleet_of(
            self._site,
            sight,
            self._entries,
            drained=drained,
            fences=fences,
            asleep=self._decision.asleep,
            resting=self._decision.pruned(self._site.now_s).moved if is_automatic else (),
        )
        return fleet, plan_switch(fleet.situation, fleet.queue, fleet.rules)

    def _decided(
        self, fleet: Fleet, switch: Switch, drained: Sequence[str], fences: dict[str, str], by: str
    ) -> SwitchDecision:
        last = self._decision.pruned(self._site.now_s)
        steps = tuple(self._steps(fleet, switch))
        suspended = [each.job for each in steps if each.kind == "suspend"]
        resumed = {each.job for each in steps if each.kind == "resume"}
        asleep = [job for job in (*last.asleep, *suspended) if job not in resumed and job in self._entries]
        return SwitchDecision(
            number=last.number + 1,
            state=RUNS,
            by=by,
            is_automatic=by == OF_THE_SERVICE,
            begun_s=self._site.now_s,
            cost_mib=switch.cost,
            bound_mib=switch.bound,
            steps=steps,
            drained=tuple(drained),
            fences=fences,
            asleep=tuple(dict.fromkeys(asleep)),
            moved=last.moved,
            acted=last.acted,
        )

    def _steps(self, fleet: Fleet, switch: Switch) -> Iterable[DecidedStep]:
        """The plan's actions as what is asked for each job; the batch system itself starts what waits."""
        nodes = [node.name for node in fleet.situation.nodes]
        for stage, actions in enumerate(switch.plan.stages, 1):
            for action in actions:
                key = fleet.keys[fleet.situation.machines[action.machine].job]
                is_home = action.kind is ActionKind.RESUME and action.is_local
                job = self._entries[key].job
                if (
                    is_home
                    and job.state is not JobState.SUSPENDED
                    and key not in self._suspended_in(switch, fleet)
                ):
                    # It waits to go on where it is: the batch system lets it.
                    continue
                memory_bytes = machine_memory_bytes(job)
                pause_s = 0
                if action.kind is ActionKind.MIGRATE:
                    pause_s = expected_pause_s(self._site, job, is_running=True)
                elif action.kind is ActionKind.RESUME and not is_home:
                    pause_s = expected_pause_s(self._site, job, is_running=False)
                elif action.kind is not ActionKind.RUN:
                    pause_s = saving_s(self._site.settings, memory_bytes)
                yield DecidedStep(
                    stage=stage,
                    kind=action.kind.value,
                    job=key,
                    source="" if action.source == NOWHERE else nodes[action.source],
                    target="" if action.target == NOWHERE else nodes[action.target],
                    pause_s=pause_s,
                )

    @staticmethod
    def _suspended_in(switch: Switch, fleet: Fleet) -> set[str]:
        return {
            fleet.keys[fleet.situation.machines[action.machine].job]
            for action in switch.plan.actions
            if action.kind is ActionKind.SUSPEND
        }

    def _begin(self, decision: SwitchDecision) -> None:
        """The decision and the first stage's steps are one transaction."""
        moves = [each for each in decision.steps if each.kind != "run"]
        self._log.info("switch begins", number=decision.number, by=decision.by, steps=len(moves))
        words = f"{len(moves)} steps, {decision.cost_mib} MiB, by {decision.by}"
        self._site.note("switch", f"switch-{decision.number}", "begun", words)
        self._keep(decision)
        if self._sight is not None:
            self._go_on(self._sight)

    def _keep(self, decision: SwitchDecision) -> None:
        self._decision = decision
        text = write_switch(decision)
        self._site.write(lambda promise: promise.set(SETTING, text))

    def _go_on(self, sight: Sight) -> None:
        before = self._decision
        steps = [self._looked_at(each, sight) for each in before.steps]
        failed = next((each for each in steps if each.looks > MOST_LOOKS), None)
        words = f"job {failed.job}: {failed.kind} was asked for, and is not so" if failed else ""
        stage = self._stage_of(steps)
        if stage is not None and not words:
            steps, words = self._ordered(steps, stage)
        decision = replace(before, steps=tuple(steps))
        begun = [
            new for old, new in zip(before.steps, steps, strict=True) if old.state == "waits" != new.state
        ]
        if begun:
            now_s = self._site.now_s
            moved = {each.job: now_s for each in begun if each.kind != "run"}
            acted = (now_s,) * len(moved) if decision.is_automatic else ()
            decision = replace(
                decision, moved={**decision.moved, **moved}, acted=(*decision.acted, *acted)
            ).pruned(now_s)
        if words:
            self._fail(decision, words)
        elif stage is None:
            self._end(decision, DONE, "")
        elif decision != before:
            self._keep(decision)

    def _stage_of(self, steps: Sequence[DecidedStep]) -> int | None:
        """The first stage that is not done; None if all are."""
        return min(
            (each.stage for each in steps if each.state != "done" and each.kind != "run"), default=None
        )

    def _ordered(self, steps: list[DecidedStep], stage: int) -> tuple[list[DecidedStep], str]:
        """What waits in this stage is asked for; in words what cannot be."""
        found = []
        for each in steps:
            if each.stage == stage and each.state == "waits" and each.kind != "run":
                if words := self._order(each):
                    return steps, f"job {each.job}: {words}"
                found.append(replace(each, state="runs"))
            else:
                found.append(each)
        return found, ""

    def _order(self, step: DecidedStep) -> str:
        """Ask for it. Why that cannot be; nothing if it is asked for."""
        site, entry = self._site, self._entries.get(step.job)
        if entry is None:
            return ""
        job, who = entry.job, f"switch {self._decision.number}"
        if step.kind == "migrate" or (step.kind == "resume" and step.source != step.target):
            done = order_move(site, entry, self._entries.values(), step.target, who)
            if isinstance(done, Trouble):
                return done.message
            if step.kind == "resume" and job.state is JobState.SUSPENDED:
                site.todo([resume_effect(job.key, site.now_s)])
        elif step.kind == "suspend":
            if job.state is not JobState.RUNNING or job.start_s is None:
                return f"it is {job.state.value}, and was to be suspended"
            reason = f"outrider: suspended by {who}; it goes on when there is room"
            site.todo([suspend_effect(job.key, job.start_s, reason, site.now_s)])
            entry.suspended_run_s = job.start_s
            site.note("machine", f"job {job.key}", "suspended", f"by {who}", uid=job.uid)
        else:
            entry.suspended_run_s = None
            site.todo([resume_effect(job.key, site.now_s)])
            site.note("machine", f"job {job.key}", "resumed", f"by {who}", uid=job.uid)
        return ""

    def _looked_at(self, step: DecidedStep, sight: Sight) -> DecidedStep:
        """Whether a step that was asked for is done."""
        if step.state != "runs":
            return step
        job = next((each for each in sight.jobs if each.key == step.job), None)
        if job is None:
            return replace(step, state="done")
        if self._site.store.waiting_effects(machine_of(step.job), most=1):
            return step
        if step.kind == "suspend":
            is_done = job.state is JobState.SUSPENDED
        elif step.kind == "resume" and step.source == step.target:
            is_done = job.state is not JobState.SUSPENDED
        else:
            at = job.nodes if job.state in ON_NODES else job.saved_on
            is_done = at == (step.target,) and job.state is not JobState.SUSPENDED
        return replace(step, state="done") if is_done else replace(step, looks=step.looks + 1)

    def _fail(self, decision: SwitchDecision, words: str) -> None:
        """A new plan from what is, unless there were some already."""
        self._log.warning("switch fails", number=decision.number, words=words)
        # What was suspended to come back in a later stage is not forgotten.
        stopped = [each.job for each in decision.steps if each.kind == "suspend" and each.state != "waits"]
        back = {each.job for each in decision.steps if each.kind == "resume" and each.state != "waits"}
        asleep = dict.fromkeys((*decision.asleep, *(job for job in stopped if job not in back)))
        self._end(replace(decision, asleep=tuple(asleep)), FAILED, words)
        if decision.attempts >= MOST_ATTEMPTS or self._sight is None:
            return
        try:
            fences = {job: node for job, node in decision.fences.items() if job in self._entries}
            fleet, switch = self._planned(self._sight, decision.drained, fences)
        except (NoFleet, NoSwitch) as error:
            self._keep(replace(self._decision, words=f"{words}; no other plan: {error}"))
            return
        anew = self._decided(fleet, switch, decision.drained, fences, decision.by)
        # It is begun at the next look, which shows what has become of what was asked for.
        self._keep(replace(anew, attempts=decision.attempts + 1, words=f"planned anew: {words}"))

    def _end(self, decision: SwitchDecision, state: str, words: str) -> None:
        self._keep(replace(decision, state=state, ended_s=self._site.now_s, words=words or decision.words))
        self._site.note("switch", f"switch-{decision.number}", state, words or "all steps are done")
        self._log.info("switch ends", number=decision.number, state=state)

    def _consolidate(self, sight: Sight) -> None:
        """Begin a switch if one lets something run that waits, or relieves a node, and stays useful."""
        settings, now_s, last = self._site.settings, self._site.now_s, self._decision
        if now_s - self._looked_s < settings.consolidate_every_s:
            return
        self._looked_s = now_s
        if last.ended_s is not None and now_s - last.ended_s < CALM_FACTOR * settings.consolidate_every_s:
            return
        try:
            fleet, switch = self._planned(sight, (), {}, is_automatic=True)
        except (NoFleet, NoSwitch):
            self._helped, self._calm = (), 0
            return
        decision = self._decided(fleet, switch, (), {}, OF_THE_SERVICE)
        moves = [each for each in decision.steps if each.kind != "run"]
        helped = tuple(each.job for each in decision.steps if each.kind in ("run", "resume"))
        is_relief = any(min(free) < 0 for free in fleet.situation.free)
        if not moves or not (helped or is_relief):
            self._helped, self._calm = (), 0
            return
        self._calm = self._calm + 1 if helped == self._helped else 1
        self._helped = helped
        if self._calm >= CALM_LOOKS and len(moves) <= last.left(settings.consolidate_actions, now_s):
            self._helped, self._calm = (), 0
            self._begin(decision)

    def _explained(self, fleet: Fleet, switch: Switch, job: str, number: int) -> tuple[str, ...]:
        words = explain(fleet.situation, switch, fleet.rules, number, fleet.queue)
        if job not in fleet.kept:
            return words
        return (*words, f"it is not moved: {fleet.kept[job]}")

    def _kept_words(self, fleet: Fleet) -> tuple[str, ...]:
        return tuple(f"job {job}: {words}" for job, words in sorted(fleet.kept.items()))

    def _view(
        self,
        decision: SwitchDecision,
        words: tuple[str, ...],
        kept: tuple[str, ...],
        *,
        is_plan: bool = False,
    ) -> SwitchView:
        settings = self._site.settings
        return SwitchView(
            state="planned" if is_plan else decision.state or "none",  # type: ignore[arg-type]
            number=decision.number,
            by=decision.by,
            begun_s=None if is_plan or not decision.number else decision.begun_s,
            ended_s=decision.ended_s,
            cost_mib=decision.cost_mib,
            bound_mib=decision.bound_mib,
            steps=tuple(
                SwitchStep(
                    stage=each.stage,
                    kind=each.kind,  # type: ignore[arg-type]
                    job=each.job,
                    source=each.source,
                    target=each.target,
                    pause_s=each.pause_s,
                    state="left to the batch system" if each.kind == "run" else each.state,  # type: ignore[arg-type]
                )
                for each in decision.steps
            ),
            asleep=decision.asleep,
            kept=kept,
            explanation=words,
            words=decision.words,
            is_consolidating=settings.consolidates,
            actions_left=self._decision.left(settings.consolidate_actions, self._site.now_s),
        )
