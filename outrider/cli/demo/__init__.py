"""`outrider demo`: the service on one machine, as a user sees it. What it runs is real."""

from __future__ import annotations

import argparse
import os
import sys

from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.errors import MissingPartError

_EPILOG = """It makes a folder, a service, five nodes and two images of its own, works with them through the
commands that users type, and removes all of it again, also after Ctrl-C. Root is not needed.

examples:
  outrider demo
  outrider demo --brief
  outrider demo --keep
"""


def add(commands: Subparsers) -> None:
    parser = add_command(
        commands,
        "demo",
        show,
        "show the service at work on this machine, in a little more than a minute",
        _EPILOG,
    )
    parser.add_argument(
        "--brief", action="store_true", help="in less than half a minute: smaller images, and nothing breaks"
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the folder, with the service's log and what jobs printed"
    )


def show(arguments: argparse.Namespace) -> None:
    try:
        import fastapi  # noqa: F401
        import prometheus_client  # noqa: F401
        import pydantic  # noqa: F401
        import uvicorn  # noqa: F401
        import yaml  # noqa: F401
    except ImportError as error:
        raise MissingPartError(
            f"the demo runs the service, which needs {error.name}: in a clone of Outrider, "
            "pip install '.[service]'"
        ) from error
    from cachemgr.base.clock import SystemClock
    from outrider.cli.demo.screen import DemoScreen, prose
    from outrider.cli.demo.stage import staged
    from outrider.cli.demo.story import BRIEF, FULL, INTRODUCTION, Story

    clock = SystemClock()
    plot = BRIEF if arguments.brief else FULL
    print(prose(INTRODUCTION), flush=True)
    with staged(clock, os.environ, plot.image_bytes, keeps_folder=arguments.keep) as stage:
        screen = DemoScreen(sys.stdout, stage.environment, stage.launch, clock)
        Story(stage, screen, clock, plot).tell()
    if not arguments.keep:
        print("\nEverything is removed again. On a site: outrider --help, docs/tutorial/walkthrough.md")
