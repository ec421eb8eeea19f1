"""The command line of the testbed: `python -m testbed slurm|gridengine up|run|status|down`."""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cachemgr.base.clock import SystemClock
from testbed import records
from testbed.batchcluster import IMAGES, IMAGES_FOLDER, IMAGES_PORT, BatchCluster
from testbed.gridengine import GridEngineCluster
from testbed.records import TestbedError
from testbed.slurm import SlurmCluster
from testbed.suites import CACHE, SUITES

if TYPE_CHECKING:
    from collections.abc import Sequence

RATE = re.compile(r"(\d+)([kmg]?)bit")
FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
SIZE = re.compile(r"(\d+)(MiB|GiB)")
SHIFTS = {"MiB": 20, "GiB": 30}
LEAST_POOL_BYTES = 300 << 20
TITLES = {"slurm": "Slurm", "gridengine": "Grid Engine"}
KINDS: dict[str, type[BatchCluster]] = {"slurm": SlurmCluster, "gridengine": GridEngineCluster}
ENDS = (signal.SIGINT, signal.SIGTERM)
EXIT_FAILED, EXIT_USAGE, EXIT_INTERRUPTED = 1, 2, 130


def main(argv: Sequence[str]) -> int:
    # What follows the two dashes is another program's command line, and not to be read here.
    place = list(argv).index("--") if "--" in argv else len(argv)
    asked = _parser().parse_args(list(argv[:place]))
    asked.command = list(argv[place + 1 :])
    try:
        code: int = asked.do(asked)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except TestbedError as error:
        sys.stderr.write(f"testbed: {error}\n")
        return EXIT_FAILED
    return code


def _slurm(asked: argparse.Namespace) -> BatchCluster:
    return SlurmCluster(
        nodes=asked.nodes,
        name=asked.name,
        rate_bits_per_s=asked.rate,
        pool_bytes=asked.pool,
        version=asked.version,
        slurm_conf_lines=asked.line,
        shared=asked.share,
        writable=asked.share_writable,
        cache=asked.cache,
    )


def _gridengine(asked: argparse.Namespace) -> BatchCluster:
    return GridEngineCluster(
        nodes=asked.nodes,
        name=asked.name,
        rate_bits_per_s=asked.rate,
        pool_bytes=asked.pool,
        shared=asked.share,
        writable=asked.share_writable,
    )


def _up(asked: argparse.Namespace) -> int:
    cluster = asked.make(asked)
    if asked.foreground:
        # Blocked from here on, so that neither kills this process while hosts are being made.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    begin_s = cluster.clock.monotonic_s()
    cluster.up()
    took_s = cluster.clock.monotonic_s() - begin_s
    _say(f"{cluster.name}: {cluster.system} on head and {len(cluster.nodes)} nodes after {took_s:.1f} s")
    _say(f"images: {IMAGES_FOLDER} of host {IMAGES} at http://{IMAGES}:{IMAGES_PORT}/")
    if not asked.foreground:
        cluster.keep()
        return 0
    try:
        signal.sigwait(ENDS)
    finally:
        cluster.down()
    return 0


def _run(asked: argparse.Namespace) -> int:
    if not asked.command:
        sys.stderr.write(f"testbed: no command: testbed {asked.kind} run HOST -- COMMAND …\n")
        return EXIT_USAGE
    cluster = KINDS[asked.kind].attached(asked.name)
    words, variables = cluster.command(asked.host, asked.command, user=asked.user)
    variables["TERM"] = os.environ.get("TERM", "dumb")
    return os.execvpe(words[0], words, variables)


def _status(asked: argparse.Namespace) -> int:
    cluster = KINDS[asked.kind].attached(asked.name)
    states = cluster.node_states()
    hosts = [
        {
            "host": host,
            "address": address,
            "state": states.get(host),
            "processes": cluster.programs(host),
        }
        for host, address in cluster.record.addresses.items()
    ]
    if asked.json:
        rate = cluster.record.rate_bits_per_s
        system = {asked.kind: cluster.record.notes["version"]}
        found = {"name": cluster.name, **system, "rate_bits_per_s": rate, "hosts": hosts}
        _say(json.dumps(found, indent=1))
        return 0
    _say(f"{cluster.name}: {cluster.system}")
    for each in hosts:
        programs = " ".join(cluster.programs(str(each["host"])))
        _say(f"{each['host']:8} {each['address']:14} {each['state'] or '-':10} {programs}")
    return 0


def _down(asked: argparse.Namespace) -> int:
    for record in records.alive():
        # Those of tests and demonstrations that run end with them, and are none of ours.
        if record.kind != asked.kind:
            continue
        if record.name == asked.name or (asked.all and record.is_kept()):
            KINDS[asked.kind].attached(record.name).down()
            _say(f"{record.name}: removed")
    with records.locked():
        for name in records.remove_dead(SystemClock()):
            _say(f"{name}: removed, its owner was gone")
    return 0


def rate(text: str) -> int:
    """Bits a second from tc's own way to write them."""
    match = RATE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a rate: write 100mbit, 1gbit or 500kbit")
    return int(match[1]) * FACTORS[match[2]]


def size(text: str) -> int:
    """Bytes from MiB or GiB; what mkfs.xfs refuses as too small is refused here."""
    match = SIZE.fullmatch(text)
    if match is None or int(match[1]) << SHIFTS[match[2]] < LEAST_POOL_BYTES:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size for a pool: write 300MiB or more, or 2GiB")
    return int(match[1]) << SHIFTS[match[2]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="testbed", description="private clusters of hosts on this machine")
    kinds = parser.add_subparsers(required=True, metavar="KIND")
    up = _kind(kinds, "slurm", _slurm)
    up.add_argument("--version", choices=sorted(SUITES), help="of Slurm; without it, what this machine has")
    up.add_argument(
        "--line",
        action="append",
        default=[],
        help="of slurm.conf, in the place of ours of that key, node or partition; repeatable",
    )
    up.add_argument("--cache", type=Path, default=CACHE, help="where the trees of other versions are")
    _kind(kinds, "gridengine", _gridengine)
    return parser


def _kind(
    kinds: argparse._SubParsersAction[argparse.ArgumentParser], kind: str, make: object
) -> argparse.ArgumentParser:
    """The commands that every batch system has; gives the parser of `up`, for its own options."""
    parser = kinds.add_parser(kind, help=f"a head, nodes and a server of images, with {TITLES[kind]}")
    parser.set_defaults(kind=kind, make=make)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    up = _verb(verbs, kind, "up", _up, "make one; it stays until it is taken down")
    up.add_argument("--nodes", type=int, default=4, help="n1 to nN, at most 250 (default: 4)")
    up.add_argument("--rate", type=rate, metavar="RATE", help="of links in each direction, such as 100mbit")
    up.add_argument(
        "--pool",
        type=size,
        metavar="SIZE",
        help="of an XFS in memory for pools, such as 2GiB; needs xfsprogs",
    )
    up.add_argument("--share", action="append", type=Path, default=[], help="a path hosts see, too")
    up.add_argument("--share-writable", action="append", type=Path, default=[], help="and may write to")
    up.add_argument("--foreground", action="store_true", help="stay, and remove it when interrupted")
    run = _verb(verbs, kind, "run", _run, "run a command on a host")
    run.add_argument("--user", default="root")
    run.add_argument("host")
    status = _verb(verbs, kind, "status", _status, "show hosts, addresses, processes and node states")
    status.add_argument("--json", action="store_true")
    down = _verb(verbs, kind, "down", _down, "remove one, and what dead ones left")
    down.add_argument("--all", action="store_true")
    return up


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], kind: str, name: str, do: object, words: str
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=words)
    verb.add_argument("--name", default=kind, help="of the testbed")
    verb.set_defaults(do=do)
    return verb


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
