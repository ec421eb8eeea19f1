"""What the doctor looks at on a head node of Grid Engine. Each check is independent of the others."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cachemgr.base.clock import SystemClock
from outrider.cli.errors import CommandError
from outrider.cli.installing.common.findings import Check, Finding, fault, ok, warning
from outrider.cli.installing.common.running import Runner, SystemRunner
from outrider.cli.installing.gridengine import files, names, plan, proof
from outrider.cli.installing.gridengine.command import Options, head_of, site_of
from outrider.cli.installing.gridengine.site import VARIABLES, GridSite
from outrider.cli.installing.slurm import headfiles
from outrider.cli.installing.slurm.headchecks import (
    HERE,
    configuration_findings,
    deployment_findings,
    key_findings,
    service_findings,
    shipped_findings,
)
from outrider.cli.installing.slurm.nodefiles import Kit, Ports
from outrider.rms.gridengine.mending import tree

APPLY = "outrider init gridengine --apply"
FILTER = f"{plan.FOLDER}/outrider_jsv.py"
FILTER_S = 10
GREETING = "SEND ENV\nSTARTED\n"


def head_checks(socket: str, prove_as: str | None) -> Sequence[Check]:
    """All of them, for the queues and the account that the service's configuration names."""
    runner = SystemRunner(passed_on=VARIABLES)
    options = _configured()
    try:
        site = site_of(options, runner)
    except CommandError as error:
        words = str(error)
        return [lambda: [fault(HERE, "gridengine", words)]]
    return GridChecks(site=site, options=options, runner=runner, socket=socket, prove_as=prove_as).all()


def node_kit(ports: Ports, key: bytes) -> Kit:
    return files.kit(ports, key, SystemRunner())


@dataclass(frozen=True, kw_only=True, slots=True)
class GridChecks:
    """All checks, with what they look at."""

    site: GridSite
    options: Options
    runner: Runner
    socket: str
    prove_as: str | None

    def all(self) -> Sequence[Check]:
        found: list[Check] = [
            self.qmaster, self.objects, self.queues, self.offset, self.filter, self.shipped, self.key,
            self.configuration, self.service, self.deployment,
        ]  # fmt: skip
        return [*found, self.hooks] if self.prove_as is not None else found

    def qmaster(self) -> list[Finding]:
        return [ok(HERE, "gridengine", f"{self.site.version}, the qmaster answers")]

    def objects(self) -> list[Finding]:
        """Whether everything is in Grid Engine that an installation puts there."""
        planned = plan.plan(self.site, self.options.wishes)
        found = [fault(HERE, "objects", f"{each.words} is not so: {APPLY}") for each in planned.changes]
        found += [fault(HERE, "objects", each) for each in planned.troubles]
        found += [warning(HERE, "objects", each) for each in planned.advice]
        return found or [ok(HERE, "objects", "queues, environments, complex, account and hooks are there")]

    def queues(self) -> list[Finding]:
        """No queue is in error, ever."""
        done = self.runner.run(["qstat", "-f", "-xml"])
        if not done.is_good:
            return [fault(HERE, "queues", f"qstat: {done.reason}")]
        states = {
            each.findtext("name") or "": each.findtext("state") or ""
            for each in tree(done.output).iter("Queue-List")
        }
        bad = sorted(name for name, state in states.items() if "E" in state)
        if bad:
            why = f"qstat -f -explain E says why, qmod -c {' '.join(bad)} ends it"
            return [fault(HERE, "queues", f"{' '.join(bad)} in error: {why}")]
        return [ok(HERE, "queues", f"none of {len(states)} is in error")]

    def offset(self) -> list[Finding]:
        found = re.search(r"(?m)^ +duration_offset: *(\d+)s?", _text(headfiles.CONFIG))
        said = int(found[1]) if found else self.site.duration_offset_s
        if said != self.site.duration_offset_s:
            return [
                fault(
                    HERE, "scheduler",
                    f"DURATION_OFFSET is {self.site.duration_offset_s} s, {headfiles.CONFIG} says {said}: "
                    "jobs would end before their reservation does",
                )
            ]  # fmt: skip
        is_known = ok(HERE, "scheduler", f"DURATION_OFFSET is {said} s, as outriderd knows")
        return [is_known, *(ok(HERE, "scheduler", words) for words in plan.pace(self.site))]

    def filter(self) -> list[Finding]:
        """Whether it answers as its account, and says nothing on stderr, which would refuse every job."""
        done = self.runner.run(["runuser", "-u", self.options.wishes.account, "--", FILTER], FILTER_S)
        if not done.is_good or done.output != GREETING or done.errors:
            return [fault(HERE, "filter", f"{FILTER} does not answer: {done.errors or done.reason}")]
        return [ok(HERE, "filter", f"answers as {self.options.wishes.account}")]

    def shipped(self) -> list[Finding]:
        planned = plan.plan(self.site, self.options.wishes)
        head = head_of(self.site, self.options, planned, self.runner)
        wanted = headfiles.without_content(files.head_files(head))
        return shipped_findings(wanted, APPLY)

    def key(self) -> list[Finding]:
        return key_findings(HERE, headfiles.KEY)

    def configuration(self) -> list[Finding]:
        return configuration_findings(self.runner)

    def service(self) -> list[Finding]:
        return service_findings(self.socket)

    def deployment(self) -> list[Finding]:
        return deployment_findings(self.site.hosts)

    def hooks(self) -> list[Finding]:
        """On one node, by a queue of their own."""
        node = next((each for each in headfiles.deployed() if each in self.site.hosts), "")
        if not node:
            return [warning(HERE, "hooks", "could not be tried: no node has them")]
        user = proof.user_for(self.site, self.prove_as)
        try:
            proof.prove(self.site, node, user, self.runner, SystemClock())
            if proof.is_shielded(self.site):
                proof.prove_sessions(self.site, node, user, self.runner, clock=SystemClock())
        except proof.ProofFailed as error:
            return [fault(HERE, "hooks", str(error))]
        return [ok(HERE, "hooks", f"jobs of {user} have come through them on {node}")]


def _configured() -> Options:
    """The names that outriderd goes by."""
    text = _text(headfiles.CONFIG)

    def said(key: str, default: str) -> str:
        found = re.search(rf"(?m)^ +{key}: *(\S+)", text)
        return found[1] if found else default

    return Options(
        wishes=plan.GridWishes(
            account=said("account", names.ACCOUNT),
            reservation_queue=said("reservation_queue", names.RESERVATION_QUEUE),
            parts=frozenset(plan.PARTS),
        ),
        work_queue=said("work_queue", names.WORK_QUEUE),
        user=headfiles.service_user(),
        prove_as=None,
        are_nodes_ready=False,
    )


def _text(path: str) -> str:
    return Path(path).read_text() if os.path.exists(path) else ""
