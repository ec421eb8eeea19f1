"""`python -m testbed.demo`: Outrider on a private Slurm; without one, the demo that needs nothing."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

from cachemgr.base.clock import SystemClock
from outrider.cli.demo.screen import DemoScreen, prose
from outrider.cli.errors import EXIT_INTERRUPTED, BrokenError, CommandError
from testbed.demo.provision import provided
from testbed.demo.stage import NODES, NoStageError, staged
from testbed.demo.story import BRIEF, FULL, INTRODUCTION, ClusterDemo
from testbed.records import TestbedError

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_NO_STAGE = 3
BY_HAND = """
The cluster stands. A shell on its head, as the user of the demo, and the end of it all:
  {python} -m testbed slurm run --name {name} --user ada head -- bash
  {python} -m testbed slurm down --name {name}"""


def main(argv: Sequence[str]) -> int:
    asked = _parser().parse_args(argv)
    try:
        return _shown(asked)
    except NoStageError as error:
        if asked.insist:
            _say(f"no private Slurm: {error}", to_errors=True)
            return EXIT_NO_STAGE
        _say("\n" + prose(f"No private Slurm here: {str(error).rstrip('.')}."))
        _say(prose("What follows is Outrider with the small batch system that it brings along.") + "\n")
        words = [sys.executable, "-m", "outrider.cli.main", "demo", *(["--brief"] if asked.brief else [])]
        os.execv(words[0], words)
    except (CommandError, TestbedError) as error:
        _say(f"demo: {error}", to_errors=True)
        return error.exit_code if isinstance(error, CommandError) else BrokenError.exit_code
    except KeyboardInterrupt:
        _say("demo: interrupted", to_errors=True)
        return EXIT_INTERRUPTED


def _shown(asked: argparse.Namespace) -> int:
    reason = provided(_say)
    if reason is not None:
        raise NoStageError(reason)
    clock = SystemClock()
    plot = BRIEF if asked.brief else FULL
    _say(prose(INTRODUCTION))
    began_s = clock.monotonic_s()
    with staged(os.environ, plot.image_bytes, is_kept=asked.keep, has_machine=plot.has_machine) as stage:
        took_s = clock.monotonic_s() - began_s
        version = stage.cluster.version
        _say(f"\nSlurm {version} and Outrider run on head and n[1-{NODES}] after {took_s:.0f} s.")
        ClusterDemo(stage, DemoScreen(sys.stdout, os.environ, stage.launch, clock), clock, plot).tell()
    if asked.keep:
        _say(BY_HAND.format(python=sys.executable, name=stage.cluster.name))
    else:
        _say("\nAll of it is gone again. Explained step by step: docs/tutorial/walkthrough.md")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="testbed.demo", description="Outrider on a private Slurm")
    parser.add_argument("--brief", action="store_true", help="smaller images and one reservation")
    parser.add_argument(
        "--keep", action="store_true", help="leave the cluster standing, to try things by hand"
    )
    parser.add_argument(
        "--insist", action="store_true", help="fail if there can be no Slurm, instead of showing without"
    )
    return parser


def _say(text: str, *, to_errors: bool = False) -> None:
    stream = sys.stderr if to_errors else sys.stdout
    stream.write(f"{text}\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
