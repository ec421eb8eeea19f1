"""`outrider submit`: hand a job to the batch system, to run in a reservation or on a workspace."""

from __future__ import annotations

import argparse

from outrider.cli.arguments import Subparsers
from outrider.cli.asking.session import add_asking, print_problems, session
from outrider.cli.errors import InputError
from outrider.cli.output import print_json, print_notes
from outrider.cli.quantities import positive
from outrider_client.answers import Submitted
from outrider_client.reading import read
from outrider_client.transport import FaultyRequestError
from outrider_client.wishes import Job, shown_file, text_of_file

_EPILOG = """Prints the job's key. Everything from the script on belongs to the job, options included. A
script that runs on a workspace says more of itself in lines with #OUTRIDER, like run: vm.

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
    parser.add_argument(
        "--chdir", metavar="FOLDER", default="", help="where it begins (home; here, if it has run: vm)"
    )
    parser.add_argument("script", metavar="SCRIPT", help="the program to run")
    parser.add_argument(
        "arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="the program's arguments"
    )


def submit(arguments: argparse.Namespace) -> None:
    asking = session(arguments)
    job = Job(
        [arguments.script, *arguments.arguments],
        nodes=arguments.nodes,
        duration=arguments.duration or "",
        account=arguments.account,
        reservation=arguments.reservation or "",
        workspace=None if arguments.workspace is None else text_of_file(arguments.workspace),
        zone=asking.zone_name,
        folder=arguments.chdir,
    )
    try:
        answer = asking.client.post("/v1/submissions", job.body())
    except FaultyRequestError as error:
        file = None if arguments.workspace is None else shown_file(arguments.workspace)
        print_problems(error, file)
        raise InputError(f"faults found: {len(error.problems)}; nothing was submitted") from error
    if asking.is_json:
        print_json(answer)
        return
    handed = read(Submitted, answer)
    print(handed.job)
    print_notes(handed.notes)
