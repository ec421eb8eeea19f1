"""What Grid Engine's commands print as XML, as values. Pure: texts in, values out."""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree import ElementTree

from outrider.rms.base import RmsError
from outrider.rms.gridengine.mending import Told, nobody, tree

_GRANTED = re.compile(r"advance reservation (\d+) has been granted")
_MEMORY = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)([KMGT]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_NO_PRIORITY = 1024
"""What is shown of a job that has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Detail:
    """A job as `qstat -j` shows it: what was asked for."""

    number: str
    user: str
    uid: int
    submitted_s: int
    reservation: int
    account: str = ""
    requests: tuple[tuple[str, str], ...] = ()
    queues: tuple[str, ...] = ()
    environment: str | None = None
    slots: int = 1
    context: dict[str, str] = field(default_factory=dict)
    checkpoint: str = ""
    may_rerun: bool = False
    """Whether its user has said that it may be run again."""
    priority: int = 0
    """As `-p` gives it."""
    name: str = ""
    folder: str = ""
    """Where it begins, if not in its user's home."""
    project: str = ""
    account_text: str = ""
    """As `-A` gives it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GridTask:
    """A row of `qstat -g t`: a job, or an array's task or waiting tasks, and where it is."""

    number: str
    state: str
    task: str = ""
    start_s: int | None = None
    queues: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueInstance:
    """A queue on a host."""

    queue: str
    host: str
    slots: int
    state: str
    memory_bytes: int = 0
    """All that its host has; 0 while that is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Advance:
    """An advance reservation of Grid Engine."""

    number: int
    name: str
    owner: str
    state: str
    start_s: int
    end_s: int
    users: tuple[str, ...]
    slots: tuple[tuple[str, int], ...]
    """Slots by queue instance, `queue@host`."""


def details(text: str, told: Told = nobody) -> dict[str, Detail]:
    """Of `qstat -j '*' -xml`, by number."""
    found: dict[str, Detail] = {}
    for job in tree(text, told).iterfind("djob_info/element"):
        try:
            detail = _detail(job)
        except ValueError as error:
            told(f"job {_text(job, 'JB_job_number')}: {error}")
            continue
        found[detail.number] = detail
    return found


def _detail(job: ElementTree.Element) -> Detail:
    # Of a job that qalter has changed they have another name.
    ranges = [int(each.text or 1) for each in job.iterfind("JB_pe_range/*/RN_max")]
    context = _pairs(job, "JB_context")
    return Detail(
        number=_text(job, "JB_job_number"),
        user=_text(job, "JB_owner"),
        uid=int(_text(job, "JB_uid")),
        submitted_s=int(_text(job, "JB_submission_time")),
        reservation=int(_text(job, "JB_ar") or 0),
        account=_text(job, "JB_project") or _text(job, "JB_account"),
        requests=tuple(
            (_text(each, "CE_name"), _text(each, "CE_stringval"))
            for each in job.iterfind("JB_hard_resource_list/*")
        ),
        queues=tuple(each.text or "" for each in job.iterfind("JB_hard_queue_list/*/QR_name")),
        environment=_text(job, "JB_pe") or None,
        slots=max(ranges, default=1),
        context=context,
        checkpoint=_text(job, "JB_checkpoint_name"),
        may_rerun=_text(job, "JB_restart") == "1",
        priority=int(_text(job, "JB_priority") or _NO_PRIORITY) - _NO_PRIORITY,
        name=_text(job, "JB_job_name"),
        folder=_text(job, "JB_cwd"),
        project=_text(job, "JB_project"),
        account_text=_text(job, "JB_account"),
    )


def _pairs(job: ElementTree.Element, name: str) -> dict[str, str]:
    return {_text(each, "VA_variable"): _text(each, "VA_value") for each in job.iterfind(f"{name}/*")}


def tasks(text: str, told: Told = nobody) -> list[GridTask]:
    """Of `qstat -g t -xml -u *`: a parallel job has a row for each slot and one more, which are joined."""
    joined: dict[tuple[str, str], GridTask] = {}
    for row in tree(text, told).iter("job_list"):
        number, task = _text(row, "JB_job_number"), _text(row, "tasks")
        queue = _text(row, "queue_name")
        start = _text(row, "JAT_start_time")
        before = joined.get((number, task))
        queues = (before.queues if before else ()) + ((queue,) if queue else ())
        joined[number, task] = GridTask(
            number=number,
            task=task,
            state=_text(row, "state"),
            start_s=utc_s(start) if start else None,
            queues=tuple(sorted(set(queues))),
        )
    return list(joined.values())


def numbers(text: str, told: Told = nobody) -> set[str]:
    """The jobs that `qstat -xml` shows."""
    return {_text(row, "JB_job_number") for row in tree(text, told).iter("job_list")}


def queue_instances(text: str, told: Told = nobody) -> Iterator[QueueInstance]:
    """Of `qhost -q -xml`."""
    for host in tree(text, told).iterfind("host"):
        has = {each.get("name"): each.text or "" for each in host.iterfind("hostvalue")}
        for queue in host.iterfind("queue"):
            values = {each.get("name"): each.text or "" for each in queue.iterfind("queuevalue")}
            yield QueueInstance(
                queue=queue.get("name", ""),
                host=host.get("name", ""),
                slots=int(values.get("slots") or 0),
                state=values.get("state_string", ""),
                memory_bytes=_memory_bytes(has.get("mem_total", "")),
            )


def _memory_bytes(text: str) -> int:
    """An amount as qhost rounds it: `7.6G`."""
    found = _MEMORY.fullmatch(text)
    return 0 if found is None else int(float(found[1]) * _UNITS[found[2]])


def advance_numbers(text: str, told: Told = nobody) -> list[str]:
    """Of `qrstat -xml -u *`."""
    return [_text(each, "id") for each in tree(text, told).iterfind("ar_summary")]


def advances(text: str, told: Told = nobody) -> list[Advance]:
    """Of `qrstat -ar N,… -xml`; what is not there any more is left out."""
    return [_advance(each) for each in tree(text, told).iterfind("ar_summary")]


def _advance(found: ElementTree.Element) -> Advance:
    return Advance(
        number=int(_text(found, "id")),
        name=_text(found, "name"),
        owner=_text(found, "owner"),
        state=_text(found, "state"),
        start_s=utc_s(_text(found, "start_time")),
        end_s=utc_s(_text(found, "end_time")),
        users=tuple(sorted(each.get("user", "") for each in found.iterfind("acl_list/acl"))),
        slots=tuple(
            sorted(
                (each.get("queue_instance", ""), int(each.get("slots") or 0))
                for each in found.iterfind("granted_slots_list/granted_slots")
            )
        ),
    )


def granted_number(text: str) -> int | None:
    """What qrsub says when it has made one."""
    found = _GRANTED.search(text)
    return None if found is None else int(found[1])


def utc_s(text: str) -> int:
    """A time as commands print it that run with TZ=UTC."""
    try:
        return calendar.timegm(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError as error:
        raise RmsError(f"Grid Engine printed {text!r} where a time was expected") from error


def utc_text(at_s: int) -> str:
    """A time as qrsub reads it that runs with TZ=UTC."""
    return time.strftime("%Y%m%d%H%M.%S", time.gmtime(at_s))


def duration_s(text: str) -> int | None:
    """A request like h_rt: seconds, h:m:s, or no limit."""
    if text.upper() == "INFINITY":
        return None
    total = 0
    for part in text.split(":"):
        if not part.isdecimal() and part:
            raise RmsError(f"Grid Engine printed {text!r} where a duration was expected")
        total = total * 60 + int(part or 0)
    return total


def _text(element: ElementTree.Element, name: str) -> str:
    return element.findtext(name) or ""
