"""What `init`, `deploy` and `doctor` need of a batch system, whichever it is.

Each batch system has a package, named in `systems`. Importing this module is cheap: the command line is
put together from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, Protocol

from outrider.cli.installing.systems import SYSTEMS

if TYPE_CHECKING:
    from outrider.cli.installing.common.findings import Check, DoctorFinding
    from outrider.cli.installing.common.nodefiles import NodeKit
    from outrider.cli.installing.common.placing import Json
    from outrider.cli.installing.common.ports import Ports
    from outrider.cli.installing.common.running import ProgramRunner


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandOption:
    """An option of the command line; a flag if it has no metavar."""

    name: str
    help: str
    metavar: str = ""
    default: str | None = None

    def add_to(self, parser: argparse.ArgumentParser) -> None:
        if self.metavar:
            parser.add_argument(self.name, metavar=self.metavar, default=self.default, help=self.help)
        else:
            parser.add_argument(self.name, action="store_true", help=self.help)


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemOptions:
    """What the command line says of one batch system."""

    summary: str
    epilog: str
    parts: Mapping[str, str]
    """What can be left out, and what it is for."""
    of_site: tuple[CommandOption, ...] = ()
    """Which site is meant: of `init`, `deploy` and `doctor`."""
    of_init: tuple[CommandOption, ...] = ()
    of_doctor: tuple[CommandOption, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallationPlan:
    """What is to be done on the head, worked out before anything is touched."""

    missing_users: tuple[str, ...]
    """Whom this machine does not know yet."""
    configuration: str
    folders: Sequence[Json]
    files: Sequence[Json]
    changes: Mapping[str, object]
    """What becomes of the site's own settings, as --json shows it."""
    advice: tuple[str, ...]
    troubles: tuple[str, ...]
    """While there is one, nothing is changed."""
    waits_for_nodes: str
    """The nodes that lack what the changes would lead to."""
    again: str
    """The command that goes on with what was asked for."""
    deploy_options: str
    waits_for_heads: tuple[str, ...] = ()
    """Other machines on which the batch system may run, and would look for what the changes name."""
    heads_are_ready: str = ""
    """The option that says that they have it."""
    next_steps: tuple[str, ...] = ()
    """What is left to do before the service is started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class UndoneChanges:
    """What was taken out of the site's own settings, and what is left to do."""

    changes: Mapping[str, object]
    advice: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    """Users of this machine who stay."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InstallOutcome:
    """What was found, what is or was to be done, and what comes next."""

    changes: Mapping[str, object]
    put: tuple[str, ...] = ()
    kept: tuple[str, ...]
    removed: tuple[str, ...] = ()
    advice: tuple[str, ...]
    troubles: tuple[str, ...] = ()
    is_applied: bool
    waits_for_nodes: str = ""
    waits_for_heads: tuple[str, ...] = ()
    next_steps: tuple[str, ...]

    @property
    def are_changes_made(self) -> bool:
        return self.is_applied and not (self.waits_for_nodes or self.waits_for_heads)


class BatchSystemInstallation(Protocol):
    """One batch system at one site, for one command. It looks at the site when it is first asked."""

    runner: ProgramRunner
    proved_on: str
    """The node on which jobs have come through the hooks; empty if none has."""
    unready: ClassVar[str]
    """What would happen on nodes without their files; their names follow."""

    def __init__(self, options: argparse.Namespace) -> None:
        """From the options of the command, be it init, deploy or doctor."""

    def facts(self) -> Mapping[str, object]:
        """What was found, as --json shows it."""

    def heading(self) -> str:
        """The same for people, in one line."""

    def plan(self) -> InstallationPlan:
        """Everything that init would do on the head."""

    def prepare(self) -> None:
        """Raise what keeps the hooks from being tried, before anything is changed."""

    def apply(self, put: Sequence[str], *, are_others_ready: bool) -> None:
        """Make the planned changes; those that lead to files of nodes if nodes have them, and after a proof.

        `put` are the head's files that have changed.
        """

    def undo(self) -> UndoneChanges:
        """Take all changes back, so that nothing leads to our files any more."""

    def shown(self, outcome: InstallOutcome, *, is_removal: bool) -> Iterable[tuple[str, Sequence[str]]]:
        """The changes for people: titles, and lines below them."""

    def node_kit(self, ports: Ports, key: bytes) -> NodeKit:
        """What each node gets."""

    def head_checks(self, socket: str) -> Sequence[Check]:
        """What the doctor looks at on the head, also the proof of the hooks if it is asked for."""

    def site_files(self) -> Sequence[str]:
        """Files of the batch system of which nodes may have copies."""
        return ()

    def copy_findings(self, node: str, digests: Mapping[str, str | None]) -> Sequence[DoctorFinding]:
        """What is to be said of a node's copies."""
        return ()


def options_of(name: str) -> SystemOptions:
    found = import_module(f"{SYSTEMS[name]}.options").OPTIONS
    assert isinstance(found, SystemOptions)
    return found


def add_options(parser: argparse.ArgumentParser, kind: str) -> None:
    """The options of this kind that any of the batch systems has."""
    found = {each.name: each for name in SYSTEMS for each in getattr(options_of(name), kind)}
    for each in found.values():
        each.add_to(parser)


def left_out(options: argparse.Namespace, parts: Iterable[str]) -> set[str]:
    """The parts that the command line leaves out, if the command has such options."""
    return {each for each in parts if getattr(options, f"without_{each.replace('-', '_')}", False)}


def installation_of(name: str, options: argparse.Namespace) -> BatchSystemInstallation:
    """That of the named batch system; of the first one if there is no such name."""
    package = SYSTEMS.get(name) or next(iter(SYSTEMS.values()))
    made: BatchSystemInstallation = import_module(f"{package}.installation").INSTALLATION(options)
    return made
