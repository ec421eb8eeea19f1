"""Switches planned, decided, and carried out stage by stage, as looks at the batch system show how far it is.

What a stage asks of the batch system and that it was asked is one transaction, and so is the decision
before it: whoever comes after a service that was killed goes on. A step that nothing is under way for and
that is not done after some looks has failed: then a new plan is made from what is, some times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from outrider.core.switch.planner import Switch
from outrider.rms.base import JobState, NodeState, RmsJob, Sight
from outrider.service.answers.reply import Replied, Trouble
from outrider.service.answers.switch import SwitchView
from outrider.service.desk.batch.job_effects import SUSPEND, machine_of, resume_effect
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.jobs.manager import JobManager
from outrider.service.desk.nodes.orders import NodeOrders
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
from outrider.service.desk.switch.fleet import Fleet, NoFleet, fleet_of
from outrider.service.desk.switch.planning import OpenPlan, OpenPlans
from outrider.service.desk.switch.steps import decided_steps, is_left, looked_at, order_step
from outrider.service.desk.switch.view import explained, kept_words, uses_of, view_of
from outrider.service.meter import Log
from outrider.service.ports import PlanMoves, Result
from outrider.service.requests import Asked, DecideSwitch

SETTING = "switch"
MOST_ATTEMPTS = 3
MOST_LOOKS = 3
"""So many looks may show a step undone that nothing is under way for: a look may be older than the step."""
CALM_LOOKS = 2
"""So many looks in a row have to show that a switch would help, before the service begins one by itself."""
CALM_FACTOR = 10
"""It rests for so many of its intervals after one."""
BACK_S = 600
"""So long a switch goes on until all that it has moved run again."""
OF_THE_SERVICE = "outrider"


class SiteSwitches:
    """The one switch that goes on, or the last one."""

    def __init__(self, site: Site, node_orders: NodeOrders, jobs: JobManager, log: Log) -> None:
        self._site = site
        self._node_orders = node_orders
        self._jobs = jobs
        self._entries: Mapping[str, JobEntry] = jobs.entries
        self._log = log
        self._sight: Sight | None = None
        self._decision = SwitchDecision()
        self._plans = OpenPlans()
        self._replies: list[Replied] = []
        self._looked_s = 0
        self._helped: tuple[str, ...] = ()
        """Jobs that a switch would have helped at the last look, and at how many looks in a row."""
        self._calm = 0

    def take_up(self) -> None:
        """What an earlier service has decided."""
        self._decision = read_switch(self._site.store.setting(SETTING))

    def calls(self) -> list[PlanMoves]:
        """Plans that are to be made elsewhere."""
        return self._plans.calls()

    def replies(self) -> list[Replied]:
        """To those whose plans have been made."""
        found, self._replies = self._replies, []
        return found

    def give_up(self) -> list[Replied]:
        return self._plans.give_up()

    def seen(self, sight: Sight) -> None:
        """A look at the batch system: go on with what goes on, or see whether something would help."""
        self._sight = sight
        if self._jobs.is_reading:
            return
        decision = self._decision
        if decision.state == RUNS and decision.wants_plan:
            self._plan_anew(sight)
        elif decision.state == RUNS:
            self._go_on(sight)
        elif self._site.settings.consolidates:
            self._consolidate(sight)

    def show(self) -> SwitchView:
        return self._view(self._decision, ())

    def _view(
        self,
        decision: SwitchDecision,
        explanation: tuple[str, ...],
        fleet: Fleet | None = None,
        *,
        is_plan: bool = False,
    ) -> SwitchView:
        settings = self._site.settings
        view = view_of(decision, explanation, () if fleet is None else kept_words(fleet), is_plan=is_plan)
        if fleet is not None:
            words = "; ".join(filter(None, (view.words, fleet.words)))
            uses = uses_of(fleet, self._site.now_s)
            view = replace(view, words=words, is_by_use=fleet.is_by_use, uses=uses)
        left = self._decision.left(settings.consolidate_actions, self._site.now_s)
        return replace(view, is_consolidating=settings.consolidates, actions_left=left)

    def decide(self, asked: Asked) -> Trouble | None:
        """Have a switch planned, and begin it then unless it is only planned. None: it is answered later."""
        request, sight = asked.request, self._sight
        assert isinstance(request, DecideSwitch)
        if sight is None or self._jobs.is_reading:
            return Trouble(code="unavailable", message="what there is has not been looked at yet: ask again")
        if trouble := self._obstacle(request, sight):
            return trouble
        if self._plans.is_full:
            return Trouble(code="busy", message="many switches are being planned already: ask again later")
        fences = dict(request.fences)
        try:
            fleet = self._fleet(sight, request.drained, fences)
        except NoFleet as error:
            return Trouble(code="conflict", message=f"no switch: {error}")
        if request.explain and not fleet.numbers(request.explain):
            text = f"job {request.explain} has no machine that can be saved"
            if request.explain in fleet.kept:
                text = f"job {request.explain} is not moved: {fleet.kept[request.explain]}"
            return Trouble(code="not-found", message=text)
        self._plans.want(
            OpenPlan(fleet=fleet, drained=request.drained, fences=fences, by=asked.caller.user, asked=asked)
        )
        return None

    def _obstacle(self, request: DecideSwitch, sight: Sight) -> Trouble | None:
        """Why no switch begins now."""
        if request.is_plan:
            return None
        if self._decision.state == RUNS:
            trouble = f"switch {self._decision.number} by {self._decision.by} goes on: wait until it is done"
            return Trouble(code="conflict", message=trouble)
        states = {node.name: node.state for node in sight.nodes}
        for name in request.drained:
            if states.get(name) is NodeState.UP:
                trouble = f"node {name} takes jobs: drain it in the batch system first, or new ones come"
                return Trouble(code="conflict", message=trouble)
        return None

    def heard(self, call: PlanMoves, result: Result) -> None:
        """A plan has been made, or there is none."""
        plan = self._plans.take(call)
        if plan is None:
            return
        switch = result if isinstance(result, Switch) else None
        if (bearing := self._bearing(plan, switch)) is not None:
            self._plans.want(bearing)
            return
        words = "" if switch is not None else str(result)
        if plan.asked is not None:
            answer = self._answer(plan, plan.asked, switch, words)
            self._replies.append(Replied(ticket=plan.asked.ticket, answer=answer))
        elif plan.is_anew:
            self._planned_anew(plan, switch, words)
        else:
            self._would_help(plan, switch)

    def _answer(
        self, plan: OpenPlan, asked: Asked, switch: Switch | None, words: str
    ) -> SwitchView | Trouble:
        request, fleet = asked.request, plan.fleet
        assert isinstance(request, DecideSwitch)
        if switch is None:
            return Trouble(code="conflict", message=f"no switch: {words}")
        decision = self._decided(plan, switch)
        told: tuple[str, ...] = ()
        if request.explain:
            told = explained(fleet, switch, request.explain, self._site.now_s)
        if not request.is_plan:
            sight = self._sight
            if sight is not None and (trouble := self._obstacle(request, sight)):
                return trouble
            self._begin(decision)
            decision = self._decision
        return self._view(decision, told, fleet, is_plan=request.is_plan)

    def _fleet(
        self,
        sight: Sight,
        drained: Sequence[str],
        fences: Mapping[str, str],
        *,
        is_automatic: bool = False,
        borne: Collection[str] = (),
    ) -> Fleet:
        return fleet_of(
            self._site,
            sight,
            self._entries,
            self._node_orders.statuses,
            borne=borne,
            drained=drained,
            fences=fences,
            asleep=self._decision.asleep,
            resting=self._decision.pruned(self._site.now_s).moved if is_automatic else (),
        )

    def _bearing(self, plan: OpenPlan, switch: Switch | None) -> OpenPlan | None:
        """The plan to be made instead of one that suspends jobs since processors are overloaded: these stay,
        and run slower."""
        more = plan.fleet.stopped(switch) - plan.borne if plan.fleet.is_by_use else frozenset()
        if not more or self._sight is None:
            return None
        borne, is_automatic = plan.borne | more, plan.asked is None and not plan.is_anew
        try:
            fleet = self._fleet(
                self._sight, plan.drained, plan.fences, is_automatic=is_automatic, borne=borne
            )
        except NoFleet:
            return None
        return replace(plan, fleet=fleet, borne=borne)

    def _decided(self, plan: OpenPlan, switch: Switch) -> SwitchDecision:
        last = self._decision.pruned(self._site.now_s)
        steps = tuple(decided_steps(self._site, self._entries, plan.fleet, switch))
        suspended = [each.job for each in steps if each.kind == "suspend"]
        resumed = {each.job for each in steps if each.kind == "resume"}
        asleep = [job for job in (*last.asleep, *suspended) if job not in resumed and job in self._entries]
        return SwitchDecision(
            number=last.number + 1,
            state=RUNS,
            by=plan.by,
            is_automatic=plan.by == OF_THE_SERVICE,
            begun_s=self._site.now_s,
            cost_mib=switch.cost,
            bound_mib=switch.bound,
            steps=steps,
            drained=plan.drained,
            fences=dict(plan.fences),
            asleep=tuple(dict.fromkeys(asleep)),
            moved=last.moved,
            acted=last.acted,
        )

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
        jobs = {job.key: job for job in sight.jobs}
        steps = [looked_at(self._site, each, jobs.get(each.job)) for each in before.steps]
        failed = next((each for each in steps if each.looks > MOST_LOOKS), None)
        words = f"job {failed.job}: {failed.kind} was asked for, and is not so" if failed else ""
        stage = self._stage_of(steps)
        if stage is not None and not words:
            steps, words = self._ordered(steps, stage)
        decision = self._charged(before, replace(before, steps=tuple(steps)))
        if words:
            self._fail(decision, words, jobs)
        elif stage is None and (away := self._away(steps)) is not None:
            self._end(decision, DONE, away)
        elif decision != before:
            self._keep(decision)

    def _charged(self, before: SwitchDecision, decision: SwitchDecision) -> SwitchDecision:
        """With what was begun at this look among what has moved lately."""
        begun = [
            new
            for old, new in zip(before.steps, decision.steps, strict=True)
            if old.state == "waits" != new.state and new.kind != "run"
        ]
        if not begun:
            return decision
        now_s = self._site.now_s
        moved = {each.job: now_s for each in begun}
        acted = (now_s,) * len(moved) if decision.is_automatic else ()
        return replace(decision, moved={**decision.moved, **moved}, acted=(*decision.acted, *acted)).pruned(
            now_s
        )

    def _stage_of(self, steps: Sequence[DecidedStep]) -> int | None:
        """The first stage that is not done; None if all are."""
        return min(
            (each.stage for each in steps if each.state != "done" and each.kind != "run"), default=None
        )

    def _away(self, steps: Sequence[DecidedStep]) -> str | None:
        """What does not run again although all steps are done, in words; None as long as it is waited for."""
        last = {each.job: each for each in steps if each.kind != "run"}
        away = [each for each in last.values() if each.is_away]
        if away and self._site.now_s < max(each.done_s or 0 for each in away) + BACK_S:
            return None
        return "; ".join(f"job {each.job} waits for its start on {each.target}" for each in away)

    def _ordered(self, steps: list[DecidedStep], stage: int) -> tuple[list[DecidedStep], str]:
        """What waits in this stage is asked for; in words what cannot be."""
        found, who = [], f"switch {self._decision.number}"
        for each in steps:
            if each.stage == stage and each.state == "waits" and each.kind != "run":
                if words := order_step(self._site, self._entries, each, who):
                    return steps, f"job {each.job}: {words}"
                found.append(replace(each, state="runs", asked_s=self._site.now_s))
            else:
                found.append(each)
        return found, ""

    def _fail(self, decision: SwitchDecision, words: str, jobs: Mapping[str, RmsJob]) -> None:
        """A new plan from what is, unless there were some already."""
        self._log.warning("switch fails", number=decision.number, words=words)
        # What was suspended to come back in a later stage is not forgotten, nor what did not arrive.
        steps = decision.steps
        stopped = [each.job for each in steps if each.kind == "suspend" and each.state != "waits"]
        stopped += [each.job for each in steps if is_left(self._site, each, jobs.get(each.job))]
        back = {each.job for each in steps if each.kind == "resume" and each.state != "waits"}
        asleep = dict.fromkeys((*decision.asleep, *(job for job in stopped if job not in back)))
        decision = replace(decision, asleep=tuple(asleep))
        if decision.attempts >= MOST_ATTEMPTS:
            self._end(decision, FAILED, words)
            return
        self._site.note("switch", f"switch-{decision.number}", FAILED, words)
        # It is planned by the next look, which shows what has become of what was asked for.
        self._keep(replace(decision, wants_plan=True, words=words))

    def _plan_anew(self, sight: Sight) -> None:
        decision = self._decision
        if self._plans.has_own:
            return
        fences = {job: node for job, node in decision.fences.items() if job in self._entries}
        try:
            fleet = self._fleet(sight, decision.drained, fences)
        except NoFleet as error:
            self._end(decision, FAILED, f"{decision.words}; no other plan: {error}")
            return
        self._plans.want(
            OpenPlan(fleet=fleet, drained=decision.drained, fences=fences, by=decision.by, is_anew=True)
        )

    def _planned_anew(self, plan: OpenPlan, switch: Switch | None, words: str) -> None:
        last = self._decision
        if switch is None:
            self._end(last, FAILED, f"{last.words}; no other plan: {words}")
            return
        anew = self._decided(plan, switch)
        self._keep(replace(anew, attempts=last.attempts + 1, words=f"planned anew: {last.words}"))

    def _end(self, decision: SwitchDecision, state: str, words: str) -> None:
        words, asleep = words or decision.words, decision.asleep
        if state == FAILED or not self._site.settings.consolidates:
            # No other plan is made by itself: what it has suspended goes on when there is room for it.
            asleep = tuple(job for job in asleep if not self._lets_go_on(job))
        ended = replace(
            decision, state=state, ended_s=self._site.now_s, words=words, wants_plan=False, asleep=asleep
        )
        self._keep(ended)
        self._site.note("switch", f"switch-{decision.number}", state, words or "all steps are done")
        self._log.info("switch ends", number=decision.number, state=state)

    def _lets_go_on(self, job: str) -> bool:
        """Whether what a switch had suspended is told to go on. One that runs may still be being saved, which
        the batch system knows; else it just runs on."""
        entry = self._entries.get(job)
        if entry is None or entry.job.state not in (JobState.SUSPENDED, JobState.RUNNING):
            return False
        is_suspended = entry.job.state is JobState.SUSPENDED
        waiting = self._site.store.waiting_effects(machine_of(job))
        if not waiting or (not is_suspended and waiting[-1].kind == SUSPEND):
            self._site.todo([resume_effect(job, self._site.now_s)])
            if is_suspended:
                self._site.note("machine", f"job {job}", "resumed", "its switch is over", uid=entry.job.uid)
        return True

    def _consolidate(self, sight: Sight) -> None:
        """Look whether a switch lets something run that waits, or relieves a node."""
        settings, now_s, last = self._site.settings, self._site.now_s, self._decision
        if now_s - self._looked_s < settings.consolidate_every_s or self._plans.has_own:
            return
        self._looked_s = now_s
        if last.ended_s is not None and now_s - last.ended_s < CALM_FACTOR * settings.consolidate_every_s:
            return
        try:
            fleet = self._fleet(sight, (), {}, is_automatic=True)
        except NoFleet:
            self._helped, self._calm = (), 0
            return
        self._plans.want(OpenPlan(fleet=fleet, fences={}, by=OF_THE_SERVICE))

    def _would_help(self, plan: OpenPlan, switch: Switch | None) -> None:
        """Begin it if it is useful, and was at the look before."""
        settings, now_s, last = self._site.settings, self._site.now_s, self._decision
        if switch is None or last.state == RUNS:
            self._helped, self._calm = (), 0
            return
        decision = self._decided(plan, switch)
        moves = [each for each in decision.steps if each.kind != "run"]
        helped = tuple(each.job for each in decision.steps if each.kind in ("run", "resume"))
        left = {node for each in moves if each.kind == "migrate" for node in each.left}
        is_relief = not left.isdisjoint(plan.fleet.overloaded)
        if not moves or not (helped or is_relief):
            self._helped, self._calm = (), 0
            return
        self._calm = self._calm + 1 if helped == self._helped else 1
        self._helped = helped
        if self._calm >= CALM_LOOKS and len(moves) <= last.left(settings.consolidate_actions, now_s):
            self._helped, self._calm = (), 0
            self._begin(decision)
