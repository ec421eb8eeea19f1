"""The engine as a program whose machines merge their layers early: from the third on, with four at most."""

from __future__ import annotations

import sys

import cachemgr.machines.machine as machine
from cachemgr.machines.__main__ import main

for name, count in (("MERGED_LAYERS", 3), ("MOST_LAYERS", 4)):
    assert hasattr(machine, name)
    setattr(machine, name, count)

if __name__ == "__main__":
    sys.exit(main([*sys.argv[1:], "--node", "node"]))
