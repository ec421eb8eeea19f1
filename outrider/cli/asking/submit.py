"""`outrider submit`: hand a job to the batch system, to run in a reservation or on a workspace."""

from __future__ import annotations

import argparse
import os

from outrider.cli.arguments import Subparsers
from outrider.cli.asking import wanted as wants
from outrider.cli.asking.session import add_asking, print_problems, session
from outrider.cli.connection.client import FaultyRequestError, Json
from outrider.cli.errors import InputError, UnreachableError
from outrider.cli.output import print_json, print_notes
from outrider.cli.quantities import positive

_EPILOG = """Prints the job's key. Everything from the script on belongs to the job, options included.

examples:
  outrider submit --reservation render-17 -n 4 ./render.sh frame.blend
  outrider submit --workspace ws.yaml -n 2 -t 30m ./run.sh
"""


def add(commands: Subparsers) -> None:
    parser = add_asking(commands, "submit", submit, "hand a job to the batch system", _EPILOG)
    parser.add_argument(
        "--reservation", metavar="NAME", help="run in this reservation: render-17, or render if that is clear"
    )
    parser.add_argument("--workspace", metavar="FILE", help="run on this workspace's image, best effort")
    parser.add_argument(
        "-n", "-N", "--nodes", metavar="N", type=positive, help="how many nodes (the workspace's, or 1)"
    )
    parser.add_argument(
        "-t", "--duration", metavar="TIME", help="for how long at most: 2h30m, or 90 for minutes"
    )
    parser.add_argument("--account", metavar="ACCOUNT", default="", help="the account that is charged")
    parser.add_argument("script", metavar="SCRIPT", help="the program to run")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="what it is given")


def submit(arguments: argparse.Namespace) -> None:
    asking = session(arguments)
    body: dict[str, Json] = {
        "argv": [_program(arguments.script), *arguments.arguments],
    }
    if arguments.nodes is not None:
        body["nodes"] = arguments.nodes
    if arguments.reservation is not None:
        body["reservation"] = arguments.reservation
    if arguments.duration is not None:
        body["duration"] = arguments.duration
    if arguments.account:
        body["account"] = arguments.account
    if arguments.workspace is not None:
        if arguments.reservation is not None:
            raise InputError(
                "--workspace and --reservation: a reservation has its image; give one of the two"
            )
        body["workspace"] = wants.read_text(arguments.workspace)
        body["file"] = wants.sent_file(arguments.workspace)
        body["zone"] = asking.zone_name
    try:
        answer = asking.client.post("/v1/submissions", body)
    except FaultyRequestError as error:
        file = None if arguments.workspace is None else wants.shown_file(arguments.workspace)
        print_problems(error, file)
        raise InputError(f"faults found: {len(error.problems)}; nothing was submitted") from error
    if asking.is_json:
        print_json(answer)
        return
    job = answer.get("job") if isinstance(answer, dict) else None
    if not isinstance(job, str):
        raise UnreachableError("the service's answer names no job: see outrider status, and its log")
    print(job)
    notes = answer.get("notes") if isinstance(answer, dict) else None
    print_notes([str(each) for each in notes] if isinstance(notes, list) else [])


def _program(script: str) -> str:
    """A script is named as seen from here; the job may be started elsewhere."""
    if "/" not in script and not os.path.exists(script):
        return script
    if os.path.isfile(script) and not os.access(script, os.X_OK):
        raise InputError(f"{script} is started as a program and is not executable: chmod +x {script}")
    return os.path.abspath(script)
