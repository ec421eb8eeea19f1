"""A service is killed again and again under load; then everything that it promised must hold.

Prints what was done and what is wrong: nothing may be. The tests run the same for some rounds.
"""

from __future__ import annotations

import sys
from pathlib import Path

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import Arguments
from tests.daemons.kill.rounds import campaign


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--rounds", 400, 1)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--service-only", action="store_true", help="nodes' daemons end with their input")
    arguments = parser.given()
    report = campaign(
        arguments.rounds,
        arguments.seed,
        nodes=arguments.nodes,
        is_killing_nodes=not arguments.service_only,
        say=lambda line: print(line, flush=True),
    )
    print(report.text)
    print("something is wrong" if report.wrong else "nothing is wrong")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
