"""A job as a site's accounting has it, and which image it would have wanted."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from outrider.metadata.errors import TextError
from outrider.metadata.notation.amounts import size_bytes as parse_size
from outrider.sim.workload.trace import WorkloadError

FIELDS = ("user", "group", "account", "name", "partition", "comment")
"""What of a job a map may look at."""
ANY = "any"


@dataclass(frozen=True, kw_only=True, slots=True)
class AccountedJob:
    """One run of a job. `nodes` are names, or empty where the accounting has none; `count` is how many."""

    key: str
    submit_s: int
    start_s: int
    end_s: int
    count: int
    nodes: tuple[str, ...] = ()
    said: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Accounting:
    """What was read: jobs by their start, and how many lines were passed over and why."""

    jobs: tuple[AccountedJob, ...]
    passed_over: Mapping[str, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class MappedImage:
    name: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    field: str
    pattern: str
    image: MappedImage


class ImageMap:
    """Which job wants which image: the first rule that fits counts."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)

    def image_of(self, job: AccountedJob) -> MappedImage | None:
        for rule in self._rules:
            if rule.field == ANY or fnmatchcase(job.said.get(rule.field, ""), rule.pattern):
                return rule.image
        return None


def read_map(path: str | os.PathLike[str]) -> ImageMap:
    """A CSV file with the columns field, pattern, image, size. Raises WorkloadError."""
    rules = []
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = csv.reader(line for line in file if line.strip() and not line.startswith("#"))
            for number, row in enumerate(rows, 1):
                if number == 1 and [each.strip() for each in row] == ["field", "pattern", "image", "size"]:
                    continue
                rules.append(_rule(path, number, [each.strip() for each in row]))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise WorkloadError(f"{path}: cannot be read ({error}): name a file of rules") from error
    if not rules:
        raise WorkloadError(f"{path}: has no rules: write lines like name,train*,pytorch.sif,6GiB")
    return ImageMap(rules)


def _rule(path: str | os.PathLike[str], number: int, row: list[str]) -> Rule:
    where = f"{path}: rule {number}"
    if len(row) != 4:
        raise WorkloadError(f"{where} has {len(row)} columns: write field,pattern,image,size")
    field, pattern, name, size = row
    if field not in (*FIELDS, ANY):
        raise WorkloadError(f"{where}: {field!r} is not one of {', '.join((*FIELDS, ANY))}")
    try:
        size_bytes = parse_size(size)
    except TextError as error:
        raise WorkloadError(f"{where}: size: {error}") from error
    if not name or size_bytes < 1:
        raise WorkloadError(f"{where}: an image has a name and a size of 1 byte or more")
    return Rule(field=field, pattern=pattern, image=MappedImage(name=name, size_bytes=size_bytes))
