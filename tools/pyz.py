"""Packs `cachemgr` into one file that runs on a node, from a checkout in which nothing is installed.

How it is packed is in `outrider.cli.installing.common.pyz`, since `outrider nodes deploy` does the same.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from outrider.cli.installing.common.pyz import bytecode, main, pack, sources

__all__ = ["bytecode", "main", "pack", "sources"]

if __name__ == "__main__":
    main()
