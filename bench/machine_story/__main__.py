"""Machines on four nodes make way for a reservation of three, on a real batch system, beside the simulator.

Four nodes are full of jobs in emulated guests that may be suspended. A reservation of three of them is
asked for too early, and then for the earliest start that it is offered: just enough for the suspensions. The
machines are saved, the reservation starts, they continue and count to their end. A first act measures what
each step costs on this machine; from that and the site's settings the simulator says when each event is to
happen. Prints both and their ratio; fails if a machine counts wrong, a node or the image is late, the
accounting (sacct, qacct) does not fit, or, but for the short form, an event is more than 15 % off.
"""

from __future__ import annotations

import os
from pathlib import Path

from bench.frame import Arguments, judged, lacking, without_root
from cachemgr.machines.keeper import PROGRAM


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--count", 45, 30, "how far each machine counts, a number in two seconds")
    parser.add("--alone", 14, 12, "how far in the first act")
    parser.add("--duration", 20, 15, "seconds of the reservation")
    parser.add("--memory-mib", 96, 96, "of each machine")
    parser.add_argument("--on", choices=("slurm", "gridengine"), default="slurm", help="(default: slurm)")
    parser.add_argument("--csv", type=Path, default=None, help="where the rows go")
    parser.add_argument("--plot", type=Path, default=None, help="a picture of both")
    given = parser.given()
    if without_root("for hosts with networks of their own"):
        return 2
    missing = None if os.path.exists(PROGRAM) else f"needs {PROGRAM}: make tools"
    from bench.machine_story import systems

    if lacking(missing or systems.lack(given.on)):
        return 2
    from bench.machine_story.live import LiveStory
    from bench.machine_story.prediction import predicted
    from bench.machine_story.report import far, faults, rows, table

    with systems.begun(given.on) as system:
        words = f"{system.site.cluster.system}, load {os.getloadavg()[0]:.1f}"
        print(words, flush=True)
        story = LiveStory(system, given.memory_mib, lambda text: print(text, flush=True))
        told = story.told(given.count, given.alone, given.duration)
    prediction = predicted(told)
    print(f"{table(told, prediction)}\n  load at the end {os.getloadavg()[0]:.1f}")
    wrong, off = faults(told, prediction, system.came_back), far(told, prediction)
    for each in (*wrong, *off):
        print(f"  does not hold: {each}")
    if given.csv is not None:
        lines = [
            f"{row.event},{row.node},{row.predicted_s:.1f},{row.measured_s:.1f},{row.ratio:.3f}"
            for row in rows(told, prediction)
        ]
        given.csv.write_text("\n".join(["event,node,predicted_s,measured_s,ratio", *lines]) + "\n")
    if given.plot is not None:
        from bench.machine_story.picture import drawn

        drawn(told, prediction, given.plot, words)
    if wrong:
        return 1
    print("every promise was kept" + ("" if off else ", and every event is within 15 % of its prediction"))
    return judged(given, is_good=not off)


if __name__ == "__main__":
    raise SystemExit(main())
