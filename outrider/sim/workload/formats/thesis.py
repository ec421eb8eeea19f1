"""The thesis' own `.trace` files: reader, and the four that are part of the package.

One request a line, ten fields between semicolons; docs/reference/formats.md has the drawing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.resources import as_file, files
from pathlib import Path

from outrider.core.model import Image, Resources, Workspace
from outrider.sim.workload.formats.files import numbered_lines
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError, named_errors

_FIELDS = (
    "submission time", "image URI", "image size", "nodes", "memory",
    "CPU share", "mode", "deadline", "duration", "kind",
)  # fmt: skip
_MEGABYTE = 10**6
_PUBLISHED = {
    "I": "trace_I_uniform_starts.trace",
    "II": "trace_II_clustered_starts.trace",
    "III": "trace_III_uniform.trace",
    "IV": "trace_IV_skewed.trace",
}


def read_thesis_trace(
    path: str | os.PathLike[str],
    *,
    name: str | None = None,
    duration_s: int | None = None,
    cpus_per_node: int = 2,
    is_parallel: bool = True,
) -> Trace:
    """Read a `.trace` file.

    `duration_s` replaces every duration: the files of traces I and II say 60 s where the
    thesis says 1800 s. A CPU share of 50 % of a node with two CPUs is one CPU; memory is
    not taken over, because on the thesis' nodes it is never what runs out. `is_parallel`
    is about BATCH requests: parallel as in section 8.2, or serial as in section 8.3.
    """
    submissions = [
        _submission(words, f"{os.fspath(path)}, line {number}", row, duration_s,
                    cpus_per_node, is_parallel)
        for row, (number, words) in enumerate(_requests(path), 1)
    ]  # fmt: skip
    try:
        return Trace(name=name or Path(path).stem, submissions=tuple(submissions))
    except ValueError as error:
        raise WorkloadError(f"{os.fspath(path)}: {error}; sort its lines by time") from error


def published_trace(number: str, *, duration_s: int | None = None) -> Trace:
    """Trace I, II, III or IV of the thesis."""
    if number not in _PUBLISHED:
        raise ValueError(f"no trace {number!r}: the thesis has {', '.join(_PUBLISHED)}")
    with as_file(files("outrider.sim") / "published" / _PUBLISHED[number]) as path:
        return read_thesis_trace(path, name=f"thesis-{number}", duration_s=duration_s)


def _requests(path: str | os.PathLike[str]) -> Iterator[tuple[int, list[str]]]:
    for number, line in numbered_lines(path):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        words = text.split(";")
        if len(words) != len(_FIELDS):
            raise WorkloadError(
                f"{os.fspath(path)}, line {number}: {len(words)} fields where a .trace "
                f"file has {len(_FIELDS)} between semicolons ({', '.join(_FIELDS)})"
            )
        yield number, [word.strip() for word in words]


def _submission(
    words: list[str],
    where: str,
    row: int,
    duration_s: int | None,
    cpus_per_node: int,
    is_parallel: bool,
) -> TraceSubmission:
    at_s, nodes = _number(words, 0, where), _number(words, 3, where)
    size_bytes = _number(words, 2, where) * _MEGABYTE
    cpus = max(1, _number(words, 5, where) * cpus_per_node // 100)
    lasts_s = _number(words, 8, where)
    kind, deadline = words[9], words[7]
    if kind not in ("AR", "BATCH") or (kind == "BATCH") != (deadline == "NULL"):
        raise WorkloadError(
            f"{where}: kind {kind!r} with deadline {deadline!r}; an AR has a deadline in "
            "seconds after its submission, a BATCH has NULL"
        )
    start_s = at_s + _number(words, 7, where) if kind == "AR" else None
    with named_errors(where):
        workspace = Workspace(
            name=f"vw{row}",
            instances=nodes,
            resources=Resources.of(cpus=cpus),
            duration_s=lasts_s if duration_s is None else duration_s,
            image=Image(uri=words[1], size_bytes=size_bytes),
            start_s=start_s,
            is_parallel=kind == "AR" or is_parallel,
        )
    return TraceSubmission(at_s=at_s, workspace=workspace, run_s=workspace.duration_s)


def _number(words: list[str], place: int, where: str) -> int:
    word = words[place]
    if not (word.isascii() and word.isdigit()):
        raise WorkloadError(
            f"{where}: field {place + 1} ({_FIELDS[place]}) is {word!r}; write a whole number of 0 or more"
        )
    return int(word)
