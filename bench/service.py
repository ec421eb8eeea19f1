"""outriderd under load: decisions, restarts, a hundred clients, the command line, at 10,000 nodes.

Fills a store with 20,000 accepted reservations, copies it to the disk, and runs the real service
over it: its process, loop, desk, workers, web server, socket and store; only nodes and the batch
system are played (`service_world`). Each figure stands beside its limit, and the last column says
how much of the limit it is. Beside the wall's time there is processor time of the service, since
others may use the machine; what the service waited for a processor is in the last line of a part.
"""

from __future__ import annotations

import itertools
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import process_time

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.admission import percentile
from bench.frame import Arguments
from bench.service_load import (
    Asks,
    Body,
    RequestTimes,
    command_line,
    crowd,
    in_turn,
    interpreter,
)
from bench.service_process import BenchedService
from bench.service_site import BenchedSite

DECISION_MS = 50
START_MS = 5_000
STATUS_MS = 200
CLIENTS = 100


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(__doc__)
    parser.add("--nodes", 10_000, 500)
    parser.add("--reservations", 20_000, 500)
    parser.add_argument("--folder", type=Path, help="where the store is to be; else a temporary folder")
    parser.add_argument("--filled", type=Path, help="take this filled folder instead of making one")
    parser.add("--times", 10, 1, "how often everything is repeated, in tens")
    options = parser.given(argv)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="outrider-bench-") as folder:
        place = BenchedSite(folder=Path(folder), nodes=options.nodes)
        prepare(place, options.reservations, options.filled)
        service = BenchedService(place)
        try:
            _measure(service, options.times)
        finally:
            service.end(signal.SIGKILL)
    return 0


def prepare(place: BenchedSite, reservations: int, filled: Path | None) -> None:
    """The store is made in memory, where nobody waits for a disk, and then copied."""
    from bench.service_site import write_config

    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as made:
        if filled is None:
            script = Path(__file__).with_name("service_fill.py")
            command = [sys.executable, str(script), "--folder", made]
            command += ["--nodes", str(place.nodes), "--reservations", str(reservations)]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
            print(
                f"{place.nodes} nodes; {reservations} reservations of {said[0]} asked for, on {said[1]} nodes"
            )
        shutil.copytree(filled or made, place.folder, dirs_exist_ok=True)
    # Clients of other users connect to a socket in it.
    place.folder.chmod(0o711)
    write_config(place)
    print(f"store: {place.store.stat().st_size / 1e6:.0f} MB in {place.folder}", flush=True)


def _measure(service: BenchedService, times: int) -> None:
    print(f"a million additions take {_additions_ms():.0f} ms of processor here and now")
    print(f"{'':52} {'n':>5} {'median':>9} {'p99':>9} {'worst':>9}   {'limit':>7}  of it", flush=True)
    _starts(service, max(2, times // 2))
    service.start()
    _decisions(service, times)
    _command_lines(service, times)
    _crowd(service, 2.0 * times)


def _starts(service: BenchedService, times: int) -> None:
    for words, by in (("SIGTERM", signal.SIGTERM), ("SIGKILL", signal.SIGKILL)):
        # So that there is something to be written and lost, or not.
        service.start()
        in_turn(service, "reservations", _bodies(Asks(service.place, 1).usual, 5))
        service.end(by)
        found = []
        for _ in range(times):
            found.append(service.start())
            memory = service.resident_bytes()
            service.end(by)
        _row(f"start after {words}, to the first answer", [1000 * each.answers_s for each in found], START_MS)
        _row("  to the first promise", [1000 * each.promises_s for each in found], START_MS)
        _row("  processor time of it", [1000 * each.cpu_s for each in found], START_MS)
    print(f"  memory of the service: {memory / 1e6:.0f} MB", flush=True)


def _decisions(service: BenchedService, times: int) -> None:
    asks, before = Asks(service.place, 1000), service.used()
    for verb, make, count in (
        ("reservations", asks.usual, 50 * times),
        ("plans", asks.usual, 20 * times),
        ("plans", asks.crowded, 20 * times),
        ("plans", asks.hasty, 10 * times),
        ("plans", asks.vast, 5 * times),
        ("plans", asks.impossible, 10 * times),
    ):
        print(f" {make.__name__} {verb}: {(make.__doc__ or '').partition(chr(10))[0]}")
        for kind, taken in sorted(in_turn(service, verb, _bodies(make, count)).items()):
            _taken(f"  {kind}", taken)
    _say_used(service, before.cpu_s, before.queued_s)


def _taken(words: str, taken: RequestTimes) -> None:
    _row(words, taken.wall_ms, DECISION_MS)
    _row("    processor time of it", taken.cpu_ms, DECISION_MS)


def _command_lines(service: BenchedService, times: int) -> None:
    before, asks = service.used(), Asks(service.place, 2000)
    bare = [interpreter() for _ in range(5 * times)]
    _row("python -c pass", [each.wall_ms for each in bare], STATUS_MS)
    for words, repeated in (("status", 5 * times), ("list", times)):
        ran = [command_line(service.place, [words]) for _ in range(repeated)]
        _row(f"outrider {words}, whole process", [each.wall_ms for each in ran], STATUS_MS)
        _row("  processor time of it", [each.cpu_ms for each in ran], STATUS_MS)
        if words == "status":
            share = statistics.median(each.wall_ms for each in bare) / statistics.median(
                each.wall_ms for each in ran
            )
            print(f"  of which the interpreter's start alone: {share:.0%}")
    file, walls, cpus = service.place.folder / "ws.yaml", [], []
    for body in _bodies(asks.usual, 5 * times):
        file.write_text(body["workspace"])
        each = command_line(service.place, ["reserve", str(file)])
        walls.append(each.wall_ms)
        cpus.append(each.cpu_ms)
    _row("outrider reserve, whole process", walls, None)
    _row("  processor time of it", cpus, None)
    _say_used(service, before.cpu_s, before.queued_s)


def _crowd(service: BenchedService, seconds: float) -> None:
    before = service.used()
    found = crowd(service.place, CLIENTS, seconds)
    count = sum(len(each) for each in found.wall_ms.values())
    print(
        f"{CLIENTS} clients at once for {found.seconds:.0f} s: {count} answers, {count / found.seconds:.0f} "
        f"a second; {len(found.errors)} errors; {found.asked_again} were asked to come again; "
        f"the clients themselves used {found.client_cpu_s:.1f} s of processor"
    )
    for kind, walls in sorted(found.wall_ms.items()):
        _row(f"  {kind}", walls, None)
    for words in found.errors[:5]:
        print(f"  {words}")
    _say_used(service, before.cpu_s, before.queued_s)


def _additions_ms() -> float:
    """What processor time is worth on this machine: with others on its cores it is worth less."""
    began_s = process_time()
    total = 0
    for number in range(1_000_000):
        total += number
    return 1000 * (process_time() - began_s)


def _bodies(make: Callable[[], Body], count: int) -> Iterator[Body]:
    return itertools.islice(iter(make, None), count)


def _row(words: str, values: list[float], limit: float | None) -> None:
    median, high, worst = statistics.median(values), percentile(values, 99), max(values)
    against = f"   {limit:>6} ms {high / limit:5.2f}" if limit is not None else ""
    print(
        f"{words:52} {len(values):>5} {median:>6.1f} ms {high:>6.1f} ms {worst:>6.1f} ms{against}", flush=True
    )


def _say_used(service: BenchedService, cpu_s: float, queued_s: float) -> None:
    used = service.used()
    print(
        f"  the service used {used.cpu_s - cpu_s:.1f} s of processor and waited "
        f"{used.queued_s - queued_s:.1f} s for one",
        flush=True,
    )


if __name__ == "__main__":
    raise SystemExit(main())
