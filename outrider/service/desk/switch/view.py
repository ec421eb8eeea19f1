"""A switch as it is shown, with why a machine moves or does not."""

from __future__ import annotations

from outrider.core.switch.explanation import explain
from outrider.core.switch.planner import Switch
from outrider.core.switch.use import PROCESSOR
from outrider.service.answers.switch import SwitchStep, SwitchUse, SwitchView
from outrider.service.desk.switch.counting import CountedUse
from outrider.service.desk.switch.decision import DecidedStep, SwitchDecision
from outrider.service.desk.switch.fleet import Fleet

AMOUNTS = "amounts are MiB of memory, hundredths of processors in use, and of those that were asked for"


def explained(fleet: Fleet, switch: Switch, job: str, now_s: int) -> tuple[str, ...]:
    """Of all machines of a job; what is so for each of them is said once."""
    words = tuple(
        dict.fromkeys(
            sentence
            for number in fleet.numbers(job)
            for sentence in explain(fleet.situation, switch, fleet.rules, number, fleet.queue)
        )
    )
    if fleet.is_by_use:
        words = (*words, AMOUNTS)
    if job in fleet.uses:
        words = (*words, use_words(fleet.uses[job], now_s))
    return (*words, f"it is not moved: {fleet.kept[job]}") if job in fleet.kept else words


def use_words(use: CountedUse, now_s: int) -> str:
    """As how much a job's machine counts, and why."""
    if use.measured is None or use.words:
        return f"use: {use.words}; it counts as the {use.asked} processors that it has asked for"
    used, counted = in_processors(use.measured.hundredths), in_processors(use.counted)
    return (
        f"use: it has asked for {use.asked} processors, used {used} of them until "
        f"{now_s - use.measured.at_s} s ago, and counts as {counted}"
    )


def in_processors(hundredths: int) -> str:
    return f"{hundredths // PROCESSOR}.{hundredths % PROCESSOR:02}"


def uses_of(fleet: Fleet, now_s: int) -> tuple[SwitchUse, ...]:
    """Of all machines that run, in the order of their jobs."""
    return tuple(
        SwitchUse(
            job=each.job,
            node=each.node,
            asked=each.asked * PROCESSOR,
            used=None if each.measured is None else each.measured.hundredths,
            age_s=None if each.measured is None else now_s - each.measured.at_s,
            counted=each.counted,
            words=each.words,
        )
        for key, each in sorted(fleet.uses.items())
    )


def kept_words(fleet: Fleet) -> tuple[str, ...]:
    return tuple(f"job {job}: {words}" for job, words in sorted(fleet.kept.items()))


def view_of(
    decision: SwitchDecision, explanation: tuple[str, ...], kept: tuple[str, ...], *, is_plan: bool
) -> SwitchView:
    """Without what the site's settings say of it."""
    return SwitchView(
        state="planned" if is_plan else decision.state or "none",  # type: ignore[arg-type]
        number=decision.number,
        by=decision.by,
        begun_s=None if is_plan or not decision.number else decision.begun_s,
        ended_s=decision.ended_s,
        cost_mib=decision.cost_mib,
        bound_mib=decision.bound_mib,
        steps=tuple(map(_step, decision.steps)),
        asleep=decision.asleep,
        kept=kept,
        explanation=explanation,
        words=decision.words,
        is_consolidating=False,
        actions_left=0,
    )


def _step(step: DecidedStep) -> SwitchStep:
    return SwitchStep(
        stage=step.stage,
        kind=step.kind,  # type: ignore[arg-type]
        job=step.job,
        source=step.source,
        target=step.target,
        pause_s=step.pause_s,
        state="left to the batch system" if step.kind == "run" else step.state,  # type: ignore[arg-type]
        asked_s=step.asked_s or None,
        done_s=step.done_s,
        back_s=step.back_s,
    )
