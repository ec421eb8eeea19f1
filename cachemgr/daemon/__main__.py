"""`python3 -m cachemgr.daemon [--config FILE]`: the daemon as a process of its own."""

from __future__ import annotations

import argparse
import os
import sys

from cachemgr import config
from cachemgr.base.errors import CacheError
from cachemgr.daemon.main import run


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m cachemgr.daemon", description="The image pool's daemon."
    )
    parser.add_argument("--config", metavar="FILE", help=f"read this instead of {config.PATH}")
    given = parser.parse_args(arguments)
    try:
        found = config.load(given.config, os.environ)
    except CacheError as error:
        sys.stderr.write(f"cachemgr: {error}\n")
        return error.exit_code
    return run(found, os.environ, sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
