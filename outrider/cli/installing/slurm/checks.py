"""What the doctor looks at on the head node of Slurm. Each check is independent of the others."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cli.installing.common.findings import Check, DoctorFinding
from outrider.cli.installing.common.headchecks import HeadChecks, fault, ok, warning
from outrider.cli.installing.slurm.facts import SlurmFacts
from outrider.cli.installing.slurm.plan import SlurmPlan
from outrider.cli.installing.slurm.slurmconf import settings
from outrider.cli.installing.slurm.timeouts import timeouts

OLDEST = (22, 5)
_NEEDED = ("JobSubmitPlugins", "Prolog", "Epilog", "TaskProlog")
"""Without one of these jobs do not get their images; what else is in the plan is a choice of the site's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmHeadChecks(HeadChecks):
    """All checks, with what they look at."""

    facts: SlurmFacts
    plan: SlurmPlan

    def all(self) -> Sequence[Check]:
        return (
            self.slurm, self.plugins, self.lines, self.lua, self.shipped, self.key,
            self.configuration, self.munge, self.service, self.limits, self.deployment,
        )  # fmt: skip

    def slurm(self) -> list[DoctorFinding]:
        if not self.facts.version:
            return [
                fault("slurm", "scontrol is not here: this is not a head node of Slurm, or PATH lacks it")
            ]
        if self.facts.version < OLDEST:
            return [fault("slurm", f"{self.facts.version_text} is older than 22.05, which is needed")]
        if self.facts.silence:
            return [fault("slurm", f"the controller does not answer: {self.facts.silence}")]
        return [ok("slurm", f"{self.facts.version_text}, the controller answers")]

    def plugins(self) -> list[DoctorFinding]:
        """Whether Slurm was built with Lua."""
        folders = self.facts.running.get("plugindir", "").split(":")
        if not folders[0]:
            return []
        wanted = ["job_submit_lua.so"]
        if any(each.endswith("lua") for each in self.facts.site.words("CliFilterPlugins")):
            wanted.append("cli_filter_lua.so")
        missing = [name for name in wanted if not any(os.path.exists(f"{each}/{name}") for each in folders)]
        if missing:
            return [fault("lua", f"{', '.join(missing)} not in {':'.join(folders)}: install Slurm with Lua")]
        return [ok("lua", f"{', '.join(wanted)} in {':'.join(folders)}")]

    def lines(self) -> list[DoctorFinding]:
        """What slurm.conf says, and what the controller goes by."""
        written = {
            each.key.lower(): each.value for file in self.facts.site.files for each in settings(file.present)
        }
        found = []
        for key, value in self.plan.settings:
            running = self.facts.running.get(key.lower(), "")
            told = fault if key in _NEEDED else warning
            if written.get(key.lower()) != value:
                found.append(told("slurm.conf", f"has no {key}={value}: {self.remedy}"))
            elif self.facts.running and not _agree(running, value):
                words = f"{key} is {running or 'not set'} for the controller: scontrol reconfigure"
                found.append(told("slurm.conf", words))
        return found or [ok("slurm.conf", f"{len(self.plan.settings)} settings are in force")]

    def lua(self) -> list[DoctorFinding]:
        """Whether the filters are in the site's files, and all Lua can be read."""
        edits = [each.path for each in self.plan.edits if each.path.endswith(".lua")]
        found = [fault("filter", f"{path} does not call Outrider's filter: {self.remedy}") for path in edits]
        compiler = next((each for each in ("luac5.4", "luac5.3", "luac") if self._has(each)), None)
        paths = [f"{self.facts.site.folder}/job_submit.lua", *glob.glob("/usr/lib/outrider/slurm/*.lua")]
        if compiler is None:
            return [
                *found,
                *([] if found else [ok("filter", "in job_submit.lua; no luac here to check it")]),
            ]
        for path in filter(os.path.exists, paths):
            done = self.runner.run([compiler, "-p", path])
            if not done.is_good:
                found.append(fault("filter", f"{path} is not valid Lua, all jobs are refused: {done.reason}"))
        return found or [ok("filter", f"job_submit.lua calls it, and {compiler} reads all of it")]

    def munge(self) -> list[DoctorFinding]:
        done = self.runner.run(["munge", "-n"])
        if not done.is_good:
            return [fault("munge", f"{done.reason}: start munged")]
        return [ok("munge", "answers")]

    def limits(self) -> list[DoctorFinding]:
        running = self.facts.running
        value = (lambda key: running.get(key.lower(), "")) if running else self.facts.site.value
        found = [warning("timeouts", each) for each in timeouts(value)]
        return found or [ok("timeouts", "a prolog has its time")]

    def _has(self, program: str) -> bool:
        return self.runner.run([program, "-v"]).code is not None


def _agree(running: str, value: str) -> bool:
    """`105 sec` is 105; and a list of programs, as newer versions show it, has ours in it."""
    return value in (running, running.partition(" ")[0]) or value in running.split(",")
