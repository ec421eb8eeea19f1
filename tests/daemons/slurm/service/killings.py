"""Machines of a real Slurm that count while whoever looks after them is killed: one round of that.

Each job counts on a disk of its own, and says by which boot of its guest. So it is seen whether a machine
went on, or began anew, which only a requeue or the loss of its node allows.
"""

from __future__ import annotations

import os
import re
import signal
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from testbed.site import OutriderSite
from testbed.slurm import HEAD
from testbed.waiting import awaited
from tests.daemons.slurm.service.in_machines import MB, said, submit
from tests.daemons.slurm.service.jobs import ENDED, restarts, seen
from tests.daemons.slurm.service.switched import SCRATCH, kill, networks, running_on

SUSPEND, MIGRATE, REQUEUE, NOTHING = "suspend", "migrate", "requeue", "nothing"
KEEPER, NODE, SERVICE, REBOOT = "keeper", "node's daemon", "service", "reboot"
WAYS = (SUSPEND, SUSPEND, MIGRATE, MIGRATE, REQUEUE, NOTHING)
VICTIMS = (KEEPER, KEEPER, KEEPER, NODE, NODE, SERVICE, SERVICE, REBOOT)
FIRST_S, SECOND_S = 4.0, 14.0
"""Within that a small machine is saved; and starts again, Slurm's pause before it included."""
FIRST_STRIKES, SECOND_STRIKES = 2, 3
PATIENCE_S = 300
KEPT = """
for folder in /var/tmp/outrider-*/job-*; do
  echo "$folder" $(grep '"state"' "$folder/machine.json") $(wc -c < "$folder/out") $(cat "$folder/out.told")
  tail -n 1 "$folder/out" "$folder/console.log" "$folder/qemu.log"
done
ps -eo pid,time,stat,args | grep '[q]emu-system' | cut -c 1-150
"""
"""What a node has of machines."""
MORE = 2
# Each number is on the guest's own disk, synced, before it is said.
WORK = """
echo "boot $(cat /proc/sys/kernel/random/boot_id)"
echo 0 >/scratch/count
i=0
while :; do
    read -r was </scratch/count
    [ "$was" = $i ] || echo "disk: $was, not $i"
    i=$((i+1))
    echo $i >/scratch/count
    sync
    echo $i
    sleep 1
done
"""
WORDS_OF_OTHERS = ("outrider: ", "slurmstepd-")
KEPT_BY = re.compile(rb"/usr/lib/outrider/machine\0run=vm")


@dataclass
class CountingJob:
    """A job, and what was last seen of it."""

    key: str
    boot: str = ""
    count: int = 0
    may_begin_anew: bool = False


@dataclass
class Killings:
    """Rounds on one site, and who was killed in them."""

    site: OutriderSite
    random: Random
    jobs: list[CountingJob] = field(default_factory=list)
    killed: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    images: int = 0

    def begin(self, count: int) -> None:
        # Of those that began earlier each has its own bytes at its own address.
        self.images += 1
        image = self.site.image(f"killed{self.images}.qcow2", 4 * MB)
        options = ("-c1", "-t1440", "--requeue")
        self.jobs = [
            CountingJob(submit(self.site, image, WORK, *options, more=SCRATCH)) for _ in range(count)
        ]
        self.wait_until_all_count()

    def round(self) -> None:
        """Something is done with each machine, and some are killed meanwhile, and more when those go on that
        were suspended."""
        ways = {job.key: self.random.choice(WAYS) for job in self.jobs}
        for job in self.jobs:
            self._do(job, ways[job.key])
        for _ in range(FIRST_STRIKES):
            self._strike(self.random.uniform(0, FIRST_S / FIRST_STRIKES))
        suspended = [job for job in self.jobs if ways[job.key] == SUSPEND]
        for job in suspended:
            self._wait(f"{job.key} to be suspended", lambda job=job: self._is_suspended(job))
            self._ask("resume", job)
        for _ in range(SECOND_STRIKES):
            self._strike(self.random.uniform(0, SECOND_S / SECOND_STRIKES))
        self.wait_until_all_count()
        self.done.update(ways.values())

    def wait_until_all_count(self) -> None:
        """Until each runs in one place, and has counted further from where it was; it begins anew only if it
        may."""
        for job in self.jobs:
            told = list[str]()

            def counts(job: CountingJob = job, told: list[str] = told) -> bool:
                places = running_on(self.site, job.key)
                assert len(places) <= 1, f"job {job.key} is on {places}"
                told[:] = self.told(job)
                if not told or not places:
                    found = seen(self.site, job.key)
                    assert found.state not in ENDED, (
                        f"{found}\n{said(self.site, job.key)}\n{self.site.logs()}"
                    )
                    return False
                is_new = told[0] != job.boot
                assert not is_new or job.may_begin_anew or not job.boot, f"job {job.key} began anew"
                return last_of(told[1:]) >= (0 if is_new else job.count) + MORE

            self._wait(f"job {job.key} to count beyond {job.count}", counts)
            job.boot, job.count, job.may_begin_anew = told[0], last_of(told[1:]), False

    def told(self, job: CountingJob) -> list[str]:
        """Which boot of its guest says it, and how far it has counted. What its keeper has passed on, and not
        yet noted when it was killed, comes twice; nothing is missing."""
        text = said(self.site, job.key).rpartition("\n")[0]
        assert "disk:" not in text, text
        words = [line for line in text.splitlines() if not line.startswith(WORDS_OF_OTHERS)]
        if not words:
            return []
        boots = [line.partition(" ")[2] for line in words if line.startswith("boot ")]
        assert len(set(boots)) == 1, text
        numbers = [line for line in words if not line.startswith("boot ")]
        return [boots[0], *numbers]

    def _do(self, job: CountingJob, way: str) -> None:
        if way in (SUSPEND, MIGRATE):
            self._ask(way, job)
        elif way == REQUEUE:
            job.may_begin_anew = True
            before = restarts(self.site, job.key)
            self.site.cluster.run(HEAD, ["scontrol", "requeue", job.key], user="ada")
            self._wait(f"{job.key} to be requeued", lambda: restarts(self.site, job.key) != before)

    def _ask(self, verb: str, job: CountingJob) -> None:
        """As its owner, until a service answers that takes it."""
        answers = list[str]()

        def is_taken() -> bool:
            done = self.site.outrider(verb, job.key, check=False)
            answers.append(done.stderr)
            return done.returncode == 0

        self._wait(f"{verb} of {job.key}", is_taken, answers)

    def _is_suspended(self, job: CountingJob) -> bool:
        """Held, with a service that has seen it; or it begins anew, when its node was lost before."""
        found = seen(self.site, job.key)
        assert found.state not in ENDED, found
        return (found.state == "PENDING" and "resume" in found.admin_comment) or job.may_begin_anew

    def _strike(self, late_s: float) -> None:
        self.site.cluster.clock.sleep(late_s)
        victim = self.random.choice(VICTIMS)
        if victim == KEEPER:
            # While a job waits nobody keeps its machine: whoever begins to is killed at once.
            pids = awaited(
                lambda: [pid for job in self.jobs for pid in keepers(self.site, job.key)], SECOND_S
            )
            with suppress(ProcessLookupError):
                if pids:
                    os.kill(self.random.choice(pids), signal.SIGKILL)
                    self.killed[victim] += 1
            return
        node = self.random.choice(self.site.cluster.nodes)
        if victim == REBOOT:
            self._reboot(node)
        else:
            kill(self.site, "" if victim == SERVICE else node)
        self.killed[victim] += 1

    def _reboot(self, node: str) -> None:
        cluster = self.site.cluster
        cluster.power_off(node)
        for job in self.jobs:
            # What was saved there is still there. What ran there, or was about to, is lost.
            if seen(self.site, job.key).nodes == node:
                job.may_begin_anew = True
        name = f"NodeName={node}"
        cluster.run(HEAD, ["scontrol", "update", name, "State=DOWN", "Reason=off"])
        cluster.power_on(node)

        def is_up() -> bool:
            cluster.run(HEAD, ["scontrol", "update", name, "State=RESUME"], check=False)
            return cluster.are_up([node])

        self._wait(f"{node} to be up", is_up)

    def _wait(self, what: str, is_so: object, more: Sequence[str] = ()) -> None:
        def told() -> str:
            shown = [f"{seen(self.site, job.key)}\n{said(self.site, job.key)[-300:]}" for job in self.jobs]
            explained = [self.site.told("explain", job.key) for job in self.jobs]
            kept = [
                self.site.cluster.run(node, ["sh", "-c", KEPT], check=False).stdout
                for node in self.site.cluster.nodes
            ]
            return "\n".join([*map(str, self.jobs), *shown, *explained, *kept, *more[-3:], self.site.logs()])

        assert callable(is_so)
        self.site.cluster.wait_for(what, is_so, PATIENCE_S, told)


def last_of(words: Sequence[str]) -> int:
    """How far was counted: each new number is one more than all before."""
    most, before = 0, 0
    for word in words:
        number = int(word)
        assert number in (before + 1, most + 1) or number <= most, f"{before}, {number} of {words[-30:]}"
        most, before = max(most, number), number
    return most


def keepers(site: OutriderSite, job: str) -> list[int]:
    """The processes that keep a job's machine, without those that the batch system has begun."""
    own, found = networks(site), dict[int, int]()
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(path / "ns/net") not in own:
                continue
            if KEPT_BY.search((path / "cmdline").read_bytes()) is None:
                continue
            if f"\0SLURM_JOB_ID={job}\0".encode() in (path / "environ").read_bytes():
                status = (path / "stat").read_text().rpartition(")")[2].split()
                found[int(path.name)] = int(status[1])
    return [pid for pid, parent in found.items() if parent in found]
