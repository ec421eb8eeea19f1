"""What the doctor looks at on a head node of Grid Engine. Each check is independent of the others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from cachemgr.base.clock import SystemClock
from outrider.cli.installing.common.findings import Check, DoctorFinding
from outrider.cli.installing.common.headchecks import HeadChecks, fault, ok, warning
from outrider.cli.installing.common.headfiles import CONFIG, configured, deployed
from outrider.cli.installing.gridengine import plan, proof
from outrider.cli.installing.gridengine.site import GridSite, memory_bytes, value
from outrider.metadata.notation.amounts import memory_mib
from outrider.rms.gridengine.mending import tree

FILTER = f"{plan.FOLDER}/outrider_jsv.py"
FILTER_S = 10
LIMITS = re.compile(r"(?:^|=)([^\[\]=,]+)")
"""What a queue says of all its hosts, and of single ones: 2G,[n1=4G]."""
GREETING = "SEND ENV\nSTARTED\n"


@dataclass(frozen=True, kw_only=True, slots=True)
class GridHeadChecks(HeadChecks):
    """All checks, with what they look at."""

    site: GridSite
    wishes: plan.GridWishes
    planned: plan.GridPlan
    prove_as: str | None

    def all(self) -> Sequence[Check]:
        found: list[Check] = [
            self.qmaster, self.objects, self.queues, self.offset, self.memory, self.filter, self.shipped,
            self.key, self.configuration, self.service, self.deployment,
        ]  # fmt: skip
        return [*found, self.hooks] if self.prove_as is not None else found

    def qmaster(self) -> list[DoctorFinding]:
        return [ok("gridengine", f"{self.site.version}, the qmaster answers")]

    def objects(self) -> list[DoctorFinding]:
        """Whether everything is in Grid Engine that an installation puts there."""
        planned = self.planned
        found = [fault("objects", f"{each.words} is not so: {self.remedy}") for each in planned.changes]
        found += [fault("objects", each) for each in planned.troubles]
        found += [warning("objects", each) for each in planned.advice]
        return found or [ok("objects", "queues, environments, complex, account and hooks are there")]

    def queues(self) -> list[DoctorFinding]:
        """No queue is in error, ever."""
        done = self.runner.run(["qstat", "-f", "-xml"])
        if not done.is_good:
            return [fault("queues", f"qstat: {done.reason}")]
        states = {
            each.findtext("name") or "": each.findtext("state") or ""
            for each in tree(done.output).iter("Queue-List")
        }
        bad = sorted(name for name, state in states.items() if "E" in state)
        if bad:
            why = f"qstat -f -explain E says why, qmod -c {' '.join(bad)} ends it"
            return [fault("queues", f"{' '.join(bad)} in error: {why}")]
        return [ok("queues", f"none of {len(states)} is in error")]

    def offset(self) -> list[DoctorFinding]:
        found = configured("duration_offset").removesuffix("s")
        said = int(found) if found.isdigit() else self.site.duration_offset_s
        if said != self.site.duration_offset_s:
            return [
                fault("scheduler",
                    f"DURATION_OFFSET is {self.site.duration_offset_s} s, {CONFIG} says {said}: "
                    "jobs would end before their reservation does",
                )
            ]  # fmt: skip
        is_known = ok("scheduler", f"DURATION_OFFSET is {said} s, as outriderd knows")
        return [is_known, *(ok("scheduler", words) for words in plan.pace(self.site))]

    def memory(self) -> list[DoctorFinding]:
        """Whether no slot gets more memory than reservations of parts count with."""
        said = configured("slot_memory")
        if not said:
            return []
        queues = {
            name: self.site.queues.get(name, "")
            for name in (self.site.work_queue, *self.wishes.reserved_queues[1:])
        }
        found = [fault("memory", words) for words in too_much_memory(queues, said)]
        return found or [ok("memory", f"no slot has more than {said}")]

    def filter(self) -> list[DoctorFinding]:
        """Whether it answers as its account, and says nothing on stderr, which would refuse every job."""
        done = self.runner.run(["runuser", "-u", self.wishes.account, "--", FILTER], FILTER_S)
        if not done.is_good or done.output != GREETING or done.errors:
            return [fault("filter", f"{FILTER} does not answer: {done.errors or done.reason}")]
        return [ok("filter", f"answers as {self.wishes.account}")]

    def hooks(self) -> list[DoctorFinding]:
        """On one node, by a queue of their own."""
        node = next((each for each in deployed() if each in self.site.hosts), "")
        if not node:
            return [warning("hooks", "could not be tried: no node has them")]
        user = proof.user_for(self.site, self.prove_as)
        try:
            proof.prove(self.site, node, user, self.runner, SystemClock())
            if proof.is_shielded(self.site):
                proof.prove_sessions(self.site, node, user, self.runner, clock=SystemClock())
        except proof.ProofFailed as error:
            return [fault("hooks", str(error))]
        return [ok("hooks", f"jobs of {user} have come through them on {node}")]


def too_much_memory(queues: Mapping[str, str], said: str) -> Iterator[str]:
    """Queues, by what qconf says of them, that let a slot have more memory than the configuration says."""
    for name, text in queues.items():
        given = value(text, "h_vmem")
        limits = [memory_bytes(each) for each in LIMITS.findall(given)] or [None]
        if any(each is None or each > memory_mib(said) << 20 for each in limits):
            yield (
                f"queue {name} has h_vmem {given or 'NONE'}, {CONFIG} says slot_memory {said}: let no slot "
                f"have more by qconf -mq {name}"
            )
