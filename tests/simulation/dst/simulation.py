"""One simulated world from its seed: the real service, and everything around it made up."""

from __future__ import annotations

import shutil
import tempfile
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from outrider.core.model import Resources
from outrider.metadata.policies import ExternalSection, Policies, RuleSection
from outrider.rms.base import RmsNode
from outrider.rms.twin import Hooks, Twin, TwinRules
from tests.simulation.dst.clockwork import Clockwork, Trace, Violation
from tests.simulation.dst.invariants.safety import Safety
from tests.simulation.dst.invariants.settling import JobRelease
from tests.simulation.dst.invariants.sharing import Sharing
from tests.simulation.dst.jobs import Jobs
from tests.simulation.dst.knobs import Knobs, draw, in_layers, in_turn, over_links
from tests.simulation.dst.lease_kinds import YIELDING, LeaseKinds
from tests.simulation.dst.machines import NODE_MEMORY_MIB, SAVED_AFTER_S, MachineJobs, with_moves
from tests.simulation.dst.mishaps import Mishaps
from tests.simulation.dst.office import MakeDesk, Office, make_desk
from tests.simulation.dst.people import MARGIN_S, USERS, People
from tests.simulation.dst.pools import Network
from tests.simulation.dst.privacy import Privacy
from tests.simulation.dst.rush import Rush
from tests.simulation.dst.wire import Wire, parts_of

SETTLE_S = 480
"""After the last end: for effects that are tried again and pins that are taken away."""
LATE_REQUESTS = 3
MOST_SIMULATED_MS = 20_000_000
MEMORY = Path("/dev/shm")


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """What came of a seed. `violation` is empty if nothing was found."""

    seed: int
    digest: str
    violation: str
    lines: tuple[str, ...]
    events: int
    simulated_s: int
    told: int
    deaths: int
    yielded: int
    """How often preemptible jobs were signalled or requeued."""


class Simulation:
    """A world and its people."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        make: MakeDesk = make_desk,
        keeps_all: bool = False,
        is_harsh: bool = False,
        starts_jobs: bool | None = None,
        has_links: bool = False,
        has_kinds: bool = False,
        has_layers: bool = False,
    ) -> None:
        self.random = random = Random(seed)
        drawn: Knobs = in_turn(draw(random, is_harsh=is_harsh), seed, starts_jobs=starts_jobs)
        linked = over_links(drawn) if has_links else drawn
        linked = in_layers(linked) if has_layers else linked
        self.knobs = with_moves(linked, seed) if has_kinds else linked
        self.clock = clock = Clockwork()
        self.trace = trace = Trace(clock, keeps_all=keeps_all)
        knobs, path = self.knobs, folder / "store"
        names = tuple(f"n{number}" for number in range(knobs.nodes))
        self.network = Network(
            clock,
            trace,
            random,
            names=names,
            limit_bytes=knobs.pool_bytes,
            origin_rate=knobs.origin_rate,
            node_rate=knobs.node_rate,
            wrong_digests=knobs.wrong_digests,
            parts=parts_of(knobs),
        )
        self.network.poisoned = knobs.poisoned
        self.twin = self._batch_system(names, seed, has_machines=has_kinds)
        self.jobs = Jobs(clock, trace, seed, knobs, self.network, self.twin)
        self.wire = Wire(clock, trace, random, knobs, self.network, self.twin)
        policies = policies_of(knobs, yields=has_kinds)
        self.office = Office(clock, trace, random, knobs, policies, path, self.wire, make)
        self.people = People(clock, trace, random, knobs, self.office)
        privacy = Privacy(seed, knobs, is_wanted=has_kinds and not has_layers)
        self.jobs.privacy = self.people.privacy = privacy
        self.network.closed = privacy.closed
        self.mishaps = Mishaps(clock, trace, random, knobs, self.network, self.twin, self.office)
        self.safety = Safety(
            clock, trace, knobs, path, self.network, self.office, self.people, self.mishaps, self.twin
        )
        self.rush = Rush(clock, seed, knobs, self.jobs, self.people)
        self.kinds = LeaseKinds(clock, seed, knobs, self.office, self.people) if has_kinds else None
        self.machines = MachineJobs(clock, seed, knobs, self.twin, self.jobs, self.people)
        self.sharing = Sharing(clock, knobs, self.network, self.office)
        self.office.handled = self._check
        self.office.was_away = self.network.service_was_away
        self.settling = JobRelease(
            clock,
            self.network,
            self.twin,
            self.office,
            self.safety,
            self.mishaps,
            knobs.troubled_s,
            knobs.is_calm,
        )

    def _batch_system(self, names: Iterable[str], seed: int, *, has_machines: bool) -> Twin:
        capacity = Resources.of(cpus=self.knobs.cpus)
        rules = TwinRules()
        if has_machines:
            capacity = Resources.of(cpus=self.knobs.cpus, memory_mib=NODE_MEMORY_MIB)
            rules = TwinRules(machine_save_s=SAVED_AFTER_S, moves_machines=bool(seed % 2))
        return Twin(
            [RmsNode(name=name, capacity=capacity) for name in names],
            clock=self.clock,
            rules=rules,
            hooks=Hooks(prolog=lambda job, node: self.jobs.prolog(job, node)),
        )

    def run(self) -> None:
        """Trouble first, then calm, then the last look."""
        knobs, clock = self.knobs, self.clock
        self.trace.note(str(knobs))
        self.office.open(is_new=True)
        self.mishaps.plan()
        self.jobs.plan()
        self.jobs.plan_long()
        self.rush.plan()
        if self.kinds is not None:
            self.kinds.plan()
            if not knobs.layer_bytes:
                # A machine's disk is no image in layers.
                self.machines.plan()
        for _ in range(knobs.requests):
            clock.after(self.random.randrange(knobs.troubled_s * 1000), self.people.act)
        clock.run(knobs.troubled_s * 1000)
        self.trace.note("calm")
        self.wire.is_calm = self.office.is_calm = self.people.is_calm = True
        self.mishaps.end_all()
        if knobs.dies_in_calm:
            clock.after(self.random.randrange(200_000), self.mishaps.kill_service)
        for _ in range(LATE_REQUESTS):
            clock.after(
                self.random.randrange(60_000),
                lambda: self.people.send(
                    self.random.choice(USERS),
                    self.people.reserve(self.people.some_wish(ahead_s=MARGIN_S + 300)),
                ),
            )
        clock.run((knobs.troubled_s + 300) * 1000)
        while self.settling.last_end_s() >= clock.now_s():
            if clock.now_ms > MOST_SIMULATED_MS:
                raise Violation(f"it is never over: the last end is {self.settling.last_end_s()}")
            clock.run(clock.now_ms + (self.settling.last_end_s() - clock.now_s() + 1) * 1000)
        until_ms = clock.now_ms + self.jobs.patience_s * 1000
        while not self.jobs.are_over and clock.now_ms < until_ms:
            clock.run(clock.now_ms + 10_000)
        self.jobs.check()
        clock.run(clock.now_ms + SETTLE_S * 1000)
        self.settling.check()
        self.trace.note("over")

    def _check(self) -> None:
        self.safety.check()
        self.sharing.check()
        self.jobs.check_ways(max(0, -self.office.skew_s))

    def close(self) -> None:
        self.office.close()
        self.safety.close()


def policies_of(knobs: Knobs, *, yields: bool) -> Policies:
    """One rule for all; `yields`: leases that may yield do."""
    rule = RuleSection.model_construct(
        name="all",
        reservations=knobs.most_reservations,
        machine_share_percent=knobs.machine_share_percent,
    )
    external = ExternalSection.model_construct(command=("judge",), timeout_s=10)
    return Policies.model_construct(
        rules=(rule,),
        external=external if knobs.has_program else None,
        leases=YIELDING if yields else None,
    )


def simulate(
    seed: int,
    *,
    make: MakeDesk = make_desk,
    keeps_all: bool = False,
    is_harsh: bool = False,
    starts_jobs: bool | None = None,
    has_links: bool = False,
    has_kinds: bool = False,
    has_layers: bool = False,
) -> Run:
    """Run a seed from beginning to end, and tidy up. `starts_jobs` says whether the service decides when jobs
    start; None, that it does in some worlds. `has_links`: images come over several links. `has_kinds`: leases
    of all kinds are asked for. `has_layers`: images consist of layers, of which they share one."""
    folder = Path(tempfile.mkdtemp(prefix="dst-", dir=MEMORY if MEMORY.is_dir() else None))
    simulation = Simulation(
        seed,
        folder,
        make=make,
        keeps_all=keeps_all,
        is_harsh=is_harsh,
        starts_jobs=starts_jobs,
        has_links=has_links,
        has_kinds=has_kinds,
        has_layers=has_layers,
    )
    violation = ""
    try:
        simulation.run()
    except Violation as found:
        violation = str(found)
    except Exception as error:  # noqa: BLE001 - whatever the service raises is what is looked for
        violation = f"{type(error).__name__}: {error}\n{traceback.format_exc(limit=-6)}"
    finally:
        simulation.close()
        shutil.rmtree(folder)
    return Run(
        seed=seed,
        digest=simulation.trace.digest(),
        violation=violation,
        lines=tuple(simulation.trace.lines),
        events=simulation.trace.count,
        simulated_s=simulation.clock.now_ms // 1000,
        told=len(simulation.people.told),
        deaths=simulation.office.died,
        yielded=simulation.jobs.yielded,
    )
