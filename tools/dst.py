"""Runs the simulation of the service for many seeds, or shows one of them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from multiprocessing import Pool

from tests.simulation.dst.simulation import Run, simulate

SHOWN_LINES = 40


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="dst", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds are run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--processes", type=int, default=1, help="how many at a time")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--harsh", action="store_true", help="only worlds in which much goes wrong")
    parser.add_argument("--links", action="store_true", help="only worlds with several links")
    parser.add_argument("--kinds", action="store_true", help="only worlds with leases of all kinds")
    parser.add_argument("--layers", action="store_true", help="only worlds with images in layers")
    parser.add_argument("--log", action="store_true", help="print the whole log of --seed")
    parser.add_argument("--brief", action="store_true", help="print one line for each kind of failure")
    options = parser.parse_args(argv)
    run_one = partial(
        simulate,
        is_harsh=options.harsh,
        has_links=options.links,
        has_kinds=options.kinds,
        has_layers=options.layers,
    )
    if options.seed is not None:
        run = run_one(options.seed, keeps_all=options.log)
        if options.log:
            print("\n".join(run.lines))
        _report(run, is_brief=options.log)
        return 1 if run.violation else 0
    seeds = range(options.first, options.first + options.seeds)
    return _many(_runs(seeds, options.processes, run_one), options.brief)


def _runs(seeds: Iterable[int], processes: int, run: Callable[[int], Run]) -> Iterator[Run]:
    if processes == 1:
        yield from map(run, seeds)
        return
    with Pool(processes, maxtasksperchild=200) as pool:
        yield from pool.imap_unordered(run, seeds, chunksize=4)


def _many(runs: Iterator[Run], is_brief: bool) -> int:
    count = failed = events = simulated_s = told = deaths = 0
    kinds: dict[str, list[int]] = {}
    for run in runs:
        count += 1
        events += run.events
        simulated_s += run.simulated_s
        told += run.told
        deaths += run.deaths
        if run.violation:
            failed += 1
            kinds.setdefault(_kind(run.violation), []).append(run.seed)
            if not is_brief:
                _report(run, is_brief=False)
    print(
        f"{count} seeds, {failed} failed; {events} lines, {simulated_s} simulated seconds, "
        f"{told} promises, {deaths} deaths of the service"
    )
    for kind, seeds in sorted(kinds.items(), key=lambda each: (-len(each[1]), each[0])):
        first = ", ".join(map(str, sorted(seeds)[:6]))
        print(f"{len(seeds):6} {kind}: seeds {first}")
    return 1 if failed else 0


def _kind(violation: str) -> str:
    """A violation without its names and numbers."""
    words = violation.splitlines()[0]
    return " ".join("…" if any(letter.isdigit() for letter in word) else word for word in words.split())[:110]


def _report(run: Run, *, is_brief: bool) -> None:
    if run.violation and not is_brief:
        print("\n".join(run.lines[-SHOWN_LINES:]))
    print(f"seed {run.seed}: {run.violation or 'nothing found'} (digest {run.digest})")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
