"""`python3 -m cachemgr`: the command line."""

from __future__ import annotations

from cachemgr.cli.main import run

if __name__ == "__main__":
    run()
