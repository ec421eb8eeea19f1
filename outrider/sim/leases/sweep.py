"""Many runs of experiments on leases, each written when it is done, so that a sweep that was killed goes on.

A run's file is named after everything that the run depends on, and appears under that name when it is
complete. So any number of processes, on any machines that see the folder, can do parts of one sweep.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields, replace
from hashlib import sha256
from itertools import product
from pathlib import Path

from outrider.sim.experiments.parallel import Progress, in_parallel
from outrider.sim.leases.cluster import on_cluster
from outrider.sim.leases.experiment import LeaseCase, LeaseRow, alone, row_of, run_case
from outrider.sim.leases.injection import HOURS, SIZES, WORK_PERCENTS, Injection
from outrider.sim.leases.measures import LeaseMeasures
from outrider.sim.leases.systems import SystemTerms, check
from outrider.sim.leases.users import MODELS

VERSION = 3
"""Of what a run's file means: results of another one are not taken."""

_LISTS: dict[str, tuple[object, ...]] = {
    "work": WORK_PERCENTS,
    "hours": HOURS,
    "sizes": tuple(SIZES),
    "systems": ("suspend",),
    "policies": ("none", "all", "hour-share=25", "hour-share=50", "protect=20"),
    "users": MODELS,
    "premiums": (50,),
}
_NUMBERS = {
    "from_day": 30,
    "days": 30,
    "processors_per_node": 1,
    "images": 0,
    "waiting_price": 10,
    "seeds": 1,
    "first_seed": 1,
}
_WISHES = {"notice_h": 24, "no_show_percent": 0, "early_percent": 0}


JOBS = 4
"""Of a batch system, unless another number is asked for."""


class SweepError(ValueError):
    """A sweep that cannot be made of what the file says."""


def cases_of(given: Mapping[str, object], folder: Path) -> tuple[list[LeaseCase], list[int]]:
    """The cases of a file, in their order, and the seeds. Logs are named as seen from its folder.

    What is not given is as in the paper: all 72 kinds of reservation, four models of users.
    """
    known = {"logs", "terms", *_LISTS, *_NUMBERS, *_WISHES}
    if unknown := sorted(set(given) - known):
        raise SweepError(f"{unknown[0]}: unknown; known are {', '.join(sorted(known))}")
    logs = _list(given, "logs", ())
    if not logs:
        raise SweepError("logs: name at least one")
    terms = given.get("terms", {})
    names = {each.name for each in fields(SystemTerms)} - {"has_images"}
    if not isinstance(terms, Mapping) or set(terms) - names:
        raise SweepError(f"terms: keys are {', '.join(sorted(names))}")
    lists = {name: _list(given, name, default) for name, default in _LISTS.items()}
    numbers = {name: _number(given, name, default) for name, default in (_NUMBERS | _WISHES).items()}
    seeds = range(numbers["first_seed"], numbers["first_seed"] + numbers["seeds"])
    try:
        found = [
            LeaseCase(
                log=str(folder / str(log)),
                from_day=numbers["from_day"],
                days=numbers["days"],
                processors_per_node=numbers["processors_per_node"],
                images=numbers["images"],
                waiting_price=numbers["waiting_price"],
                injection=Injection(
                    work_percent=_whole("work", work),
                    hours=_whole("hours", hours),
                    size=str(size),
                    notice_s=3600 * numbers["notice_h"],
                    no_show_percent=numbers["no_show_percent"],
                    early_percent=numbers["early_percent"],
                ),
                system=str(system),
                policy=str(policy),
                users=str(users),
                premium_percent=_whole("premiums", premium),
                terms=SystemTerms(**terms),
            )
            for log, work, hours, size, system, policy, users, premium in product(logs, *lists.values())
        ]
        for case in found:
            check(case.system, case.policy)
            if case.users not in MODELS:
                raise SweepError(f"users: {case.users!r}; choose from {', '.join(MODELS)}")
    except (TypeError, ValueError) as error:
        raise SweepError(str(error)) from error
    return found, list(seeds)


def _list(given: Mapping[str, object], name: str, default: tuple[object, ...]) -> tuple[object, ...]:
    value = given.get(name, default)
    if not isinstance(value, (list, tuple)) or (not value and name != "logs"):
        raise SweepError(f"{name}: {value!r}; write a list")
    return tuple(value)


def _number(given: Mapping[str, object], name: str, default: int) -> int:
    return _whole(name, given.get(name, default))


def _whole(name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SweepError(f"{name}: {value!r}; write a whole number")
    return value


def runs_of(cases: Sequence[LeaseCase], seeds: Sequence[int]) -> list[LeaseCase]:
    """Every run that is needed, once: the cases with every seed, and what they are compared with."""
    order: dict[LeaseCase, None] = {}
    for case in cases:
        for seed in seeds:
            order[replace(case, seed=seed)] = None
            order[alone(replace(case, seed=seed))] = None
    return list(order)


def run_file(case: LeaseCase, folder: Path) -> Path:
    """Where a run's result is. A log counts by its name, so that folders can be moved."""
    what = json.dumps({"version": VERSION, **asdict(replace(case, log=Path(case.log).name))}, sort_keys=True)
    return folder / f"{sha256(what.encode()).hexdigest()[:24]}.json"


def read_run(case: LeaseCase, folder: Path) -> LeaseMeasures | None:
    """A run's result, if it is there."""
    try:
        return LeaseMeasures(**json.loads(run_file(case, folder).read_text()))
    except FileNotFoundError:
        return None
    except (TypeError, ValueError) as error:
        raise SweepError(f"{run_file(case, folder)}: not the result of a run ({error}); remove it") from error


def do_run(case: LeaseCase, folder: Path) -> None:
    """Run it and write its result, whole or not at all."""
    path = run_file(case, folder)
    text = json.dumps(asdict(run_case(case)), sort_keys=True)
    beside = path.with_suffix(f".{os.getpid()}.part")
    with open(beside, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)


def sweep(
    cases: Sequence[LeaseCase],
    seeds: Sequence[int],
    folder: Path,
    *,
    part: tuple[int, int] = (1, 1),
    workers: int | None = None,
    engine: str | None = None,
    on_progress: Progress | None = None,
) -> int:
    """Do what is not done yet of a part of the runs; how many there were to do.

    With an engine `workers` jobs of a batch system do it, else as many processes of this machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    number, parts = part
    own = runs_of(cases, seeds)[number - 1 :: parts]
    missing = [each for each in own if not run_file(each, folder).exists()]
    already = len(own) - len(missing)
    if on_progress is not None and missing:
        on_progress(already, len(own))

    def tell(done: int, _: int) -> None:
        if on_progress is not None:
            on_progress(already + done, len(own))

    pieces = [(each, folder) for each in missing]
    if missing and engine is not None:
        on_cluster(engine, do_run, pieces, jobs=workers or JOBS, on_progress=tell)
    elif missing:
        in_parallel(do_run, pieces, workers=workers, on_progress=tell)
    return len(missing)


def rows_of(cases: Sequence[LeaseCase], seeds: Sequence[int], folder: Path) -> Iterator[LeaseRow]:
    """The rows of a sweep of which every run is there."""
    measured: dict[LeaseCase, LeaseMeasures] = {}
    for each in runs_of(cases, seeds):
        found = read_run(each, folder)
        if found is None:
            raise SweepError(f"{run_file(each, folder)}: not there yet: run the sweep without --part")
        measured[each] = found
    for case in cases:
        yield row_of(case, seeds, measured)
