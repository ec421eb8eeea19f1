"""`cachemgr`: the command line's way in.

What a verb needs is imported when it runs, so that help and errors come at once.
"""

from __future__ import annotations

import os
import sys

from cachemgr import __version__
from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import BadRequest, CacheError, DiskFailed
from cachemgr.cli.arguments import VerbParser, VerbParsers, add_common
from cachemgr.cli.exits import EXIT_FAULT, EXIT_INTERRUPTED, EXIT_OK, EXIT_PIPE_CLOSED, exit_code_lines
from cachemgr.cli.session import VerbSession
from cachemgr.cli.verbs import (
    adding,
    bundling,
    images,
    instances,
    leases,
    library,
    machining,
    mirror,
    mounting,
    node,
    shares,
    transfers,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

EPILOG = f"""examples:
  cachemgr init --limit 50GiB                make this node's pool
  cachemgr add /images/ubuntu.qcow2          bring an image in
  cachemgr ls                                what is there

`cachemgr VERB --help` shows a verb's own options.

exit codes:
{exit_code_lines()}
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code; errors are one line on stderr."""
    session = None
    try:
        arguments = parser().parse_args(argv)
        session = VerbSession(arguments, SystemClock())
        arguments.command(session, arguments)
    except SystemExit as finished:  # argparse, after --help and --version
        return finished.code if isinstance(finished.code, int) else EXIT_OK
    except CacheError as error:
        print(f"cachemgr: {one_line(error)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        said = str(interrupt) or "interrupted"
        print(f"cachemgr: {said}", file=sys.stderr)
        return EXIT_INTERRUPTED
    finally:
        if session is not None:
            session.close()
    return EXIT_OK


def run() -> None:
    """The console script: `main`, with what only a whole process can do."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = _flushed(main())
    except BrokenPipeError:
        # Python would complain again when it flushes stdout on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_PIPE_CLOSED
    except Exception:  # noqa: BLE001 - the outermost loop: whatever it is, say it and exit
        import traceback

        traceback.print_exc()
        code = EXIT_FAULT
    sys.exit(code)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"cachemgr: the result cannot be written: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DiskFailed.exit_code
    return code


def parser() -> VerbParser:
    found = VerbParser(
        prog="cachemgr",
        description="The pool of images on this node: what is in it, who needs it, and how it gets there.",
        epilog=EPILOG,
    )
    add_common(found, is_hidden=False)
    found.add_argument("--version", action="version", version=f"cachemgr {__version__}")
    below = found.add_subparsers(metavar="VERB", title="verbs", parser_class=VerbParser)
    found.set_defaults(command=_no_verb, parser=found)
    commands = VerbParsers(below)
    for module in (
        *(adding, images, library, bundling, mirror, leases, instances, mounting),
        *(transfers, node, shares, machining),
    ):
        module.add(commands)
    return found


def one_line(error: CacheError) -> str:
    """A message on one line, whatever a source or a tool put into it."""
    return " ".join(str(error).split())


def _no_verb(session: VerbSession, arguments: argparse.Namespace) -> None:
    raise BadRequest("no verb given; try cachemgr ls, or cachemgr --help")
