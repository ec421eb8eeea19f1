"""Outrider beside a Grid Engine: what `init`, `deploy` and `doctor` do there."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

from cachemgr.base.clock import SystemClock
from outrider.cli.asking.display.words import plural
from outrider.cli.errors import CommandError, InputError
from outrider.cli.installing.common import headfiles
from outrider.cli.installing.common.findings import Check
from outrider.cli.installing.common.headchecks import fault
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
from outrider.cli.installing.gridengine import carrying, files, plan, proof
from outrider.cli.installing.gridengine.checks import GridHeadChecks
from outrider.cli.installing.gridengine.options import ACCOUNT, RESERVATION_QUEUE, WORK_QUEUE
from outrider.cli.installing.gridengine.programs import folder_of_commands
from outrider.cli.installing.gridengine.site import VARIABLES, GridSite, read_site
from outrider.metadata.notation.hostlists import fold

APPLY = "outrider init gridengine --apply"


class GridEngineInstallation(BatchSystemInstallation):
    """One Grid Engine, by what its qconf shows."""

    unready = "The queues have no hooks yet: without their files, the first job would disable"

    def __init__(self, options: argparse.Namespace) -> None:
        self.runner = SystemRunner(passed_on=VARIABLES)
        self.proved_on = ""
        self._user: str = getattr(options, "user", None) or headfiles.service_user()
        self._prove_as: str | None = getattr(options, "prove_as", None)
        self._work_queue = _named(options, "work_queue", WORK_QUEUE)
        self._wishes = plan.GridWishes(
            account=_named(options, "account", ACCOUNT),
            reservation_queue=_named(options, "reservation_queue", RESERVATION_QUEUE),
            parts=frozenset(plan.PARTS) - left_out(options, plan.PARTS),
            parts_queue=_named(options, "parts_queue", ""),
        )
        self._qconf = carrying.Qconf(self.runner)
        self._clock = SystemClock()

    def _site(self) -> GridSite:
        """As it is now."""
        return read_site(self.runner, self._work_queue, self._wishes.reserved_queues)

    @cached_property
    def _found(self) -> GridSite:
        """As it was before anything was changed."""
        return self._site()

    @cached_property
    def _planned(self) -> plan.GridPlan:
        return plan.plan(self._found, self._wishes)

    def _head(self) -> files.GridHead:
        root, cell = os.environ.get("SGE_ROOT", "/var/lib/gridengine"), os.environ.get("SGE_CELL", "default")
        return files.GridHead(
            user=self._user,
            account=self._wishes.account,
            work_queue=self._work_queue,
            reservation_queue=self._wishes.reservation_queue,
            parts_queue=self._wishes.parts_queue,
            environments=self._planned.environments,
            duration_offset_s=self._planned.duration_offset_s,
            root=root,
            cell=cell,
            commands=folder_of_commands(root, cell, self.runner),
            key=headfiles.site_key(),
            parts=self._wishes.parts,
        )

    def facts(self) -> Mapping[str, object]:
        return {
            "version": self._found.version, "nodes": len(self._found.hosts), "proved_on": self.proved_on,
        }  # fmt: skip

    def heading(self) -> str:
        return f"Grid Engine {self._found.version}, {plural(len(self._found.hosts), 'node')}"

    def plan(self) -> InstallationPlan:
        planned, head = self._planned, self._head()
        people = lacking(dict.fromkeys((self._wishes.account, self._user)), self.runner)
        known = set(headfiles.deployed())
        objects = (*map(made_in_words, people), *(each.words for each in planned.objects))
        return InstallationPlan(
            missing_users=tuple(people),
            configuration=files.configuration(head),
            folders=headfiles.head_folders(files.FOLDERS, self._user),
            files=files.head_files(head),
            changes={"objects": objects, "hooks": tuple(each.words for each in planned.hooks)},
            advice=(*planned.advice, *planned.pace),
            troubles=planned.troubles,
            # A queue whose hooks are not on a node is disabled by its first job there.
            waits_for_nodes=fold(name for name in self._found.hosts if name not in known),
            again=APPLY,
            deploy_options=" --for gridengine --limit 200GiB",
        )

    @cached_property
    def _prover(self) -> str:
        """Whose jobs try the hooks; nobody's if there are no new ones."""
        if all(each.key == "jsv_url" for each in self._planned.hooks):
            return ""
        return proof.user_for(self._found, self._prove_as)

    def prepare(self) -> None:
        _ = self._prover

    def apply(self, put: Sequence[str], *, are_others_ready: bool) -> None:
        """First the objects, which change nothing for anybody; then what leads to files of nodes."""
        carrying.carry_out(self._planned.objects, self._qconf)
        if not are_others_ready:
            return
        if self._prover:
            node = self._found.hosts[0]
            proof.prove(self._found, node, self._prover, self.runner, self._clock, hooks=self._hooks())
            self.proved_on = node
        self._assign_hooks()

    def _assign_hooks(self) -> None:
        """What interactive jobs need is tried before queues have hooks."""
        # The queues are there now, and their hooks are not.
        now = plan.plan(self._site(), self._wishes)
        shields = [each for each in now.hooks if each.key == plan.SHEPHERD_KEY]
        carrying.carry_out(shields, self._qconf)
        site = self._site()
        if shields:
            self._clock.sleep(proof.heard_s(site))
        if self.proved_on and proof.is_shielded(site):
            try:
                proof.prove_sessions(
                    site, self.proved_on, self._prover, self.runner, clock=self._clock, hooks=self._hooks()
                )
            except proof.ProofFailed:
                carrying.undo(shields, self._qconf)
                raise
        carrying.carry_out([each for each in now.hooks if each not in shields], self._qconf)

    def _hooks(self) -> dict[str, str]:
        return {part: text for part, text in plan.HOOKS.items() if part in self._wishes.parts}

    def undo(self) -> UndoneChanges:
        site, queue = self._found, " ".join(self._wishes.reserved_queues)
        if waiting := self._in_reservations():
            raise InputError(f"jobs {' '.join(waiting)} are in queue {queue}: let them end, or qdel them")
        changes, kept = carrying.take_back(self._qconf)
        if any(each.key == plan.SHEPHERD_KEY for each in changes):
            # Until they have heard of it, execds start what "nodes deploy --remove" takes away.
            self._clock.sleep(proof.heard_s(site))
        return UndoneChanges(
            changes={"objects": tuple(each.words for each in changes), "hooks": ()},
            advice=tuple(kept),
            users=(self._wishes.account,),
        )

    def _in_reservations(self) -> list[str]:
        queues = ",".join(self._wishes.reserved_queues)
        done = self.runner.run(["qstat", "-u", "*", "-q", queues, "-s", "rs"])
        rows = [line.split() for line in done.output.splitlines()[2:]] if done.is_good else []
        return [row[0] for row in rows if row]

    def shown(self, outcome: InstallOutcome, *, is_removal: bool) -> Iterator[tuple[str, Sequence[str]]]:
        objects, hooks = outcome.changes["objects"], outcome.changes["hooks"]
        assert isinstance(objects, tuple)
        assert isinstance(hooks, tuple)
        if is_removal:
            yield "taken back", objects
        else:
            yield "objects" if outcome.is_applied else "objects to be made or changed", objects
            yield "hooks" if outcome.are_changes_made else "hooks for later", hooks

    def node_kit(self, ports: Ports, key: bytes) -> NodeKit:
        return files.kit(ports, key, self.runner)

    def head_checks(self, socket: str) -> Sequence[Check]:
        try:
            site, wanted = self._found, files.head_files(self._head())
        except CommandError as error:
            words = str(error)
            return [lambda: [fault("gridengine", words)]]
        return GridHeadChecks(
            site=site, wishes=self._wishes, planned=self._planned, prove_as=self._prove_as, files=wanted,
            runner=self.runner, socket=socket, nodes=site.hosts, remedy=APPLY,
        ).all()  # fmt: skip


INSTALLATION = GridEngineInstallation


def _named(options: argparse.Namespace, name: str, default: str) -> str:
    """A name from the command line; else the one that outriderd goes by."""
    found: str | None = getattr(options, name, None)
    return found or headfiles.configured(name, default)
