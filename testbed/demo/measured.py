"""Measurements of jobs from what the daemons and the jobs themselves wrote down, and the last table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cachemgr.base.sizes import in_words

DAY_MS = 86_400_000
_SUBMITTED = re.compile(r"^\[[^\sT]+T([^\s\]]+)\] _slurm_rpc_submit_batch_job: JobId=(\d+) ", re.MULTILINE)
_BEGUN = re.compile(r"^\[[^\sT]+T([^\s\]]+)\] .*?(?:sched: Allocate|Started) JobId=(\d+) ", re.MULTILINE)
_IMAGE = re.compile(r"^(\S+)  the image is on ", re.MULTILINE)
_SENT = re.compile(r"sent bytes=(\d+) path=/(\S+)\.qcow2$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredStart:
    """A job's start: milliseconds of waiting, and of its own time until its image was on all nodes."""

    waited_ms: int
    own_ms: int
    sent_bytes: int

    @property
    def delay_ms(self) -> int:
        return self.waited_ms + self.own_ms


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedJob:
    """The same job in both ways."""

    name: str
    usual: MeasuredStart
    ours: MeasuredStart


def start_of(
    job: str, controller_log: str, output: str, sent_bytes: int, due_ms: int | None = None
) -> MeasuredStart:
    """A job's start; it waits from its submission on, or from when its reservation began."""
    submitted = {found[1]: of_day_ms(found[0]) for found in _SUBMITTED.findall(controller_log)}
    begun = {found[1]: of_day_ms(found[0]) for found in _BEGUN.findall(controller_log)}
    since_ms = submitted[job] if due_ms is None else due_ms
    return MeasuredStart(
        waited_ms=_between(since_ms, begun[job]),
        own_ms=max(_between(begun[job], of_day_ms(each)) for each in _IMAGE.findall(output)),
        sent_bytes=sent_bytes,
    )


def of_day_ms(text: str) -> int:
    """Of 05:00:03.451: milliseconds since midnight."""
    hours, minutes, seconds = text.split(":")
    whole, _, parts = seconds.partition(".")
    return ((int(hours) * 60 + int(minutes)) * 60 + int(whole)) * 1_000 + int(parts.ljust(3, "0")[:3])


def sent_bytes(server_log: str, name: str) -> int:
    """How much of an image the server has sent so far."""
    return sum(int(sent) for sent, path in _SENT.findall(server_log) if path == name)


def table(rows: Sequence[ComparedJob]) -> str:
    """A line for each job, and what they cost together."""
    lines = [_HEAD, _HEAD_BELOW]
    for row in rows:
        lines.append((row.name, *_cells(row.usual), *_cells(row.ours)))
    lines.append(("together", *_sum([row.usual for row in rows]), *_sum([row.ours for row in rows])))
    widths = [max(len(line[at]) for line in lines) for at in range(len(_HEAD))]
    written = [
        "   ".join(cell.ljust(wide) for cell, wide in zip(line, widths, strict=True)) for line in lines
    ]
    written.insert(0, " " * (widths[0] + 3) + _OVER[0].ljust(sum(widths[1:4]) + 9) + _OVER[1])
    return "\n".join([*(line.rstrip() for line in written), "", _LEGEND])


def _cells(start: MeasuredStart) -> tuple[str, str, str]:
    return _seconds(start.delay_ms), _seconds(start.own_ms), in_words(start.sent_bytes)


def _sum(starts: Sequence[MeasuredStart]) -> tuple[str, str, str]:
    return _cells(
        MeasuredStart(
            waited_ms=sum(each.waited_ms for each in starts),
            own_ms=sum(each.own_ms for each in starts),
            sent_bytes=sum(each.sent_bytes for each in starts),
        )
    )


def _between(before_ms: int, after_ms: int) -> int:
    """Over midnight, too; a clock read a little early is no day."""
    elapsed_ms = (after_ms - before_ms) % DAY_MS
    return elapsed_ms - DAY_MS if elapsed_ms > DAY_MS // 2 else elapsed_ms


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1_000:.2f} s"


_OVER = ("the job fetches its image", "with Outrider")
_HEAD = ("", "start", "of its", "server", "start", "of its", "server")
_HEAD_BELOW = ("", "delay", "own time", "sent", "delay", "own time", "sent")
_LEGEND = """All measured in this run. The delay is from sbatch, in a reservation from its start, until the
image is on all nodes of the job. Its own time is what of that Slurm counts as the job's. Sent is what
the server of images gave; where that is one copy for two nodes, one has passed it on to the other."""
