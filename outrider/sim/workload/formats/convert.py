"""Any workload file to a trace, and a trace to a file: the form is told by name or content.

.swf .swf.gz     Standard Workload Format      .xml .lwf            Haizea
.trace           the thesis                    .jsonl .jsonl.gz     Outrider

A form's reader is imported when a file of that form is read: to import all takes as long as a small run.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.core.model import Image, Workspace
from outrider.sim.workload.formats.files import open_workload
from outrider.sim.workload.trace import Trace, WorkloadError

if TYPE_CHECKING:
    from outrider.sim.workload.formats.swf import SwfLog


class Form(Enum):
    SWF = ".swf"
    THESIS = ".trace"
    HAIZEA = ".xml"
    NATIVE = ".jsonl"


_SUFFIXES = {form.value: form for form in Form} | {".lwf": Form.HAIZEA}
_LOOK_BYTES = 4096


def read_trace(
    path: str | os.PathLike[str],
    *,
    limit: int | None = None,
    processors_per_instance: int | None = None,
    images: Iterable[Image] | None = None,
    duration_s: int | None = None,
    is_serial: bool = False,
) -> Trace:
    """Read a workload file of any form.

    `limit` keeps the first submissions (of a log: reads no more jobs than that).
    `processors_per_instance` and `images` are for logs, `duration_s` and `is_serial` (best effort
    instance by instance) for the thesis' traces; with another form they are refused, so that no
    option is silently without effect.
    """
    form = form_of(path)
    for name, value, meant in (
        ("processors_per_instance", processors_per_instance, Form.SWF),
        ("images", images, Form.SWF),
        ("duration_s", duration_s, Form.THESIS),
        ("is_serial", is_serial or None, Form.THESIS),
    ):
        if value is not None and form is not meant:
            raise WorkloadError(
                f"{os.fspath(path)}: {name} is for {meant.value} files, and this one "
                f"is {form.value}; leave it out"
            )
    if form is Form.SWF:
        from outrider.sim.workload.formats.swf import read_log
        from outrider.sim.workload.formats.swf_trace import log_trace

        return log_trace(
            read_log(path, limit=limit),
            name=Path(path).name.removesuffix(".gz").removesuffix(".swf"),
            processors_per_instance=processors_per_instance or 1,
            images=images,
        )
    if form is Form.THESIS:
        from outrider.sim.workload.formats.thesis import read_thesis_trace

        trace = read_thesis_trace(path, duration_s=duration_s, is_parallel=not is_serial)
    elif form is Form.HAIZEA:
        from outrider.sim.workload.formats.haizea import read_haizea

        trace = read_haizea(path)
    else:
        from outrider.sim.workload.formats.native import read_native

        trace = read_native(path)
    return replace(trace, submissions=tuple(islice(trace.submissions, limit)))


def write_trace(path: str | os.PathLike[str], trace: Trace) -> None:
    """Write a trace as .jsonl, or as .swf if nothing of it would be lost but details."""
    form = _form_by_name(path)
    if form is Form.NATIVE:
        from outrider.sim.workload.formats.native import write_native

        write_native(path, trace)
    elif form is Form.SWF:
        from outrider.sim.workload.formats.swf import write_log

        write_log(path, trace_log(trace))
    else:
        raise WorkloadError(
            f"{os.fspath(path)}: traces are written as .jsonl or .swf, maybe with .gz; name the file so"
        )


def form_of(path: str | os.PathLike[str]) -> Form:
    """The form by the file's name, or by its first lines if the name does not tell."""
    form = _form_by_name(path)
    if form is not None:
        return form
    with open_workload(path) as file:
        head = file.read(_LOOK_BYTES).removeprefix(b"\xef\xbb\xbf")
    lines = [line.strip() for line in head.splitlines() if line.strip()]
    first = lines[0] if lines else b""
    from outrider.sim.workload.formats.swf import FIELDS_PER_JOB

    data = next((line for line in lines if line[:1] not in b";#"), b"")
    if first.startswith(b"{"):
        return Form.NATIVE
    if first.startswith(b"<"):
        return Form.HAIZEA
    if first.startswith(b";") or len(data.split()) == FIELDS_PER_JOB:
        return Form.SWF
    if data.count(b";") > 1:
        return Form.THESIS
    raise WorkloadError(f"{os.fspath(path)}: no known form of workload; name it .swf, .trace, .xml or .jsonl")


def trace_log(trace: Trace) -> SwfLog:
    """A trace as a log, where the format can say it: parallel best-effort jobs.

    A job's place in the trace is its number, an image is its executable; the header says
    which. What the format has no field for (memory, deadlines) would be lost, and a
    reservation would become an ordinary job: reservations are refused.
    """
    from outrider.sim.workload.formats.swf import COLUMNS, UNKNOWN, SwfLog
    from outrider.sim.workload.formats.swf_trace import COMPLETED

    users: dict[str, int] = {}
    images: dict[Image, int] = {}
    rows = []
    for number, one in enumerate(trace.submissions, 1):
        _refuse_what_a_log_cannot_say(one.workspace, trace.name)
        image = one.workspace.image
        processors = one.workspace.instances * max(1, one.workspace.resources["cpus"])
        user = users.setdefault(one.user, len(users) + 1) if one.user else UNKNOWN
        executable = images.setdefault(image, len(images) + 1) if image else UNKNOWN
        rows.append(
            dict.fromkeys(COLUMNS, UNKNOWN)
            | {"job": number, "submit_s": one.at_s, "run_s": one.run_s, "status": COMPLETED}
            | {"processors": processors, "requested_processors": processors}
            | {
                "requested_s": one.workspace.duration_s,
                "user": user,
                "executable": executable,
            }
        )
    header = ["; Version: 2.2", "; Note: written by Outrider, from a trace"]
    header += [
        f"; Executable: {number} {ascii(image.uri)[1:-1]} ({image.size_bytes} bytes)"
        for image, number in images.items()
    ]
    columns = {name: [row[name] for row in rows] for name in COLUMNS}
    return SwfLog(header=tuple(header), **columns)


def _refuse_what_a_log_cannot_say(workspace: Workspace, trace_name: str) -> None:
    if not workspace.is_best_effort:
        kind = "a reservation"
    elif not workspace.is_parallel and workspace.instances > 1:
        kind = "serial"
    else:
        return
    raise WorkloadError(
        f"trace {trace_name}: workspace {workspace.name} is {kind}, for which SWF has no field; write .jsonl"
    )


def _form_by_name(path: str | os.PathLike[str]) -> Form | None:
    return _SUFFIXES.get(Path(os.fspath(path).removesuffix(".gz")).suffix.lower())
