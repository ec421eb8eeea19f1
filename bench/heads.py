"""outriderd over PostgreSQL beside SQLite: decisions and starts, with the same store in both.

A store is filled as by `bench/service.py` and copied to a private PostgreSQL server with what
`outrider store migrate` does. Then the same requests are sent to a service over the one and over the other
in turn, so that whoever else uses the machine is in the way of both.
"""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking
from bench.service import START_MS, prepare
from bench.service_load import Asks, RequestTimes, in_turn
from bench.service_process import BenchedService
from bench.service_site import BenchedSite
from cachemgr.base.clock import SystemClock
from outrider.store.migration import migrate_store
from testbed.postgresql import PostgresServer, programs

MOST_RATIO = 2.0
BATCH = 10


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(__doc__)
    parser.add("--nodes", 10_000, 500)
    parser.add("--reservations", 20_000, 300)
    parser.add("--decisions", 200, 20, "how many on each")
    parser.add("--starts", 5, 1, "how many of each")
    parser.add_argument("--filled", type=Path, help="take this filled folder instead of making one")
    options = parser.given(argv)
    if lacking(None if programs() else "PostgreSQL's server is not installed"):
        return NOT_MEASURED
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        file = BenchedSite(folder=folder / "sqlite", nodes=options.nodes)
        prepare(file, options.reservations, options.filled)
        server = PostgresServer(folder / "pg")
        server.start()
        try:
            database = _copied(file, folder / "postgresql", server)
            return judged(options, is_good=_measured(file, database, options.decisions, options.starts))
        finally:
            server.remove()


def _copied(file: BenchedSite, folder: Path, server: PostgresServer) -> BenchedSite:
    """The same site with its store in a database."""
    site = BenchedSite(folder=folder, nodes=file.nodes)
    shutil.copytree(file.folder, folder, ignore=shutil.ignore_patterns("*.sqlite*"))
    folder.chmod(0o711)
    clock = SystemClock()
    began_s = clock.monotonic_s()
    rows = migrate_store(str(file.store), server.place, clock.now_s()).rows
    took_s = clock.monotonic_s() - began_s
    print(f"copied to PostgreSQL and compared: {sum(rows.values()):,} rows in {took_s:.1f} s", flush=True)
    text = file.config.read_text().replace(str(file.folder), str(folder))
    site.config.write_text(json.dumps({**json.loads(text), "store": server.place}))
    return site


def _measured(file: BenchedSite, database: BenchedSite, decisions: int, starts: int) -> bool:
    services = {"SQLite": BenchedService(file), "PostgreSQL": BenchedService(database)}
    try:
        started = {name: _started(name, each, starts) for name, each in services.items()}
        for each in services.values():
            each.start()
        taken = _taken(services, decisions)
    finally:
        for each in services.values():
            each.end(signal.SIGKILL)
    is_good = True
    for words, of in (("by the wall", "wall_ms"), ("processor of the service", "cpu_ms")):
        medians = {name: statistics.median(getattr(each, of)) for name, each in taken.items()}
        ratio = medians["PostgreSQL"] / medians["SQLite"]
        figures = ", ".join(f"{name} {median:.1f} ms" for name, median in medians.items())
        print(f"an accepted reservation, {words}, median: {figures}; {ratio:.2f} of {MOST_RATIO:.0f} times")
        is_good &= ratio <= MOST_RATIO
    return is_good and max(started.values()) <= START_MS


def _started(name: str, service: BenchedService, count: int) -> float:
    """Milliseconds of processor until something is promised, the most; by the wall it is said."""
    found = []
    for _ in range(count):
        found.append(service.start())
        service.end(signal.SIGKILL)
    wall_ms = [1000 * each.promises_s for each in found]
    cpu_ms = [1000 * each.cpu_s for each in found]
    print(
        f"{name}: start after SIGKILL to the first promise, median {statistics.median(wall_ms):.0f} ms by "
        f"the wall, {statistics.median(cpu_ms):.0f} ms of processor of {START_MS}",
        flush=True,
    )
    return max(cpu_ms)


def _taken(services: dict[str, BenchedService], count: int) -> dict[str, RequestTimes]:
    """The same requests to both, some to the one, then as many to the other."""
    taken = {name: RequestTimes() for name in services}
    asks = {name: iter(Asks(each.place, 1000).usual, None) for name, each in services.items()}
    for _ in range(count // BATCH):
        for name, service in services.items():
            found = in_turn(service, "reservations", itertools.islice(asks[name], BATCH))
            for each in found.values():
                taken[name].wall_ms += each.wall_ms
                taken[name].cpu_ms += each.cpu_ms
    return taken


if __name__ == "__main__":
    sys.exit(main())
