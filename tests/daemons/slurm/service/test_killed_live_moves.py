"""Whoever is killed while a running machine goes to another node alive: it counts on, in one place."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from testbed.waiting import awaited
from tests.daemons.reservations import Site
from tests.daemons.slurm.service.conftest import JOBS
from tests.daemons.slurm.service.in_machines import kept_on, said, with_kernels
from tests.daemons.slurm.service.jobs import ENDED, seen
from tests.daemons.slurm.service.killings import CountingJob, Killings, keepers
from tests.daemons.slurm.service.switched import cancel, kill, networks

NODES_OF_SITE = 2
SETTINGS = {"jobs": {**JOBS, "live": True}}
ROUNDS = int(os.environ.get("OUTRIDER_TEST_KILLS", "70"))
SEED = int(os.environ.get("OUTRIDER_TEST_SEED", "1"))
SERVICE, DAEMON_HERE, DAEMON_THERE = "service", "source's daemon", "target's daemon"
KEEPER, HOLDER, QEMU_HERE, QEMU_THERE = "keeper", "holder", "source's QEMU", "target's QEMU"
VICTIMS = (SERVICE, DAEMON_HERE, DAEMON_THERE, KEEPER, HOLDER, QEMU_HERE, QEMU_THERE)
STEPS = ("asked", "waits", "ready", "both", "has")
"""How far a move is when somebody is killed: its holder waits, is ready, both QEMUs are there, it has it."""
STEP_S, MOST_LATE_S = 60.0, 2.0
NOTICED_S = 12.0
"""By then the service has asked for a holder that was killed, and begun to save the machine instead."""
HOLDER_PROGRAM = b"/usr/lib/outrider/machine\0hold\0"


@pytest.fixture(scope="module")
def machines(site: OutriderSite) -> OutriderSite:
    """The site with a kernel for machines on each node."""
    return with_kernels(site)


def processes(site: Site, words: Callable[[bytes], bool]) -> dict[int, str]:
    """Those of the site's nodes whose arguments are such, and on which node each is."""
    names, found = networks(site), dict[int, str]()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if words((path / "cmdline").read_bytes()):
                node = names.get(os.readlink(path / "ns/net"))
                if node is not None:
                    found[int(path.name)] = node
    return found


def qemus(site: Site, job: str) -> dict[int, str]:
    folder = f"/job-{job}/".encode()
    return processes(site, lambda text: b"qemu-system" in text.partition(b"\0")[0] and folder in text)


def holding(site: Site, job: str, at: str) -> list[int]:
    """The processes of a job's holder on a node: first the one that its batch system has begun."""
    own = HOLDER_PROGRAM + job.encode() + b"\0"
    return sorted(pid for pid, node in processes(site, lambda text: own in text).items() if node == at)


def below(pids: list[int]) -> list[int]:
    """Those that another of them has begun."""
    found = []
    for pid in pids:
        with suppress(OSError):
            status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found += [pid] if int(status[1]) in pids else []
    return found


class LiveMoves(Killings):
    """Rounds in which each machine moves, and somebody is killed at one step of that."""

    def move(self, victim: str, step: str, late_s: float) -> None:
        job = self.random.choice(self.jobs)
        here = self.node_of(job)
        there = next(node for node in self.site.cluster.nodes if node != here)
        self._ask("migrate", job)
        awaited(lambda: self._is_at(job, step), STEP_S)
        self.site.cluster.clock.sleep(late_s)
        self.killed[f"{victim} at {step}"] += self._kill(victim, job, here, there)
        if job.may_begin_anew:
            # The guest's memory is gone: its job ends so, as one does whose QEMU is killed in its place.
            self.begin_again(job)
        else:
            if victim == HOLDER:
                self.site.cluster.clock.sleep(NOTICED_S)
            self.wait_until_settled(job)
            self.done[self._way(job, here)] += 1

    def _way(self, job: CountingJob, here: str) -> str:
        if self.node_of(job) == here:
            return "stayed"
        is_alive = f"outrider-has-{job.key}" in self._names()
        return "moved alive" if is_alive else "moved, saved"

    def begin_again(self, job: CountingJob) -> None:
        """Another job in its place, once it has failed, or counts again from its beginning."""
        before = job.key

        def is_over() -> bool:
            boots = [line for line in said(self.site, before).splitlines() if line.startswith("boot ")]
            return seen(self.site, before).state in ENDED or boots[-1:] not in ([], [f"boot {job.boot}"])

        self._wait(f"job {before}, whose machine is lost, to be over", is_over)
        cancel(self.site, [before])
        self._wait("its processes to be gone", lambda: not qemus(self.site, before))
        self.jobs.remove(job)
        others = self.jobs
        self.begin(1)
        self.jobs = [*others, *self.jobs]
        self.done["lost"] += 1

    def node_of(self, job: CountingJob) -> str:
        (node,) = set(qemus(self.site, job.key).values())
        return node

    def wait_until_settled(self, job: CountingJob) -> None:
        """Until no step of its move is left, and it counts in one place."""

        def is_over() -> bool:
            shown = self.site.outrider("show", job.key, "--json", check=False)
            with suppress(json.JSONDecodeError):
                return bool(json.loads(shown.stdout)["job"]["state"] == "running") and not any(
                    f"outrider-{word}-{job.key}" in self._names() for word in ("waits", "ready")
                )
            return False

        self._wait(f"the move of job {job.key} to be over", is_over)
        self._wait(f"job {job.key} to be in one place", lambda: len(qemus(self.site, job.key)) == 1)
        self.wait_until_all_count()

    def _names(self) -> list[str]:
        return self.site.cluster.run(HEAD, ["squeue", "-h", "-o%j"]).stdout.split()

    def _is_at(self, job: CountingJob, step: str) -> bool:
        if step == "asked":
            return True
        if step == "both":
            return len(qemus(self.site, job.key)) == 2
        return f"outrider-{step}-{job.key}" in self._names()

    def _kill(self, victim: str, job: CountingJob, here: str, there: str) -> bool:
        if victim in (SERVICE, DAEMON_HERE, DAEMON_THERE):
            kill(self.site, {SERVICE: "", DAEMON_HERE: here, DAEMON_THERE: there}[victim])
            return True
        if victim == KEEPER:
            pids = keepers(self.site, job.key) or below(holding(self.site, job.key, here))
        elif victim == HOLDER:
            pids = holding(self.site, job.key, there)
        else:
            wanted = here if victim == QEMU_HERE else there
            pids = [pid for pid, node in qemus(self.site, job.key).items() if node == wanted]
        for pid in pids[-1:]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if pids and self._is_lost(victim, job, here):
            job.may_begin_anew = True
        return bool(pids)

    def _is_lost(self, victim: str, job: CountingJob, here: str) -> bool:
        """Whether the memory of the guest went with what was killed: with the QEMU of the machine's place,
        and with a holder to which it has come."""
        uid = self.site.cluster.people.of("ada").uid
        path = f"/var/tmp/outrider-{uid}/job-{job.key}/machine.json"
        record = self.site.cluster.run(here, ["cat", path], check=False).stdout
        is_there = not record or json.loads(record)["state"] == "moved"
        return victim == QEMU_HERE or (victim in (QEMU_THERE, HOLDER) and is_there)


def check_nothing_is_left(site: OutriderSite, jobs: list[CountingJob]) -> None:
    cancel(site, [job.key for job in jobs])
    site.cluster.wait_for(
        "no machine",
        lambda: all(kept_on(site, node) == [] for node in site.cluster.nodes),
        logs=lambda: f"{[kept_on(site, node) for node in site.cluster.nodes]}\n{site.logs()}",
    )
    marks = site.cluster.run(HEAD, ["ls", f"{site.home()}/.outrider/machines"], check=False).stdout.split()
    assert marks == []


@pytest.mark.long
def test_machine_that_moves_counts_on_whoever_is_killed_at_whatever_step(machines: OutriderSite) -> None:
    site, moves = machines, LiveMoves(machines, Random(SEED))
    pairs = [(victim, step) for step in STEPS for victim in VICTIMS]
    moves.random.shuffle(pairs)
    moves.begin(2)
    try:
        for number in range(ROUNDS):
            victim, step = pairs[number % len(pairs)]
            moves.move(victim, step, moves.random.random() * MOST_LATE_S)
            print(number, dict(moves.killed), dict(moves.done), flush=True)  # noqa: T201 - takes an hour
    finally:
        check_nothing_is_left(site, moves.jobs)

    assert moves.done["moved alive"] > ROUNDS // 4
    assert moves.killed.total() > ROUNDS // 2
