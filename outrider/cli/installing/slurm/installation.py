"""Outrider beside a Slurm: what `init`, `deploy` and `doctor` do there."""

from __future__ import annotations

import argparse
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from socket import gethostname

from outrider.cli.asking.display.words import plural
from outrider.cli.errors import InputError, MissingPartError
from outrider.cli.installing.common import headfiles
from outrider.cli.installing.common.findings import Check, DoctorFinding, ok, warning
from outrider.cli.installing.common.nodefiles import NodeKit
from outrider.cli.installing.common.onhead import lacking, made_in_words
from outrider.cli.installing.common.port import (
    BatchSystemInstallation,
    InstallationPlan,
    InstallOutcome,
    UndoneChanges,
    left_out,
)
from outrider.cli.installing.common.ports import Ports
from outrider.cli.installing.common.running import SystemRunner
from outrider.cli.installing.slurm import editing, files
from outrider.cli.installing.slurm.checks import SlurmHeadChecks
from outrider.cli.installing.slurm.controllers import other_controllers
from outrider.cli.installing.slurm.facts import SlurmFacts, conf_path, gather
from outrider.cli.installing.slurm.plan import CONF_PART, PARTS, UNLESS_WANTED, SiteTexts, SlurmPlan, plan
from outrider.metadata.notation.hostlists import expand, fold

APPLY = "outrider init slurm --apply"
MOST_LINES = 12


class SlurmInstallation(BatchSystemInstallation):
    """One Slurm, by its slurm.conf."""

    proved_on = ""
    unready = "The site's own files are not changed yet: without the hooks, the first job would drain"

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self.runner = SystemRunner(conf_path(options.conf, os.environ))

    @cached_property
    def _found(self) -> SlurmFacts:
        return gather(self._options.conf, os.environ, self.runner)

    @cached_property
    def _nodes(self) -> tuple[str, ...]:
        return files.nodes_of(self._found.site)

    @cached_property
    def _parts(self) -> frozenset[str]:
        """What is wanted. Parts that are left out unless they are wanted stay if an earlier run put them
        in force."""
        options = vars(self._options)
        asked = {each for each in UNLESS_WANTED if options.get(f"with_{each.replace('-', '_')}")}
        kept = asked | files.in_force(self._found.site)
        return frozenset(PARTS) - left_out(self._options, PARTS) - (set(UNLESS_WANTED) - kept)

    @cached_property
    def _planned(self) -> SlurmPlan:
        site = self._found.site
        texts = SiteTexts(
            submit=editing.read_text(f"{site.folder}/job_submit.lua"),
            cli=editing.read_text(f"{site.folder}/cli_filter.lua"),
            plugstack=editing.read_text(f"{site.folder}/plugstack.conf"),
        )
        return plan(site, texts, self._parts, self._found.version, has_spank=self._spank() is not None)

    def _head(self, user: str, key: bytes | None = None) -> files.SlurmHead:
        return files.SlurmHead(
            site=self._found.site, user=user, slurm_user=self._found.slurm_user, spank=self._spank(), key=key,
            parts=self._parts,
        )  # fmt: skip

    def _spank(self) -> bytes | None:
        path = getattr(self._options, "spank", None)
        if path is None:
            return None
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}): make it with make spank") from error

    def facts(self) -> Mapping[str, object]:
        site = self._found.site
        seen = {
            "slurm_conf": site.main.path, "files": [each.path for each in site.files],
            "version": self._found.version_text, "nodes": len(self._nodes),
        }  # fmt: skip
        return {"seen": seen}

    def heading(self) -> str:
        site = self._found.site
        others = len(site.files) - 1
        included = f" and {plural(others, 'file')} that it includes" if others else ""
        nodes = plural(len(self._nodes), "node")
        return f"Slurm {self._found.version_text}, {site.main.path}{included}, {nodes}"

    def plan(self) -> InstallationPlan:
        planned, user = self._planned, self._options.user
        head = self._head(user, headfiles.site_key())
        people = lacking([user], self.runner)
        waits = self._unready()
        wanted = "".join(f" --with-{each}" for each in UNLESS_WANTED if each in head.parts)
        # Nodes to which an earlier version has brought its files have their pools already.
        have_pools = set(expand(waits)) <= set(headfiles.deployed()) if waits else False
        return InstallationPlan(
            missing_users=tuple(people),
            configuration=files.configuration(head),
            folders=headfiles.head_folders(files.HEAD_FOLDERS, user),
            files=files.head_files(head, planned.hooks),
            changes={
                "settings": dict(planned.settings),
                "edits": {each.path: each.lines for each in planned.edits},
            },
            advice=(*map(made_in_words, people), *planned.advice),
            troubles=planned.troubles,
            waits_for_nodes=waits,
            again=f"{APPLY}{wanted}",
            deploy_options="" if have_pools else " --limit 200GiB",
            next_steps=self._next_steps(),
            waits_for_heads=self._unready_controllers(),
            heads_are_ready="--controllers-are-ready",
        )

    def _unready(self) -> str:
        """The nodes whose jobs would meet hooks that are not there: their nodes would be drained."""
        if CONF_PART not in self._parts or not self._planned.wants_hooks_on_nodes:
            return ""
        known = set(headfiles.deployed("wrapped"))
        return fold(name for name in self._nodes if name not in known)

    def _unready_controllers(self) -> tuple[str, ...]:
        """Where slurmctld would not start, or would requeue every job, for want of our files."""
        is_changed = CONF_PART in self._parts and self._planned.edits
        if not is_changed or self._options.controllers_are_ready:
            return ()
        return other_controllers(self._found.site, gethostname())

    def _next_steps(self) -> tuple[str, ...]:
        steps, found = [], self._found
        changed = [each.path for each in self._planned.edits if not each.path.endswith("job_submit.lua")]
        if changed and not found.is_configless and not found.shared_as:
            steps.append(f"copy {' '.join(changed)} to the nodes, unless they read these very files")
        if self._planned.edits:
            steps.append("scontrol reconfigure")
        return tuple(steps)

    def prepare(self) -> None:
        """No hook is tried here: what Slurm calls is a wrapper that works without our files, too."""

    def apply(self, put: Sequence[str], *, are_others_ready: bool) -> None:
        if are_others_ready:
            editing.apply(self._planned.edits)
        if any(path.endswith(".lua") for path in put):
            # slurmctld reads its filter anew when this file changes, whatever lies beside it.
            editing.touch(f"{self._found.site.folder}/job_submit.lua")

    def undo(self) -> UndoneChanges:
        """Lines first, then whoever runs by them is told."""
        site = self._found.site
        paths = [each.path for each in site.files]
        paths += [f"{site.folder}/{name}" for name in ("job_submit.lua", "cli_filter.lua", "plugstack.conf")]
        changed, remarks = editing.take_out(paths)
        if changed and self._found.running:
            told = self.runner.run(["scontrol", "reconfigure"])
            if not told.is_good:
                raise MissingPartError(
                    f"Outrider's lines are out of {', '.join(changed)}, but scontrol reconfigure failed "
                    f"({told.reason}): its files stay until you have run that and --remove again"
                )
        steps = []
        if waiting := self._waiting():
            steps.append(
                f"jobs {' '.join(waiting)} wait for images forever now: scancel them, or let them start "
                "without by scontrol update jobid=JOB StartTime=now, and by scontrol release JOB those with "
                "a deadline"
            )
        copied = [each for each in changed if not each.endswith("job_submit.lua")]
        if copied and not self._found.is_configless and not self._found.shared_as:
            steps.append(f"copy {' '.join(copied)} to the nodes that have copies, then scontrol reconfigure")
        changes: dict[str, object] = {"settings": {}, "edits": dict.fromkeys(changed, ())}
        return UndoneChanges(changes=changes, advice=tuple(remarks), next_steps=tuple(steps))

    def _waiting(self) -> list[str]:
        """Pending jobs that nobody but Outrider would let start."""
        said = self.runner.run(["scontrol", "--oneliner", "show", "job"]).output
        jobs = [line for line in said.splitlines() if " AdminComment=" in line and '{"outrider":1' in line]
        return [line.split()[0].removeprefix("JobId=") for line in jobs if " JobState=PENDING " in line]

    def shown(self, outcome: InstallOutcome, *, is_removal: bool) -> Iterator[tuple[str, Sequence[str]]]:
        edits = outcome.changes["edits"]
        assert isinstance(edits, dict)
        if is_removal:
            yield "lines taken out of", list(edits)
            return
        for path, added in edits.items():
            few = added if len(added) <= MOST_LINES else (f"{len(added)} lines: --json shows them",)
            yield f"lines {'in' if outcome.are_changes_made else 'for'} {path}", few

    def node_kit(self, ports: Ports, key: bytes) -> NodeKit:
        return files.kit(self._found.site, self._found.version, ports, key)

    def head_checks(self, socket: str) -> Sequence[Check]:
        head = self._head(headfiles.service_user())
        return SlurmHeadChecks(
            facts=self._found, plan=self._planned, files=files.head_files(head, self._planned.hooks),
            runner=self.runner, socket=socket, nodes=self._nodes, remedy=APPLY,
        ).all()  # fmt: skip

    def site_files(self) -> Sequence[str]:
        return [each.path for each in self._found.site.files]

    def copy_findings(self, node: str, digests: Mapping[str, str | None]) -> Sequence[DoctorFinding]:
        """A node with files of its own has to have the same."""
        others = [path for path, digest in digests.items() if digest not in (None, _digest(path))]
        if others:
            words = f"{' '.join(others)} differs from the head's: copy it, then scontrol reconfigure"
            return [warning(node, "slurm.conf", words)]
        if self._found.is_configless or not any(digests.values()):
            return [ok(node, "slurm.conf", "comes from the controller")]
        return [ok(node, "slurm.conf", "is the head's")]


INSTALLATION = SlurmInstallation


def _digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()
