"""Machines that are to go on at another node: to which, what is asked for that, and how long they pause."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from outrider.metadata.joblines import JobLines, write_job_lines
from outrider.rms.base import JobState, NodeState, RmsJob, Sight
from outrider.service.answers.reply import Trouble
from outrider.service.desk.batch.job_effects import (
    SUSPEND,
    is_move,
    machine_of,
    migrate_effect,
    moved_by,
    resume_effect,
    suspend_effect,
)
from outrider.service.desk.jobs.interruption.machine_targets import (
    all_elsewhere,
    as_planned,
    away_from,
    conflict,
    rounds,
)
from outrider.service.desk.jobs.job import JobEntry
from outrider.service.desk.nodes.preemptible_jobs import machine_memory_bytes, saving_s
from outrider.service.desk.state.site import Site
from outrider.store.records import Effect
from outrider.store.store import ProgressWrites

LINK_SHARE = 10
"""Without a rate for best effort a machine takes at most this part of the link: what is promised on it is
planned with a reserve."""


def order_move(
    site: Site,
    entry: JobEntry,
    entries: Iterable[JobEntry],
    node: str,
    who: str,
    *,
    planned: tuple[Sequence[str], Sequence[str]] | None = None,
    chosen: Sequence[str] = (),
) -> Trouble | str:
    """Have a job's machines saved if they run, brought to other nodes, one of them to `node`, and let go on
    if they were not suspended by hand; in words what is done. Where a plan has made room for them, from which
    nodes to which is `planned`, and they go on before what waits: whoever moves a job of their own gains no
    place by that. `chosen`: by node of a saved machine the one where it goes on, which may be the same."""
    job, now_s = entry.job, site.now_s
    if entry.lines is None or not entry.lines.is_machine or not job.can_save:
        return conflict(f"job {job.key} runs in no virtual machine (run: vm): it cannot move")
    runs = job.state is JobState.RUNNING and job.start_s is not None
    if not runs and not job.saved_on:
        return conflict(f"job {job.key} is {job.state.value}, and has no machine yet that could move")
    sources = job.nodes if runs else job.saved_on
    if node and node in sources:
        return conflict(f"a machine of job {job.key} is on {node} already: each has to go to another node")
    if site.store.waiting_effects(machine_of(job.key), most=1):
        return conflict(f"job {job.key} is being suspended or moved already: outrider explain {job.key}")
    if planned is not None:
        targets = as_planned(site, job, entries, sources, planned)
    else:
        targets = tuple(chosen) or all_elsewhere(site, job, entries, node, len(sources))
    if isinstance(targets, Trouble):
        return targets
    moved = [pair for pair in zip(sources, targets, strict=True) if pair[0] != pair[1]]
    rate, is_planned = move_rate(site, len(moved)), planned is not None
    fields = {
        "job": job.key, "uid": job.uid, "sources": sources, "targets": targets,
        "rate_bytes_per_s": rate, "goes_first": is_planned,
    }  # fmt: skip
    live = _live(site, entry, targets[0], rate, is_planned=is_planned) if runs else None
    if live is not None:
        fields["is_live"] = True
    effects: list[Effect] = []
    source, target = (", ".join(pair[side] for pair in moved) for side in (0, 1))
    reason = f"outrider: its machine moves to {target}"
    if job.state is not JobState.SUSPENDED:
        effects.append(suspend_effect(job.key, job.start_s or 0, reason, now_s, live=live))
    for number, (before, after) in enumerate(rounds(sources, targets)):
        led = fields | {"sources": before, "targets": after}
        effects.append(migrate_effect(job.key, led, now_s, number))
    if job.state is not JobState.SUSPENDED:
        effects.append(resume_effect(job.key, now_s))
    site.todo(effects)
    pause_s = expected_pause_s(site, job, len(moved), is_running=runs)
    words = f"from {source} to {target}, by {who}; a pause of at most about {pause_s} s is expected"
    if live is not None:
        words += ", less if it goes alive"
    site.note("machine", f"job {job.key}", "migrates", words, uid=job.uid)
    return words


def _live(site: Site, entry: JobEntry, node: str, rate: int, *, is_planned: bool) -> dict[str, object] | None:
    """What its holder job over there is to be told; None if it is saved first."""
    lines, image = entry.lines, entry.image
    is_alone = entry.job.nodes_wanted == 1 and entry.job.tasks == 1
    if not site.settings.moves_live or not is_alone or lines is None or lines.further:
        return None
    # Of the very bytes that the machine began with. One that ran before this service was never looked up.
    digest = lines.digest if image is None else image.digest
    if not digest:
        return None
    own = JobLines(image=lines.image, digest=digest, format=lines.format, is_private=lines.is_private)
    return {
        "node": node, "metadata": write_job_lines(own), "rate_bytes_per_s": rate, "goes_first": is_planned,
        "account": site.holder_account,
    }  # fmt: skip


def give_up_move(site: Site, effect: Effect) -> None:
    """The batch system does not suspend what was to be suspended for a move: it has begun to run meanwhile.
    Nothing of that is asked for any more, since a machine that runs is not carried."""
    left = [each for each in site.store.waiting_effects(effect.subject) if each.identity != effect.identity]
    if effect.kind != SUSPEND or not any(map(is_move, left)):
        return
    for each in left:
        site.write_lightly(partial(_finish, each.identity, site.now_s))


def _finish(identity: str, now_s: int, progress: ProgressWrites) -> None:
    progress.finish_effect(identity, now_s)


def give_up_overtaken(site: Site, job: RmsJob) -> None:
    """A saved machine went on where it was just as it was to be moved: what runs is not carried."""
    waiting = site.store.waiting_effects(machine_of(job.key))
    if not waiting or not is_move(waiting[0]) or moved_by(waiting[0]).get("is_live"):
        return
    # One that is still being saved runs since an earlier time.
    if job.state is JobState.RUNNING and (job.start_s or 0) >= waiting[0].created_s:
        for each in waiting:
            site.write_lightly(partial(_finish, each.identity, site.now_s))
        site.note("machine", f"job {job.key}", "stays", "it went on before it was moved", uid=job.uid)


def is_being_moved(site: Site, job: RmsJob) -> bool:
    """Whether a job's saved machines are on their way: it goes on nowhere before they have come."""
    return any(map(is_move, site.store.waiting_effects(machine_of(job.key))))


def leave_drained(site: Site, entries: Mapping[str, JobEntry], sight: Sight) -> None:
    """Have machines moved that are to go on and are saved on nodes that take no jobs, as long as these still
    answer. One that was suspended by hand stays where it is until somebody lets it go on."""
    drained = {node.name for node in sight.nodes if node.state is NodeState.DRAINED}
    if not drained:
        return
    for entry in entries.values():
        job = entry.job
        left = [name for name in job.saved_on if name in drained]
        if left and job.state is JobState.HELD and job.is_held_by_us:
            # Without another node it is asked for again after the next look.
            chosen = away_from(site, job, entries.values(), left, sight) or ()
            who = f"outrider: {', '.join(left)} is drained"
            order_move(site, entry, entries.values(), "", who, chosen=chosen)


def move_rate(site: Site, count: int) -> int:
    """With how many bytes a second each of so many machines is brought over."""
    rate = site.settings.best_effort_rate_bytes_per_s or site.settings.link_rate_bytes_per_s // LINK_SHARE
    return max(1, rate // max(1, count))


def expected_pause_s(site: Site, job: RmsJob, moved: int, *, is_running: bool) -> int:
    """To save its memory, carry it and read it again; what its disks have grown by is not known. `moved`: of
    how many machines it is carried. All are saved at the same time, each on its node."""
    memory_bytes = machine_memory_bytes(job)
    saved_s = saving_s(site.settings, memory_bytes)
    rate = move_rate(site, moved)
    return (2 if is_running else 1) * saved_s + math.ceil(memory_bytes / rate)
