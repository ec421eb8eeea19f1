"""Accounting as batch systems and archives write it: `sacct -P`, Grid Engine's file, SWF, tables.

What cannot be understood is passed over and counted by its reason, since a site's months have such lines.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from outrider.metadata.errors import TextError
from outrider.metadata.notation.hostlists import expand
from outrider.sim.workload.formats.files import numbered_lines
from outrider.sim.workload.formats.swf import read_log
from outrider.sim.workload.savings.records import AccountedJob, Accounting
from outrider.sim.workload.trace import WorkloadError

MOST_FIELD_CHARACTERS = 1 << 20
_NUMBER = re.compile(r"[0-9]{1,12}")
_GRIDENGINE_FIELDS = 43
"""Of a line of Grid Engine's file at the least; some versions append more."""
_SACCT = {
    "user": "User", "group": "Group", "account": "Account", "name": "JobName", "partition": "Partition",
    "comment": "Comment",
}  # fmt: skip
_TABLE = {
    "user": ("user_id", "user"), "group": ("group_id", "group"), "account": ("account",),
    "name": ("name", "job_name"), "partition": ("partition", "queue"), "comment": ("comment",),
}  # fmt: skip
_TABLE_TIMES = (("submit_time", "submit"), ("start_time", "start"), ("end_time", "end"))
_TABLE_COUNTS = ("num_nodes_alloc", "nodes_alloc", "num_nodes", "nnodes")
_TABLE_NODES = ("nodes", "node_list", "nodelist")
Found = AccountedJob | str
"""A job, or why a line is none."""


def read_accounting(path: str, form: str | None = None, *, processors_per_node: int = 1) -> Accounting:
    """All jobs of a file, by their start. Raises WorkloadError."""
    form = form or form_of(path)
    found = list(READERS[form](path, processors_per_node))
    jobs = [each for each in found if isinstance(each, AccountedJob)]
    reasons = Counter(each for each in found if isinstance(each, str))
    if not jobs:
        told = f": {', '.join(f'{count} {why}' for why, count in reasons.items())}" if reasons else ""
        raise WorkloadError(
            f"{path}: has no jobs that ran, read as {form}{told}; name its form with --format"
        )
    jobs.sort(key=lambda job: (job.start_s, job.submit_s, job.key))
    return Accounting(jobs=tuple(jobs), passed_over=dict(reasons))


def form_of(path: str) -> str:
    """Which form a file has, by its name or its first line that is no comment."""
    plain = path.removesuffix(".gz")
    if plain.endswith(".swf"):
        return "swf"
    first = next((line for _, line in numbered_lines(path) if line.strip() and not line.startswith("#")), "")
    if "|" in first:
        return "sacct"
    if first.startswith(";"):
        return "swf"
    return "gridengine" if first.count(":") >= _GRIDENGINE_FIELDS - 1 else "table"


def _sacct(path: str, _: int) -> Iterator[Found]:
    """`sacct -P` with a line of names. Steps, which have a dot in their number, are no jobs."""
    names: list[str] = []
    for _number, line in numbered_lines(path):
        fields = line.rstrip("\n").split("|")
        if not names:
            names = fields
            missing = {"JobID", "Submit", "Start", "End"} - set(names)
            if missing or not {"NNodes", "AllocNodes", "NodeList"} & set(names):
                raise WorkloadError(
                    f"{path}: lacks {', '.join(sorted(missing)) or 'NNodes'}: run sacct -P -X -a "
                    "-o JobID,User,Group,Account,JobName,Partition,Comment,Submit,Start,End,NNodes,NodeList"
                )
        elif len(fields) < len(names):
            yield "lines that are too short"
        else:
            # A comment may have the sign in it that divides fields: what is too much belongs to it.
            row = dict(zip(names, _joined(names, fields), strict=True))
            if "." not in row["JobID"]:
                yield _sacct_job(row)


def _joined(names: list[str], fields: list[str]) -> list[str]:
    more = len(fields) - len(names)
    if more == 0:
        return fields
    at = names.index("Comment") if "Comment" in names else len(names) - 1
    return [*fields[:at], "|".join(fields[at : at + more + 1]), *fields[at + more + 1 :]]


def _sacct_job(row: Mapping[str, str]) -> Found:
    nodes = _hosts(row.get("NodeList", ""))
    count = _count(row.get("AllocNodes") or row.get("NNodes", "")) or len(nodes)
    times = [_instant(row[name]) for name in ("Submit", "Start", "End")]
    said = {field: row.get(name, "") for field, name in _SACCT.items()}
    return _job(row["JobID"], times, count, nodes, said)


def _gridengine(path: str, _: int) -> Iterator[Found]:
    """Grid Engine's accounting. A parallel job may have a line for each of its nodes."""
    runs: dict[tuple[str, str, int], AccountedJob] = {}
    for _number, line in numbered_lines(path):
        if line.startswith("#") or not line.strip():
            continue
        fields = line.rstrip("\n").split(":")
        if len(fields) < _GRIDENGINE_FIELDS:
            yield "lines that are too short"
            continue
        times = [_instant(fields[at]) for at in (8, 9, 10)]
        said = {
            "user": fields[3], "group": fields[2], "account": fields[6], "name": fields[4],
            "partition": fields[0], "comment": fields[39],
        }  # fmt: skip
        found = _job(f"{fields[5]}.{fields[35]}", times, 1, (fields[1],), said)
        if isinstance(found, str):
            yield found
            continue
        # Lines of a job's parts begin later than the job: they are told by its number and task.
        key = (fields[5], fields[35], found.submit_s)
        before = runs.get(key)
        runs[key] = found if before is None else _together(before, found)
    yield from runs.values()


def _together(one: AccountedJob, other: AccountedJob) -> AccountedJob:
    nodes = tuple(dict.fromkeys((*one.nodes, *other.nodes)))
    first = one if one.start_s <= other.start_s else other
    return replace(first, nodes=nodes, count=len(nodes), end_s=max(one.end_s, other.end_s))


def _swf(path: str, processors_per_node: int) -> Iterator[Found]:
    log = read_log(path)
    begin_s = log.unix_start_s or 0
    for row in range(len(log)):
        submit_s = begin_s + log.submit_s[row]
        start_s = submit_s + max(0, log.wait_s[row])
        times: list[int | None] = [submit_s, start_s, start_s + max(0, log.run_s[row])]
        said = {
            "user": str(log.user[row]), "group": str(log.group[row]), "name": str(log.executable[row]),
            "partition": str(log.queue[row]),
        }  # fmt: skip
        count = -(-log.processors[row] // processors_per_node)
        yield _job(str(log.job[row]), times, count, (), said)


def _table(path: str, _: int) -> Iterator[Found]:
    """A table with names of columns in its first line, as PM100 has them; converted to CSV."""
    csv.field_size_limit(MOST_FIELD_CHARACTERS)
    rows = csv.DictReader(line for _number, line in numbered_lines(path))
    names = set(rows.fieldnames or ())
    for accepted in (*_TABLE_TIMES, ("job_id", "id")):
        if not names & set(accepted):
            raise WorkloadError(f"{path}: has no column {accepted[0]}: it is not a table of jobs")
    try:
        for row in rows:
            yield _table_job(row)
    except csv.Error as error:
        raise WorkloadError(f"{path}: is no CSV: {error}") from error


def _table_job(row: Mapping[str, str | None]) -> Found:
    def first(names: Iterable[str]) -> str:
        return next((value for name in names if (value := row.get(name))), "")

    nodes = _listed(first(_TABLE_NODES))
    times = [_instant(first(names)) for names in _TABLE_TIMES]
    said = {field: first(names) for field, names in _TABLE.items()}
    return _job(first(("job_id", "id")), times, _count(first(_TABLE_COUNTS)) or len(nodes), nodes, said)


READERS: dict[str, Callable[[str, int], Iterator[Found]]] = {
    "sacct": _sacct,
    "gridengine": _gridengine,
    "swf": _swf,
    "table": _table,
}


def _job(
    key: str, times: list[int | None], count: int, nodes: tuple[str, ...], said: Mapping[str, str]
) -> Found:
    submit_s, start_s, end_s = times
    if not start_s or submit_s is None:
        return "that did not start"
    if end_s is None:
        return "that have not ended"
    if not submit_s <= start_s <= end_s:
        return "whose times contradict each other"
    if count < 1:
        return "without nodes"
    # Where more are counted than named, as of a list that was cut, the names are of no use.
    named = nodes if len(nodes) == count else ()
    return AccountedJob(
        key=key, submit_s=submit_s, start_s=start_s, end_s=end_s, count=count, nodes=named, said=said
    )


def _instant(text: str) -> int | None:
    """Seconds since 1970; a time without a zone is taken for UTC. Some Grid Engines count milliseconds."""
    if _NUMBER.fullmatch(text):
        return int(text)
    if re.fullmatch(r"[0-9]{13}", text):
        return int(text) // 1000
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return int((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def _count(text: str) -> int:
    plain = text.strip().removesuffix(".0")
    return int(plain) if _NUMBER.fullmatch(plain) else 0


def _hosts(text: str) -> tuple[str, ...]:
    """Nodes in Slurm's notation; none where it says that there are none."""
    try:
        return expand(text) if text and not text.startswith("None") else ()
    except TextError:
        return ()


def _listed(text: str) -> tuple[str, ...]:
    """Nodes as a table writes a list: [12, 15] or ['r1', 'r2'], or Slurm's notation."""
    inner = text.strip()
    if inner.startswith("["):
        words = re.split(r"[\s,]+", inner.strip("[]() "))
        return tuple(word.strip("'\"") for word in words if word.strip("'\""))
    return _hosts(inner)
