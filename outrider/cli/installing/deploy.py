"""`outrider nodes deploy`, or `outrider deploy`: brings what nodes need over ssh, or takes it away again.

Each node is looked at first and gets only what differs; what it gets appears at once. An interrupt
begins no further node and lets those under way end, so that each is whole.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from cachemgr.protocol import CONTROL_PORT, RELAY_PORT
from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.errors import InputError, NodesFailedError, NotAllowedError
from outrider.cli.installing.common.port import add_options, installation_of
from outrider.cli.installing.common.ports import Ports
from outrider.cli.installing.systems import SYSTEMS
from outrider.cli.output import print_json
from outrider.cli.quantities import positive

if TYPE_CHECKING:
    from outrider.cli.installing.common.nodefiles import NodeKit
    from outrider.cli.installing.common.placing import Json
    from outrider.cli.installing.common.remote import Remote

NAME = "deploy"
AT_ONCE = 16
_EPILOG = """A node gets the daemon in /usr/lib/outrider, the hooks that slurm.conf is going to name, its
/etc/outrider/cachemgr.conf and the site's key, and its daemon is started. Only what differs is sent, so
this may be run again at any time: for new nodes, a new version, or to see what has changed (--dry-run).
It needs ssh as root (or --sudo), Fabric (pip install '.[deploy]' in a clone) and known host keys.
"outrider nodes deploy" is the same command.

examples:
  outrider nodes deploy 'n[1-16]' --limit 200GiB
  outrider nodes deploy 'n[1-16]' --dry-run
  outrider nodes deploy n3 --remove
"""

State = Literal["changed", "same", "would change", "removed", "failed", "not begun"]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeResult:
    """What became of one node."""

    node: str
    state: State
    files: tuple[str, ...] = ()
    """What was, or would be, changed or removed."""
    service: str = ""
    words: str = ""

    @property
    def is_good(self) -> bool:
        return self.state not in ("failed", "not begun")


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployment:
    """What is to be done to every node."""

    remote: Remote
    kit: NodeKit
    is_dry: bool
    limit: str
    is_started: bool
    start_command: str
    verify: Callable[[str], str]
    """Asks a node's daemon over the network: empty if it answers, else what is wrong."""


def add(commands: Subparsers) -> None:
    parser = add_command(
        commands, NAME, deploy, "bring hooks and daemon to nodes over ssh, or remove them", _EPILOG
    )
    parser.add_argument("names", metavar="NODES", help="which nodes: n[1-16]")
    parser.add_argument(
        "--limit", metavar="SIZE", type=_size, help="how large a node's pool may become: 200GiB"
    )
    does = parser.add_mutually_exclusive_group()
    does.add_argument("--dry-run", action="store_true", help="look, and change nothing")
    does.add_argument("--remove", action="store_true", help="remove everything again; pools stay")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--no-start", action="store_true", help="start no daemon")
    start.add_argument(
        "--start-command", metavar="COMMAND", default="",
        help="start the daemon by this, a line of shell that returns, instead of by systemd",
    )  # fmt: skip
    add_options(parser, "of_site")
    parser.add_argument(
        "--for", metavar="SYSTEM", choices=tuple(SYSTEMS),
        help=f"the hooks of which batch system: {', '.join(SYSTEMS)} (what outrider init was run for)",
    )  # fmt: skip
    parser.add_argument(
        "--parallel", metavar="COUNT", type=positive, default=AT_ONCE, help=f"nodes at once ({AT_ONCE})"
    )
    for name, metavar, help_text in (
        ("--ssh-user", "USER", "log in as this user"),
        ("--ssh-identity", "FILE", "log in with this key"),
        ("--known-hosts", "FILE", "the nodes' host keys are here"),
    ):
        parser.add_argument(name, metavar=metavar, help=help_text)
    parser.add_argument("--ssh-port", metavar="PORT", type=positive, help="log in at this port")
    parser.add_argument("--sudo", action="store_true", help="become root by sudo, without a password")
    for name, port, whose in (("control", CONTROL_PORT, "asked"), ("relay", RELAY_PORT, "asked for images")):
        parser.add_argument(
            f"--{name}-port",
            metavar="PORT",
            type=positive,
            default=port,
            help=f"where daemons are {whose} ({port})",
        )
    parser.add_argument("--json", action="store_true", help="print what became of each node as JSON")


def deploy(arguments: argparse.Namespace) -> None:
    from outrider.cli.installing.common.nodefiles import note_deployed

    names = names_in(arguments.names)
    if not arguments.dry_run and os.geteuid() != 0:
        raise NotAllowedError("the site's key is root's: run this with sudo")
    remote = _remote(arguments)
    if arguments.remove:
        work = partial(removed, remote)
    else:
        work = partial(deployed, _deployment(arguments, remote))
    results = {}
    is_whole = False
    try:
        for result in on_all(names, work, arguments.parallel):
            results[result.node] = result
            _say(result, len(results), len(names))
        is_whole = True
    finally:
        good = [each.node for each in results.values() if each.is_good]
        if not arguments.dry_run and good:
            note_deployed(*(([], good) if arguments.remove else (good, [])))
        _show(
            [results.get(name) or NodeResult(node=name, state="not begun") for name in names], arguments.json
        )
    failed = [each for each in results.values() if not each.is_good]
    if failed or not is_whole:
        raise NodesFailedError(
            f"{len(failed)} of {len(names)} nodes failed: run it again when that is repaired"
        )


def on_all(names: Sequence[str], work: Callable[[str], NodeResult], at_once: int) -> Iterator[NodeResult]:
    """Do it to each node, some at once; results as they come. Left early, it waits for those under way."""
    with ThreadPoolExecutor(max_workers=min(at_once, len(names))) as pool:
        futures = [pool.submit(work, name) for name in names]
        try:
            for future in as_completed(futures):
                yield future.result()
        except BaseException:
            begun = sum(future.running() for future in futures)
            print(f"outrider: no further node is begun; {begun} under way are let end", file=sys.stderr)
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def deployed(deployment: Deployment, node: str) -> NodeResult:
    """One node: look, send what differs, start, ask."""
    from outrider.cli.installing.common.headfiles import without_content
    from outrider.cli.installing.common.remote import RemoteError

    files = deployment.kit.of(node)
    try:
        looked = deployment.remote.call(node, {"do": "look", "files": without_content(files)})
        if looked["uid"] != 0:
            return NodeResult(node=node, state="failed", words="the login there is not root: use --sudo")
        wanted = [each for each in files if _is_wanted(each, looked)]
        kept = [each["path"] for each in files if _is_kept(each, looked)]
        paths = tuple(each["path"] for each in wanted)
        if deployment.is_dry:
            state: State = "would change" if paths else "same"
            return NodeResult(node=node, state=state, files=paths, words=_kept(kept))
        put = deployment.remote.call(
            node, {**_put(deployment, node), "folders": list(deployment.kit.folders), "files": wanted}
        )
    except RemoteError as error:
        return NodeResult(node=node, state="failed", words=str(error))
    words = [*put["words"], *([_kept(kept)] if kept else [])]
    words += [f"its pool may now have {deployment.limit}"] if put["is_resized"] else []
    if put["service"] in ("started", "restarted", "running"):
        trouble = deployment.verify(node)
        if trouble:
            return NodeResult(
                node=node,
                state="failed",
                files=paths,
                service=put["service"],
                words="; ".join([trouble, *words]),
            )
    after: State = "changed" if put["changed"] or put["is_resized"] else "same"
    return NodeResult(
        node=node, state=after, files=tuple(put["changed"]), service=put["service"], words="; ".join(words)
    )


def removed(remote: Remote, node: str) -> NodeResult:
    """One node without us. Its pool stays."""
    from outrider.cli.installing.common.nodefiles import LEFTOVERS
    from outrider.cli.installing.common.remote import RemoteError

    try:
        service = {"unit": "cachemgr.service"}
        done = remote.call(node, {"do": "remove", "service": service, "leftovers": list(LEFTOVERS)})
    except RemoteError as error:
        return NodeResult(node=node, state="failed", words=str(error))
    words = "its pool stays in /var/cache/outrider" + (f"; {_kept(done['kept'])}" if done["kept"] else "")
    return NodeResult(
        node=node, state="removed" if done["removed"] else "same", files=tuple(done["removed"]), words=words
    )


def _is_wanted(file: Json, looked: Json) -> bool:
    needs_systemd = file["path"].startswith("/etc/systemd/") and not looked["has_systemd"]
    return looked["files"][file["path"]] != "same" and not needs_systemd and not _is_kept(file, looked)


def _is_kept(file: Json, looked: Json) -> bool:
    """Whether it is configuration that an administrator has written or changed."""
    return bool(file.get("is_config")) and looked["files"][file["path"]] in ("edited", "foreign")


def _put(deployment: Deployment, node: str) -> Json:
    from outrider.cli.installing.common.nodefiles import POOL_MARKER, PROGRAM

    request: Json = {"do": "put"}
    if deployment.is_started:
        request["pool"] = {"command": [PROGRAM, "init"], "limit": deployment.limit, "marker": POOL_MARKER}
        request["service"] = {
            "unit": "cachemgr.service", "command": deployment.start_command, "by_hand": [PROGRAM, "serve"],
        }  # fmt: skip
    return request


def _deployment(arguments: argparse.Namespace, remote: Remote) -> Deployment:
    from outrider.cli.installing.common.control import answers
    from outrider.cli.installing.common.headfiles import installed_for
    from outrider.cli.installing.common.nodefiles import site_key

    ports = Ports(control=arguments.control_port, relay=arguments.relay_port)
    key = site_key()
    made = installation_of(getattr(arguments, "for") or installed_for(), arguments).node_kit(ports, key)
    return Deployment(
        remote=remote,
        kit=made,
        is_dry=arguments.dry_run,
        limit=arguments.limit or "",
        is_started=not arguments.no_start,
        start_command=arguments.start_command,
        verify=lambda node: answers(node, ports.control, key),
    )


def _remote(arguments: argparse.Namespace) -> Remote:
    from outrider.cli.installing.common.remote import Login, SshRemote

    return SshRemote(
        Login(
            user=arguments.ssh_user,
            port=arguments.ssh_port,
            identity=arguments.ssh_identity,
            known_hosts=arguments.known_hosts,
            is_sudo=arguments.sudo,
        )
    )


def _size(text: str) -> str:
    """A size that the nodes will understand, as it was written."""
    from cachemgr.base.errors import BadRequest
    from cachemgr.base.sizes import read_size

    try:
        read_size(text)
    except BadRequest as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return text


def names_in(text: str) -> tuple[str, ...]:
    """The nodes that a set stands for."""
    from outrider.metadata.errors import TextError
    from outrider.metadata.notation.hostlists import expand

    try:
        return expand(text)
    except TextError as error:
        raise InputError(f"{text}: {error}") from error


def _kept(paths: Sequence[str]) -> str:
    return f"left as somebody has changed it: {' '.join(paths)}" if paths else ""


def _say(result: NodeResult, count: int, total: int) -> None:
    """A line of progress as each node ends."""
    words = f": {result.words}" if result.words else ""
    print(f"[{count}/{total}] {result.node} {result.state}{words}", file=sys.stderr)


def _show(results: Sequence[NodeResult], is_json: bool) -> None:
    from cachemgr.base.tables import table

    if is_json:
        print_json({"nodes": results})
        return
    rows = [
        (each.node, each.state.replace(" ", "-"), len(each.files), each.service.replace(" ", "-"), each.words)
        for each in results
    ]
    print(table(("NODE", "STATE", ">FILES", "DAEMON", "REMARK"), rows))
