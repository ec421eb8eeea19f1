"""Several virtual machines saved to one disk at a time, what comes from another node, and a busy neighbour.

The other half of `bench/machines.py`, with its guests: a Linux guest until its job's script begins
(`script`), boot until the small guest speaks, suspension, resumption where it was, in another folder to which
all files are carried first and compared (`resume elsewhere`: another node's part, or a shared file system's,
without the link's time), and live migration at 1 Gbit/s for all together. One and several at once; bytes a
second beside those of the disk when nobody else writes. Meanwhile another program uses a processor, and the
last column says how much longer it took for the same: Entropy's Figure 3 in form. One machine may not cost it
more than two thirds of its processor. The line through suspensions and resumptions of all sizes is printed as
what `outrider sim leases` takes.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from statistics import linear_regression, median
from time import perf_counter, sleep
from typing import TYPE_CHECKING

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import Arguments, judged, lacking
from bench.machines import GIB, LINK_BYTES_PER_S, LOOK_S, NOBODY, READY_S, Bench, forget, memory_of, written
from cachemgr.machines.guest import channel
from cachemgr.machines.handover import copy_files, give, take
from cachemgr.machines.keeper import PROGRAM
from cachemgr.machines.live.migration import OtherFolder, migrate
from cachemgr.machines.wish import MIB, MachineJob, MachineWish
from testbed.linux_guest import append, linux_guest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cachemgr.machines.machine import Machine

COUNTING = "import sys\nn = 0\nwhile True:\n n += 1\n n % 100000 or print(n, flush=True)\n"
"""A program that does nothing but use a processor, and says how far it is."""
CALM_S = 2.0
GUEST = "GUEST"
"""Where the Linux guest is, kernel, initial RAM disk and command line; made by root, who runs no machine."""
LEAST_LINUX_MIB = 96
STEPS = ("script", "boot", "suspend", "resume", "resume elsewhere", "migrate")
MOST_SLOWDOWN = 3.0


@dataclass(frozen=True)
class BesideRow:
    """One step of so many machines at once, each of this size."""

    step: str
    memory_mib: int
    at_once: int
    seconds: float
    state_mib: float
    share_of_disk: float
    """All bytes of the step by its time, in units of the disk's own rate; 0 where no disk is meant."""
    slowdown: float
    """How much longer the neighbour took for the same, while it went on."""


class Neighbour:
    """A busy program of another user on the same node."""

    def __init__(self) -> None:
        self._path = Path(tempfile.mkstemp(prefix="neighbour-")[1])
        self._file = self._path.open("w")
        self._program = subprocess.Popen([sys.executable, "-c", COUNTING], stdout=self._file)
        self.calm_rate = 0.0

    def count(self) -> int:
        lines = self._path.read_text().splitlines()
        return int(lines[-1]) if lines and lines[-1].isdigit() else 0

    def measure_calm(self) -> None:
        before, begun_s = self.count(), perf_counter()
        while perf_counter() - begun_s < CALM_S or self.count() == before:
            os.sched_yield()
        self.calm_rate = (self.count() - before) / (perf_counter() - begun_s)

    def close(self) -> None:
        self._program.kill()
        self._program.wait()
        self._file.close()
        self._path.unlink()

    @contextmanager
    def watched(self, found: list[float]) -> Iterator[None]:
        """What is done within: its seconds, and the neighbour's slowdown meanwhile."""
        before, begun_s = self.count(), perf_counter()
        yield
        lasted_s = perf_counter() - begun_s
        rate = max(1, self.count() - before) / lasted_s
        found += [round(lasted_s, 4), round(self.calm_rate / rate, 4)]


def all_at_once(work: Callable[[Machine], object], machines: Sequence[Machine]) -> None:
    with ThreadPoolExecutor(len(machines)) as pool:
        list(pool.map(work, machines))


def measured(bench: Bench, memory_mib: int, at_once: int, neighbour: Neighbour) -> list[BesideRow]:
    """One round of all steps."""
    wish = bench.wish(memory_mib * MIB)
    machines = [bench.machine(f"a{number}") for number in range(at_once)]
    others = [bench.machine(f"b{number}") for number in range(at_once)]
    rows: list[BesideRow] = []
    neighbour.measure_calm()

    def step(name: str, work: Callable[[], None], disk_rate: float = 0.0) -> None:
        found: list[float] = []
        with neighbour.watched(found):
            work()
        share = size_bytes * at_once / found[0] / disk_rate if disk_rate else 0.0
        rows.append(
            BesideRow(name, memory_mib, at_once, found[0], size_bytes / MIB, round(share, 3), found[1])
        )

    size_bytes = 0
    if GUEST in os.environ:
        step("script", lambda: all_at_once(lambda each: _begun(each, memory_mib), machines))
        bench.drop(*machines)
    step("boot", lambda: all_at_once(lambda each: _boot(bench, each, wish), machines))
    step("suspend", lambda: all_at_once(lambda each: each.suspend(), machines))
    states = [Path(each.folder) / "state.1" for each in machines]
    size_bytes = int(median([path.stat().st_size for path in states]))
    plain = bench.folder / "plain"
    with memory_of(size_bytes) as memory, memoryview(memory) as view:
        disk_rate = len(view) / written(plain, view)
    plain.unlink()
    rows[-1] = _with_share(rows[-1], size_bytes, disk_rate)
    for path in states:
        forget(path)
    step("resume", lambda: all_at_once(lambda each: each.resume(), machines), disk_rate)
    for each in machines:
        bench.wait_for_words(each)
        each.suspend()
    step("resume elsewhere", lambda: _elsewhere(bench, machines, others))
    for each in others:
        bench.wait_for_words(each)
    bench.drop(*machines)
    pairs = list(zip(others, [bench.machine(f"c{number}") for number in range(at_once)], strict=True))
    rate = LINK_BYTES_PER_S // at_once
    step("migrate", lambda: _migrated(pairs, rate))
    bench.drop(*(target for _, target in pairs), *others)
    return rows


def _begun(machine: Machine, memory_mib: int) -> None:
    """A Linux guest boots, finds its job and begins the script."""
    kernel, initrd, append = os.environ[GUEST].split("\n")
    job = MachineJob(script="#!/bin/sh\nsleep 600\n")
    wish = MachineWish(
        name="bench", memory_bytes=max(LEAST_LINUX_MIB, memory_mib) * MIB, kernel=kernel, initrd=initrd,
        append=append, job=job,
    )  # fmt: skip
    machine.start(wish)
    until_s = perf_counter() + READY_S
    while not channel.has_said(machine.site.disk, machine.folder, "began"):
        if perf_counter() >= until_s:
            raise TimeoutError(f"the guest of {machine.folder} begins no script")
        sleep(LOOK_S)


def _boot(bench: Bench, machine: Machine, wish: object) -> None:
    machine.start(wish)  # type: ignore[arg-type]
    bench.wait_for_words(machine)


def _with_share(row: BesideRow, size_bytes: int, disk_rate: float) -> BesideRow:
    share = size_bytes * row.at_once / row.seconds / disk_rate
    return BesideRow(**{**asdict(row), "state_mib": size_bytes / MIB, "share_of_disk": round(share, 3)})


def _elsewhere(bench: Bench, machines: Sequence[Machine], others: Sequence[Machine]) -> None:
    """Files to another folder, the machine given and taken, and its guest goes on there."""
    for machine, other in zip(machines, others, strict=True):
        record = machine.status().record
        copy_files(bench.site.disk, machine, other, sorted(record.saved))
        take(other, give(machine, other.place), {})
    all_at_once(lambda each: each.resume(), others)


def _migrated(pairs: Sequence[tuple[Machine, Machine]], rate: int) -> None:
    with ThreadPoolExecutor(len(pairs)) as pool:
        begun = [
            pool.submit(migrate, machine, OtherFolder(other, {}), rate_bytes_per_s=rate)
            for machine, other in pairs
        ]
        for done in begun:
            done.result()


def fit(rows: Sequence[BesideRow], step: str) -> tuple[float, float]:
    """Seconds that any such step takes, and those for each GiB of all states on the disk."""
    those = [row for row in rows if row.step == step]
    sizes = [row.state_mib * row.at_once / 1024 for row in those]
    if len(set(sizes)) < 2:
        return 0.0, max(row.seconds / size for row, size in zip(those, sizes, strict=True))
    line = linear_regression(sizes, [row.seconds for row in those])
    return max(0.0, line.intercept), line.slope


def told(rows: Sequence[BesideRow]) -> str:
    """The table, and the model."""
    lines = [f"  {'step':17} {'MiB':>5} {'at once':>7} {'s':>7} {'of disk':>8} {'neighbour':>10}"]
    lines += [
        f"  {row.step:17} {row.memory_mib:5} {row.at_once:7} {row.seconds:7.2f} {row.share_of_disk:8.2f} "
        f"{row.slowdown:9.2f}x"
        for row in rows
    ]
    words = []
    for step in ("suspend", "resume"):
        fixed_s, each_s = fit(rows, step)
        rate = GIB / max(each_s, 1e-9) / 1e6
        words.append(f"--{step}-rate {max(1, round(rate))} --{step}-seconds {ceil(fixed_s)}")
        lines.append(f"  {step}: {fixed_s:.2f} s + {each_s:.2f} s/GiB of all on the disk, {rate:.0f} MB/s")
    lines.append(f"  outrider sim leases {' '.join(words)} --shared-disk")
    return "\n".join(lines)


def drawn(rows: Sequence[BesideRow], path: Path) -> None:
    """Time of each step over memory, and the neighbour's slowdown: a colour a step, dashes for several."""
    from outrider.sim.plots.style import COLOURS, new_figure, save

    figure = new_figure(11, 4.5)
    times, slow = figure.subplots(1, 2)
    sizes = sorted({row.memory_mib for row in rows})
    for colour, step in zip(COLOURS, STEPS, strict=False):
        for at_once in sorted({row.at_once for row in rows}):
            those = [row for row in rows if (row.step, row.at_once) == (step, at_once)]
            places = [row.memory_mib for row in those]
            name = f"{step}{'' if at_once == 1 else f', {at_once} at once'}"
            dashes = "-" if at_once == 1 else "--"
            for axes, values in (
                (times, [row.seconds for row in those]),
                (slow, [row.slowdown for row in those]),
            ):
                axes.plot(places, values, marker=".", color=colour, linestyle=dashes, label=name)
    times.set_yscale("log")
    for axes, words in ((times, "seconds"), (slow, "slowdown of a busy neighbour")):
        axes.set_xscale("log")
        axes.set_xticks(sizes, [str(size) for size in sizes])
        axes.minorticks_off()
        axes.set_xlabel("touched memory (MiB)")
        axes.set_ylabel(words)
        axes.grid(alpha=0.3)
    figure.legend(*slow.get_legend_handles_labels(), loc="outside right center")
    save(figure, path)


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--memory-mib", "128,256,512,1024", "64", "sizes of memory", kind=str)
    parser.add("--at-once", "1,3", "1,2", "numbers of machines at a time", kind=str)
    parser.add_argument("--folder", type=Path, default=None, help="on the disk that is to be measured")
    parser.add_argument("--csv", type=Path, default=None, help="where the rows go")
    parser.add_argument("--plot", type=Path, default=None, help="a picture of them")
    given = parser.parse_args() if "--help" in sys.argv else parser.given()
    missing = [tool for tool in (PROGRAM, "/usr/bin/as", "/usr/bin/ld") if not os.path.exists(tool)]
    if lacking(f"needs {', '.join(missing)}: make tools" if missing else None):
        return 2
    if os.geteuid() == 0:
        return _as_nobody(given.csv, given.plot)
    folder = Path(tempfile.mkdtemp(prefix="bench-beside-", dir=given.folder))
    neighbour = Neighbour()
    rows: list[BesideRow] = []
    try:
        bench = Bench(folder)
        facts = bench.site.facts()
        print(f"QEMU {facts.version}, {facts.accelerator}: {facts.reason}", flush=True)
        for at_once in map(int, given.at_once.split(",")):
            for memory_mib in map(int, given.memory_mib.split(",")):
                rows += measured(bench, memory_mib, at_once, neighbour)
    finally:
        neighbour.close()
        shutil.rmtree(folder, ignore_errors=True)
    print(told(rows))
    with open(os.environ.get("ROWS", os.devnull), "w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(asdict(rows[0])))
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
    alone = [row.slowdown for row in rows if row.at_once == 1]
    return judged(given, is_good=median(alone) <= MOST_SLOWDOWN)


def _as_nobody(table: Path | None, picture: Path | None) -> int:
    """Machines do not run as root. The system's Python is one that everybody can read."""
    with tempfile.NamedTemporaryFile("r", suffix=".csv") as rows:
        os.chown(rows.name, NOBODY, NOBODY)
        environment = {
            "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[1]), "ROWS": rows.name
        }  # fmt: skip
        if all(shutil.which(tool) for tool in ("apt-get", "dpkg-deb", "cpio", "lz4")):
            guest = linux_guest()
            environment[GUEST] = f"{guest.kernel}\n{guest.initrd}\n{append()}"
        done = subprocess.run(
            ["/usr/bin/python3", "-B", __file__, *sys.argv[1:]],
            user=NOBODY, group=NOBODY, extra_groups=[], env=environment, cwd="/",
        )  # fmt: skip
        text = rows.read()
    if text and table is not None:
        table.write_text(text)
    if text and picture is not None:
        read = csv.DictReader(text.splitlines())
        drawn([_row(each) for each in read], picture)
    return done.returncode


def _row(plain: dict[str, str]) -> BesideRow:
    kinds = {"step": str, "memory_mib": int, "at_once": int}
    return BesideRow(**{name: kinds.get(name, float)(text) for name, text in plain.items()})


if __name__ == "__main__":
    sys.exit(main())
