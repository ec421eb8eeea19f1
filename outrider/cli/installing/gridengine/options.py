"""What the command line says of Grid Engine, and what Outrider's objects in it are called."""

from __future__ import annotations

from outrider.cli.installing.common.port import CommandOption, SystemOptions

ACCOUNT = "outrider"
WORK_QUEUE = "all.q"
RESERVATION_QUEUE = "outrider.q"
_EPILOG = """Without --apply nothing is changed: what would be is shown. With it, the head gets Outrider's
files and Grid Engine the objects that reservations need; both change nothing for anybody. Once
"outrider nodes deploy" has brought the hooks to all nodes, they are tried on a queue of their own on one
node, and only if a job comes through there, the site's queues get them. --remove takes all of it back;
the store of promises stays.

examples:
  outrider init gridengine
  outrider init gridengine --apply
  outrider init gridengine --apply --prove-as ada
  outrider init gridengine --remove
"""
OPTIONS = SystemOptions(
    summary="install beside Grid Engine, or show what that changes",
    epilog=_EPILOG,
    parts={
        "submit-filter": "the filter in the qmaster, without which jobs are not managed",
        "prolog": "the hook that gives a job its image",
        "epilog": "the hook that takes the image away after a job",
        "starter": "the hook that tells a job where its image is",
        "shepherd": "what keeps Grid Engine from ending hooks of interactive jobs",
        "pe-start": "the hook that gives a parallel job its image on its other nodes",
        "unit": "the unit of systemd",
    },
    of_init=(
        CommandOption(
            name="--account", metavar="USER", default=ACCOUNT, help=f"who owns the reservations ({ACCOUNT})"
        ),
        CommandOption(
            name="--work-queue", metavar="QUEUE", default=WORK_QUEUE, help=f"the queue of jobs ({WORK_QUEUE})"
        ),
        CommandOption(
            name="--reservation-queue", metavar="QUEUE", default=RESERVATION_QUEUE,
            help=f"the queue of reservations, which is made ({RESERVATION_QUEUE})",
        ),
        CommandOption(
            name="--parts-queue", metavar="QUEUE",
            help="make a queue for reservations of parts of nodes, too; without it they have whole nodes",
        ),
        CommandOption(
            name="--prove-as", metavar="USER",
            help="the user whose job tries the hooks (root, if Grid Engine takes its jobs)",
        ),
    ),
    of_doctor=(
        CommandOption(
            name="--prove-as", metavar="USER",
            help="Grid Engine: have a job of this user's run through the hooks on a queue of its own",
        ),
    ),
)  # fmt: skip
