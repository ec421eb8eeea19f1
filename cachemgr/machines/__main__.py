"""`python3 -m cachemgr.machines VERB FOLDER …`: the engine as a program, run as the job's user.

    run FOLDER --wish FILE [--grace S]      start or resume, pass signals on, wait, end as the job ends
    start FOLDER --wish FILE                the verbs one by one; each prints what is true then
    status | suspend | resume | collect | remove FOLDER
    stop FOLDER [--grace S]
    signal FOLDER NAME
    give FOLDER --to PLACE                  prints what `take` wants; PLACE is NODE:FOLDER
    take FOLDER --parcel FILE [--path DISK=PATH …]
    migrate FOLDER --to-folder FOLDER [--path DISK=PATH …]
    receive FOLDER --at HOST:PORT --key FILE [--path DISK=PATH …] [--wait S]
                                            wait for a machine that runs on another node
    migrate FOLDER --at HOST:PORT --key FILE [--rate BYTES]
                                            bring it there; both have a copy of the key
    facts                                   QEMU's version and the accelerator, with the reason

FILE may be `-`. The result is one JSON object on standard output, except with `run`, whose
output is the job's. `run` hands USR1 to nobody: it suspends the machine and ends with 98. TERM and INT
end the job, then the guest, within the grace. Any other signal that a job knows goes to the job.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from dataclasses import asdict

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, CacheError
from cachemgr.machines.handover import give, read_parcel, take
from cachemgr.machines.keeper import PROGRAM, real_site
from cachemgr.machines.live import verbs as live
from cachemgr.machines.live.landing import WAIT_S
from cachemgr.machines.machine import Machine
from cachemgr.machines.running import run
from cachemgr.machines.wish import read_wish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cachemgr.machines.keeper import MachineSite, MachineStatus

GRACE_S = 30.0
MOST_BYTES = 16 << 20


def main(argv: Sequence[str] | None = None, *, site: MachineSite | None = None) -> int:
    try:
        given = _parser().parse_args(argv)
        found_site = site or real_site(given.node, given.qemu)
        if given.verb == "facts":
            return _say(asdict(found_site.facts()))
        if given.folder is None:
            raise BadRequest(f"{given.verb} needs the machine's folder")
        machine = Machine(given.folder, found_site)
        if given.verb == "run":
            return run(machine, read_wish(_read(given.wish)), grace_s=given.grace)
        return _say(VERBS[given.verb](machine, given))
    except CacheError as error:
        print(f"outrider: {' '.join(str(error).split())}", file=sys.stderr)  # noqa: T201 - a program's word
        return error.exit_code


def _parser() -> argparse.ArgumentParser:
    words = __doc__ or ""
    parser = argparse.ArgumentParser(
        prog="cachemgr.machines", description=words, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("verb", choices=["run", "facts", *VERBS])
    parser.add_argument("folder", nargs="?")
    parser.add_argument("name", nargs="?", help="of a signal")
    parser.add_argument("--node", default=os.uname().nodename, help="this node's name")
    parser.add_argument("--qemu", default=PROGRAM, help="QEMU's program")
    parser.add_argument("--wish", default="-", metavar="FILE")
    parser.add_argument("--grace", type=float, default=GRACE_S, metavar="SECONDS")
    parser.add_argument("--to", metavar="PLACE")
    parser.add_argument("--to-folder", metavar="FOLDER")
    parser.add_argument("--at", metavar="HOST:PORT")
    parser.add_argument("--key", metavar="FILE")
    parser.add_argument("--rate", type=int, metavar="BYTES", help="sent a second, at most")
    parser.add_argument("--wait", type=float, default=WAIT_S, metavar="SECONDS")
    parser.add_argument("--parcel", default="-", metavar="FILE")
    parser.add_argument("--path", action="append", default=[], metavar="DISK=PATH")
    return parser


def _start(machine: Machine, given: argparse.Namespace) -> object:
    return described(machine.start(read_wish(_read(given.wish))))


def _signal(machine: Machine, given: argparse.Namespace) -> object:
    machine.signal(given.name or "")
    return {}


def _collect(machine: Machine, given: argparse.Namespace) -> object:
    return {"files": machine.collect()}


def _remove(machine: Machine, given: argparse.Namespace) -> object:
    machine.remove()
    return {}


def _give(machine: Machine, given: argparse.Namespace) -> object:
    if not given.to:
        raise BadRequest("give needs --to NODE:FOLDER")
    return give(machine, given.to).encode()


def _take(machine: Machine, given: argparse.Namespace) -> object:
    take(machine, read_parcel(_read(given.parcel)), _paths(given.path))
    return described(machine.status())


def _migrate(machine: Machine, given: argparse.Namespace) -> object:
    if bool(given.to_folder) == bool(given.at):
        raise BadRequest("migrate needs either --to-folder FOLDER, or --at HOST:PORT and --key FILE")
    if given.to_folder:
        target = Machine(given.to_folder, machine.site)
        done = live.to_folder(machine, target, _paths(given.path), given.rate)
        return {**described(target.status()), **done}
    if given.path:
        raise BadRequest("--path is said where the machine is received")
    done = live.to_node(machine, given.at, given.key, given.rate)
    return {**described(machine.status()), **done}


def _receive(machine: Machine, given: argparse.Namespace) -> object:
    return described(live.received(machine, given.at, given.key, _paths(given.path), given.wait))


VERBS: dict[str, Callable[[Machine, argparse.Namespace], object]] = {
    "start": _start,
    "status": lambda machine, given: described(machine.status()),
    "suspend": lambda machine, given: described(machine.suspend()),
    "resume": lambda machine, given: described(machine.resume()),
    "stop": lambda machine, given: described(machine.stop(given.grace)),
    "signal": _signal,
    "collect": _collect,
    "remove": _remove,
    "give": _give,
    "take": _take,
    "migrate": _migrate,
    "receive": _receive,
}


def described(status: MachineStatus) -> dict[str, object]:
    """A machine's status as it is printed. The token that lets it run elsewhere is not for printing."""
    record = status.record
    found: dict[str, object] = {
        "name": record.name,
        "state": record.state,
        "reason": record.reason,
        "guest": status.guest,
        "is_alive": status.is_alive,
        "is_busy": status.is_busy,
        "generation": record.generation,
        "place": record.place,
        "exit_status": record.exit_status,
        "pauses_ms": list(record.pauses_ms),
        "saved": {name: asdict(each) for name, each in sorted(record.saved.items())},
    }
    if record.qemu is not None:
        found["qemu"] = asdict(record.qemu)
    return found


def _read(path: str) -> dict[str, object]:
    try:
        data = sys.stdin.buffer.read(MOST_BYTES) if path == "-" else RealDisk().read(path, MOST_BYTES)
        found = json.loads(data)
    except OSError as error:
        raise BadRequest(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise BadRequest(f"{path} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise BadRequest(f"{path} holds no JSON object")
    return found


def _paths(pairs: Sequence[str]) -> dict[str, str]:
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise BadRequest(f"--path wants DISK=PATH, not {wrong[0]!r}")
    return dict(pair.split("=", 1) for pair in pairs)


def _say(found: object) -> int:
    print(json.dumps(found))  # noqa: T201 - a program's result
    return 0


if __name__ == "__main__":
    sys.exit(main())
