"""In which order jobs that wait are thought about: as they came, but of one user's the worthiest first.

What a job is worth its user says, so it counts among that user's own jobs alone: nobody gets ahead of others
by a number. Its factor is TSRA's (R. Begam and others): value ÷ (time left × node-seconds).
"""

from __future__ import annotations

from collections.abc import Mapping

from outrider.service.desk.jobs.job import JobEntry, Stage

NO_DEADLINE_S = 7 * 86_400
"""A job without a deadline is as patient as one that has so long."""


def in_order(entries: Mapping[str, JobEntry], now_s: int) -> list[str]:
    """The keys of all jobs. Those of a user's that wait and say what they are worth change places among
    themselves."""
    keys = list(entries)
    places: dict[int, list[int]] = {}
    for place, key in enumerate(keys):
        entry = entries[key]
        if entry.lines is not None and entry.lines.value is not None and entry.stage is not Stage.RUNNING:
            places.setdefault(entry.job.uid, []).append(place)
    for mine in places.values():
        if len(mine) > 1:
            ordered = sorted((keys[place] for place in mine), key=lambda key: -_factor(entries[key], now_s))
            for place, key in zip(mine, ordered, strict=True):
                keys[place] = key
    return keys


def _factor(entry: JobEntry, now_s: int) -> float:
    lines, job = entry.lines, entry.job
    assert lines is not None
    assert lines.value is not None
    limit_s = NO_DEADLINE_S if job.limit_s is None else job.limit_s
    work = min(
        (option.nodes * option.limit_s for option in lines.options), default=job.nodes_wanted * limit_s
    )
    left_s = NO_DEADLINE_S if lines.finish_by_s is None else max(1, lines.finish_by_s - now_s)
    return lines.value / (left_s * max(1, work))
