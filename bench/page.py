"""The page before a large site: how soon it shows it, and how it moves, in a real Chromium without a screen.

The service is outriderd itself over a store with 20,000 reservations on 10,000 nodes, as in bench/service.py,
and the page comes from `outrider page`. First paint: from the address to the first whole frame of the
timeline, data included. Moving: the timeline is dragged about, a step in each frame, and drawn by the
processor. Beside the wall's time there is the processor time of the page's own thread, since others may use
the machine: a frame within 20 ms of it is one of 50 in a second.
"""

from __future__ import annotations

import signal
import statistics
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.admission import percentile
from bench.frame import NOT_MEASURED, Arguments, judged, lacking
from bench.service import prepare
from bench.service_process import BenchedService
from bench.service_site import BenchedSite
from outrider.cli.asking.page import page_server
from outrider_client.doors import door_of
from outrider_client.portal import Portal
from testbed.browser import Browser, browser, browser_lacks

PAINT_MS = 1_500
FRAME_MS = 20
SIZES = ((360, 740), (1280, 800), (3840, 2160))
BUTTONS = (("a day", "Now, and the next day"), ("all of it", "All of it"))
DRAWN = (
    "const found = performance.getEntriesByName('timeline drawn'); return found.length && found[0].startTime"
)
RESTING = "const rested = arguments[0]; setTimeout(rested, 1500)"
DRAG = """
const [frames, tell] = arguments, canvas = document.querySelector("canvas");
const box = canvas.getBoundingClientRect(), times = [];
let x = box.left + box.width / 2, y = box.top + box.height / 2, byX = box.width / 90, byY = box.height / 240;
let last = null;
canvas.setPointerCapture = () => {};
function send(kind) {
  const place = { pointerId: 1, clientX: x, clientY: y, bubbles: true };
  canvas.dispatchEvent(new PointerEvent(kind, place));
}
function frame(now) {
  if (last !== null) times.push(now - last);
  last = now;
  if (times.length >= frames) { send("pointerup"); tell(times); return; }
  if (x + byX < box.left + box.width / 5 || x + byX > box.right - 20) byX = -byX;
  if (y + byY < box.top + 60 || y + byY > box.bottom - 20) byY = -byY;
  x += byX;
  y += byY;
  send("pointermove");
  requestAnimationFrame(frame);
}
send("pointerdown");
requestAnimationFrame(frame);
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Drag:
    """Milliseconds between frames, and of the thread's processor time for one."""

    frames_ms: list[float]
    cpu_ms: float


def main(argv: Sequence[str] | None = None) -> int:
    parser = Arguments(__doc__)
    parser.add("--nodes", 10_000, 200)
    parser.add("--reservations", 20_000, 200)
    parser.add("--times", 5, 1, "how often the page is opened")
    parser.add("--frames", 200, 20, "of each drag")
    parser.add_argument("--filled", type=Path, help="take this filled folder instead of making one")
    options = parser.given(argv)
    if lacking(browser_lacks()):
        return NOT_MEASURED
    with tempfile.TemporaryDirectory(prefix="outrider-bench-") as folder:
        place = BenchedSite(folder=Path(folder), nodes=options.nodes)
        prepare(place, options.reservations, options.filled)
        service = BenchedService(place)
        service.start()
        try:
            with page_server(Portal(door_of(str(place.socket), None, {})), 0, "k" * 32) as server:
                threading.Thread(target=server.serve_forever, daemon=True).start()
                is_good = measured(server.address, options.times, options.frames)
                server.shutdown()
        finally:
            service.end(signal.SIGKILL)
    return judged(options, is_good=is_good)


def measured(address: str, times: int, frames: int) -> bool:
    is_good = True
    print(f"{'window':>10}  {'':24} {'median':>9} {'worst':>9}   {'limit':>8}", flush=True)
    for width, height in SIZES:
        paints, cpus = [], []
        for _ in range(times):
            # A profile of its own each time: nothing is kept from before.
            with browser() as window:
                window.size(width, height)
                window.command("Performance.enable", {"timeDomain": "threadTicks"})
                window.open(address)
                paints.append(float(window.wait(DRAWN)))
                cpus.append(_busy_ms(window))
                drags = {words: dragged(window, title, frames) for words, title in BUTTONS}
        row(f"{width}", "first paint", paints, f"{PAINT_MS} ms")
        row("", "  processor time of it", cpus, "")
        is_good &= statistics.median(paints) <= PAINT_MS
        for words, drag in drags.items():
            row("", f"a frame, {words}", drag.frames_ms, f"{FRAME_MS} ms")
            per_s = 1000 * len(drag.frames_ms) / sum(drag.frames_ms)
            print(
                f"{'':>10}    {per_s:.0f} frames a second; {drag.cpu_ms:.1f} ms of processor for each",
                flush=True,
            )
            is_good &= drag.cpu_ms <= FRAME_MS
    return is_good


def dragged(window: Browser, title: str, frames: int) -> Drag:
    """Moved about at one scale, once it is drawn and nothing else is under way."""
    window.run('document.querySelector(`button[title="${arguments[0]}"]`).click()', title)
    window.promised(RESTING)
    before_ms = _busy_ms(window)
    times = window.promised(DRAG, frames)
    return Drag(frames_ms=[float(each) for each in times], cpu_ms=(_busy_ms(window) - before_ms) / len(times))


def _busy_ms(window: Browser) -> float:
    """Processor time that the page's own thread has used."""
    found = window.command("Performance.getMetrics", {})["metrics"]
    return 1000 * next(float(each["value"]) for each in found if each["name"] == "TaskDuration")


def row(size: str, words: str, values: list[float], limit: str) -> None:
    median, worst = statistics.median(values), percentile(values, 99)
    print(f"{size:>10}  {words:24} {median:>6.1f} ms {worst:>6.1f} ms   {limit:>8}", flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
