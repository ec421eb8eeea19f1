"""A plan's actions as steps of jobs: what is asked for each, and how far it is at a look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from outrider.core.switch.model import NOWHERE, Action, ActionKind, Stage
from outrider.core.switch.planner import Switch
from outrider.rms.base import JobState, RmsJob
from outrider.service.answers.reply import Trouble
from outrider.service.desk.batch.job_effects import machine_of, resume_effect, suspend_effect
from outrider.service.desk.jobs.interruption.machine_moves import expected_pause_s, order_move
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.nodes.preemptible_jobs import machine_memory_bytes, saving_s
from outrider.service.desk.state.site import Site
from outrider.service.desk.switch.decision import DecidedStep
from outrider.service.desk.switch.fleet import ON_NODES, Fleet

SAVING_FACTOR, SAVING_MORE_S = 2, 60
"""A machine may take so many times as long as its disk should, and so much longer, to be saved."""


def decided_steps(
    site: Site, entries: Mapping[str, JobEntry], fleet: Fleet, switch: Switch
) -> Iterator[DecidedStep]:
    """What is asked for each job; the batch system itself starts what waits."""
    # The batch system starts all machines of a job at once, when the last of them has room.
    last = {
        fleet.situation.machines[action.machine].job: stage
        for stage, actions in enumerate(switch.plan.stages, 1)
        for action in actions
        if action.kind is ActionKind.RUN
    }
    suspended = {
        fleet.keys[fleet.situation.machines[action.machine].job]
        for action in switch.plan.actions
        if action.kind is ActionKind.SUSPEND
    }
    for stage, actions in enumerate(switch.plan.stages, 1):
        for job, together in _by_job(fleet, actions).items():
            key = fleet.keys[job]
            entry, kind = entries.get(key), together[0].kind
            if entry is None:
                # It has ended while the plan was made.
                continue
            if kind is ActionKind.PAUSE:
                kind = ActionKind.MIGRATE
            if kind is ActionKind.RUN and stage != last[job]:
                continue
            if _goes_on_by_itself(together, entry.job) and key not in suspended:
                continue
            hosts = switch.target.hosts
            targets = (
                [hosts[number] for number in fleet.situation.jobs[job]]
                if kind is ActionKind.RUN
                else [each.target for each in together]
            )
            yield DecidedStep(
                stage=stage,
                kind=kind.value,
                job=key,
                source=_names(fleet, [each.source for each in together]),
                target=_names(fleet, targets),
                pause_s=_pause_s(site, kind, together, entry.job),
            )


def _by_job(fleet: Fleet, actions: Stage) -> dict[int, list[Action]]:
    """What a stage does with each job, in the order of its machines: those of several act together, but for
    their start, which the batch system makes of them."""
    found: dict[int, list[Action]] = {}
    for action in sorted(actions, key=lambda action: action.machine):
        found.setdefault(fleet.situation.machines[action.machine].job, []).append(action)
    return found


def _names(fleet: Fleet, nodes: Iterable[int]) -> str:
    return ",".join(fleet.situation.nodes[node].name for node in nodes if node != NOWHERE)


def _goes_on_by_itself(actions: Sequence[Action], job: RmsJob) -> bool:
    """Whether it waits to go on where it is: the batch system lets it."""
    is_home = all(each.kind is ActionKind.RESUME and each.is_local for each in actions)
    return is_home and job.state is not JobState.SUSPENDED


def _pause_s(site: Site, kind: ActionKind, actions: Sequence[Action], job: RmsJob) -> int:
    carried = sum(not each.is_local for each in actions)
    if kind is ActionKind.MIGRATE:
        return expected_pause_s(site, job, carried, is_running=True)
    if kind is ActionKind.RESUME and carried:
        return expected_pause_s(site, job, carried, is_running=False)
    return 0 if kind is ActionKind.RUN else saving_s(site.settings, machine_memory_bytes(job))


def order_step(site: Site, entries: Mapping[str, JobEntry], step: DecidedStep, who: str) -> str:
    """Ask for it. Why that cannot be; nothing if it is asked for."""
    entry = entries.get(step.job)
    if entry is None:
        return ""
    job = entry.job
    if step.kind == "migrate" or (step.kind == "resume" and step.source != step.target):
        done = order_move(site, entry, entries.values(), "", who, planned=(step.sources, step.targets))
        if isinstance(done, Trouble):
            return done.message
        if step.kind == "resume" and job.state is JobState.SUSPENDED:
            site.todo([resume_effect(job.key, site.now_s)])
    elif step.kind == "suspend":
        if job.state is not JobState.RUNNING or job.start_s is None:
            return f"it is {job.state.value}, and was to be suspended"
        reason = f"outrider: suspended by {who}; it goes on when there is room"
        site.todo([suspend_effect(job.key, job.start_s, reason, site.now_s)])
        site.note("machine", f"job {job.key}", "suspended", f"by {who}", uid=job.uid)
    else:
        site.todo([resume_effect(job.key, site.now_s)])
        site.note("machine", f"job {job.key}", "resumed", f"by {who}", uid=job.uid)
    return ""


def looked_at(site: Site, step: DecidedStep, job: RmsJob | None) -> DecidedStep:
    """A step that was asked for, at a look: whether it is done, and whether the machine runs again. `job`
    is None if the look does not show it: it has ended."""
    now_s = site.now_s
    if step.state == "done" and step.back_s is None and step.kind in ("migrate", "resume"):
        is_back = job is None or (job.state in ON_NODES and {*job.nodes} == {*step.targets})
        return replace(step, back_s=now_s) if is_back else step
    if step.state != "runs":
        return step
    if job is None:
        return replace(step, state="done", done_s=now_s, back_s=now_s)
    if site.store.waiting_effects(machine_of(step.job), most=1):
        return step
    if step.kind == "suspend":
        is_done = job.state is JobState.SUSPENDED
        if not is_done and now_s < step.asked_s + SAVING_FACTOR * step.pause_s + SAVING_MORE_S:
            # It was told to save its machine; it runs until it has.
            return step
    elif step.kind == "resume" and step.source == step.target:
        is_done = job.state is not JobState.SUSPENDED
    else:
        at = job.nodes if job.state in ON_NODES else job.saved_on
        is_done = {*at} == {*step.targets} and job.state is not JobState.SUSPENDED
    if not is_done:
        return replace(step, looks=step.looks + 1)
    return looked_at(site, replace(step, state="done", done_s=now_s), job)


def is_left(site: Site, step: DecidedStep, job: RmsJob | None) -> bool:
    """Whether a machine is suspended that was to go on, and nothing is under way that lets it: its turn had
    not come, or nothing is known of its move any more."""
    if job is None or job.state is not JobState.SUSPENDED:
        return False
    if step.kind == "resume":
        return step.state == "waits"
    is_asked = step.kind == "migrate" and step.state == "runs"
    return is_asked and not site.store.waiting_effects(machine_of(step.job), most=1)
