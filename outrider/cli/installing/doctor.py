"""`outrider doctor`: looks at everything that an installation needs, and says what to do. Changes nothing."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from cachemgr.protocol import CONTROL_PORT, RELAY_PORT
from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.errors import CommandError, InputError, MissingPartError
from outrider.cli.installing.common.port import add_options, installation_of
from outrider.cli.installing.common.ports import Ports
from outrider.cli.output import print_json
from outrider.cli.quantities import positive

if TYPE_CHECKING:
    from outrider.cli.installing.common.findings import DoctorFinding
    from outrider.cli.installing.common.port import BatchSystemInstallation

AT_ONCE = 16
MOST_NODES_UNASKED = 256
MOST_NODES_MEASURED = 16
SERVICE_S = 5
_EPILOG = """One line for each thing looked at: ok, a warning, or a fault with what to do about it. Nodes are
asked over the network with the site's key, so this is run as root; where ssh lets root in, their files
are looked at, too. The exit code is 0 if all is well, 1 after warnings, 2 after faults.

examples:
  outrider doctor
  outrider doctor --nodes 'n[1-4]'
  outrider doctor --no-nodes --quiet
  outrider doctor --measure-link
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "doctor", doctor, "look for what is wrong on head and nodes", _EPILOG)
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--nodes", metavar="NODES", help="these nodes: n[1-16] (all that have been deployed to)"
    )
    which.add_argument("--no-nodes", action="store_true", help="look at the head alone")
    parser.add_argument("--no-ssh", action="store_true", help="do not look at the nodes' files by ssh")
    add_options(parser, "of_site")
    parser.add_argument(
        "--service", metavar="PATH", default="/run/outrider/outriderd.sock", help="the service's socket"
    )
    parser.add_argument(
        "--control-port", metavar="PORT", type=positive, default=CONTROL_PORT,
        help=f"where the nodes' daemons are asked ({CONTROL_PORT})",
    )  # fmt: skip
    add_options(parser, "of_doctor")
    parser.add_argument(
        "--measure-link", action="store_true",
        help="only let each node send an image here, for up to 20 s or 1 GiB, to set link.rate by",
    )  # fmt: skip
    parser.add_argument(
        "--relay-port", metavar="PORT", type=positive, default=RELAY_PORT,
        help=f"where nodes send images ({RELAY_PORT})",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="measure although transfers need the link")
    parser.add_argument("-q", "--quiet", action="store_true", help="leave out what is ok")
    parser.add_argument("--json", action="store_true", help="print all findings as JSON")


def doctor(arguments: argparse.Namespace) -> None:
    from outrider.cli.installing.common.headfiles import installed_for

    if arguments.measure_link:
        _finish(_guarded(partial(_measured, arguments)), arguments)
        return
    installation = installation_of(installed_for(), arguments)
    checks: list[Callable[[], Sequence[DoctorFinding]]] = [_root]
    checks += installation.head_checks(arguments.service)
    if not arguments.no_nodes:
        checks += _nodes(installation, arguments)
    with ThreadPoolExecutor(max_workers=AT_ONCE) as pool:
        findings = [each for result in pool.map(_guarded, checks) for each in result]
    _finish(findings, arguments)


def _finish(findings: Sequence[DoctorFinding], arguments: argparse.Namespace) -> None:
    _show(findings, arguments)
    worst = max((each.level for each in findings), default=0)
    if worst:
        sys.stdout.flush()
        raise SystemExit(int(worst))


def _guarded(check: Callable[[], Sequence[DoctorFinding]]) -> Sequence[DoctorFinding]:
    """A check that cannot be made is a finding as well."""
    from outrider.cli.installing.common.findings import warning

    try:
        return check()
    except (CommandError, OSError) as error:
        name = getattr(check, "__name__", "node")
        return [warning("head", name, f"could not be checked: {error}")]


def _nodes(
    installation: BatchSystemInstallation, arguments: argparse.Namespace
) -> list[Callable[[], Sequence[DoctorFinding]]]:
    from cachemgr.base.clock import SystemClock
    from outrider.cli.installing.common import headfiles
    from outrider.cli.installing.common.control import keys_in
    from outrider.cli.installing.common.nodefiles import site_key
    from outrider.cli.installing.deploy import names_in
    from outrider.cli.installing.nodechecks import NodeChecks

    names = names_in(arguments.nodes) if arguments.nodes else headfiles.deployed()[:MOST_NODES_UNASKED]
    if not names:
        return []
    try:
        key = site_key()
    except InputError as error:
        return [partial(_unasked, str(error))]
    remote = None
    if not arguments.no_ssh:
        from outrider.cli.installing.common.remote import Login, SshRemote

        try:
            remote = SshRemote(Login())
        except MissingPartError as error:
            return [partial(_unasked, str(error))]
    ports = Ports(control=arguments.control_port, relay=RELAY_PORT)
    checks = NodeChecks(
        keys=keys_in(key), port=ports.control, remote=remote, clock=SystemClock(),
        kit=installation.node_kit(ports, key) if remote is not None else None,
        site_files=installation.site_files(), copy_findings=installation.copy_findings,
    )  # fmt: skip
    return [partial(checks.of, name) for name in names]


def _measured(arguments: argparse.Namespace) -> Sequence[DoctorFinding]:
    """What the links give: one node after the other, so that none takes from another."""
    from cachemgr.base.clock import SystemClock
    from cachemgr.base.errors import CacheError
    from outrider.cli.installing import linkmeasure
    from outrider.cli.installing.common.control import ask, keys_in
    from outrider.cli.installing.common.findings import warning
    from outrider.cli.installing.common.headfiles import deployed
    from outrider.cli.installing.common.nodefiles import site_key
    from outrider.cli.installing.deploy import names_in
    from outrider.cli.progress import progress
    from outrider.service.answers.site import Status
    from outrider_client.reading import read
    from outrider_client.transport import Transport

    clock, rate = SystemClock(), None
    try:
        status = read(Status, Transport(arguments.service, clock, timeout_s=SERVICE_S).get("/v1/status"))
        rate, words = status.link_rate_bytes_per_s, linkmeasure.obstacle(status)
    except CommandError as error:
        words = f"nobody knows whether a promise needs the link ({error}): measure later, or with --force"
    if words and not arguments.force:
        return [warning("head", linkmeasure.WHAT, f"was not measured: {words}")]
    names = names_in(arguments.nodes) if arguments.nodes else deployed()[:MOST_NODES_MEASURED]
    keys, measured, failed = keys_in(site_key()), [], []
    for name in names:
        try:
            images = ask(name, arguments.control_port, keys, "ls")["images"]
            with progress(f"{name} sends") as tell:
                address = f"{name}:{arguments.relay_port}"
                measured.append(linkmeasure.measure(name, address, images, keys[0], clock, on_progress=tell))
        except (CacheError, CommandError) as error:
            failed.append(warning(name, "link", f"was not measured: {error}"))
    return [*failed, *linkmeasure.findings(measured, rate)]


def _root() -> Sequence[DoctorFinding]:
    from outrider.cli.installing.common.findings import warning

    if os.geteuid() == 0:
        return []
    return [
        warning("head", "doctor", "does not run as root: what only root may see is shown as a fault below")
    ]


def _unasked(words: str) -> Sequence[DoctorFinding]:
    from outrider.cli.installing.common.findings import warning

    return [warning("head", "nodes", f"were not asked: {words}")]


def _show(findings: Sequence[DoctorFinding], arguments: argparse.Namespace) -> None:
    from cachemgr.base.tables import table

    shown = [each for each in findings if each.level or not arguments.quiet]
    if arguments.json:
        keys = ("level", "where", "what", "words")
        print_json({"findings": [dict(zip(keys, each.row, strict=True)) for each in shown]})
    elif shown:
        print(table(("LEVEL", "WHERE", "WHAT", "FOUND"), [each.row for each in shown]))
