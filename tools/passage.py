"""How many files and shapes a request passes: counted by watching a service at work.

`python tools/passage.py` starts outriderd with virtual nodes, hands over jobs and asks for
reservations, one after the other, and prints in how many of the product's files a function is
called that is given the request in one of its shapes:

- a reservation, from its request until its row is committed;
- the order for its image, from there to the first byte from the image's server, on head and node;
- a best-effort job, from its submission to its start, on the head.

A file counts if it did so in every round. `--list` names files and shapes.
"""

from __future__ import annotations

import argparse
import atexit
import json
import os
import re
import runpy
import shlex
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from time import sleep, time_ns
from types import FrameType
from unittest import mock

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cachemgr.base.clock import SystemClock
from outrider.cli.demo.stage import DemoStage
from outrider.store.sql.reading import SqlStore

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = (f"{ROOT}/outrider/", f"{ROOT}/cachemgr/")
ROUNDS = 5
IMAGE_BYTES = 2_000_000
NS_IN_US = 1_000
PACKAGES = ("outrider.", "cachemgr.")
RESERVATION = frozenset(
    (
        *("ReserveBody", "WorkspaceFile", "Workspace", "Reserve", "Asked", "Wish"),
        *("Document", "ReservationRecord", "Live", "Reservation"),
    )
)
IMAGE_ORDER = frozenset(
    (
        *("Need", "Fetch", "TellNode", "AddRequest", "BringOrder", "Origin"),
        *("Transfer", "PoolTransfer", "Writer"),
    )
)
JOB = frozenset(
    (
        *("SubmitBody", "WorkspaceFile", "BeginSubmission", "Asked", "RmsJob", "JobLines"),
        *("JobEntry", "PlacementRequest", "JobPlacement", "BestEffortTransfer"),
    )
)
ALL_SHAPES = RESERVATION | IMAGE_ORDER | JOB
CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
COMMITTED = "a promise is committed"
PROMISE = SqlStore.promise.__wrapped__.__code__  # type: ignore[attr-defined]
AFTER_US = 5_000
"""So long after the server has begun to send, the first byte is on the node's disk."""
MOST_WAIT_S = 30

Window = tuple[int, int]


def unknown_shapes() -> set[str]:
    """Names in the lists that no class of the product has: what has been renamed would not be counted."""
    files = [file for folder in PRODUCT for file in Path(folder).rglob("*.py")]
    return set(ALL_SHAPES) - {name for file in files for name in CLASS.findall(file.read_text())}


def watch(folder: str) -> None:
    """Note from now on when which file is given which shape, until the process ends."""
    seen: list[tuple[int, str, str]] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        file = frame.f_code.co_filename
        if event == "return" and frame.f_code is PROMISE and argument is None:
            # With the writes in hand it has only begun.
            seen.append((now(), file, COMMITTED))
        if event != "call" or not file.startswith(PRODUCT):
            return
        for each in frame.f_locals.values():
            kind = type(each)
            if kind.__name__ in ALL_SHAPES and kind.__module__.startswith(PACKAGES):
                seen.append((now(), file, kind.__name__))

    def write() -> None:
        sys.setprofile(None)
        Path(folder, f"{os.getpid()}.json").write_text(json.dumps(seen))

    atexit.register(write)
    threading.setprofile(note)
    sys.setprofile(note)


def now() -> int:
    return time_ns() // NS_IN_US


def inside(folder: str, words: list[str]) -> None:
    """In place of the interpreter: `-m module …`, watched. What it starts is watched, too."""
    sys.executable = os.environ.get("PASSAGE_INTERPRETER", sys.executable)
    sys.argv = words[words.index("-m") + 1 :]
    watch(folder)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


class Passages:
    """A demo's service whose processes are watched."""

    def __init__(self, folder: Path) -> None:
        self._seen = folder / "seen"
        self._seen.mkdir()
        self._interpreter = folder / "python"
        words = shlex.join([sys.executable, str(Path(__file__).resolve()), "--inside", str(self._seen)])
        self._interpreter.write_text(f'#!/bin/sh\nPASSAGE_INTERPRETER="$0" exec {words} "$@"\n')
        self._interpreter.chmod(0o755)
        self._sent_us: dict[str, int] = {}
        self.stage = DemoStage(folder / "s", SystemClock(), os.environ)
        self.stage.folder.mkdir()

    @contextmanager
    def running(self) -> Iterator[None]:
        real = SimpleHTTPRequestHandler.copyfile

        def copyfile(handler: SimpleHTTPRequestHandler, source: object, target: object) -> None:
            self._sent_us.setdefault(handler.path, now())
            real(handler, source, target)  # type: ignore[arg-type]

        names = [f"{kind}{number}" for kind in ("kept", "job") for number in range(ROUNDS)]
        with mock.patch.object(SimpleHTTPRequestHandler, "copyfile", copyfile):
            with mock.patch.object(sys, "executable", str(self._interpreter)):
                self.stage.begin(dict.fromkeys(names, IMAGE_BYTES))
            try:
                yield
            finally:
                self.stage.end()

    def reservation(self, number: int) -> tuple[Window, int]:
        """From the request to the answer, and when the first byte is there."""
        name = f"kept{number}"
        text = self.stage.write_workspace(name, 1, "1m")
        sleep(1)
        asked_us = now()
        answer = self.stage.client.post(
            "/v1/reservations", {"workspace": text, "options": {"start": "now+30s"}, "zone": "UTC"}
        )
        answered_us = now()
        assert isinstance(answer, dict), answer
        assert answer["result"] == "accepted", answer
        path = f"/{name}.qcow2"
        self._await(lambda: path in self._sent_us, f"{path} is asked for by a node")
        return (asked_us, answered_us), self._sent_us[path] + AFTER_US

    def job(self, number: int) -> Window:
        """From the submission to the start."""
        text = self.stage.write_workspace(f"job{number}", 1, "1m")
        sleep(1)
        asked_us = now()
        script = str(self.stage.folder / "job.sh")
        answer = self.stage.client.post(
            "/v1/submissions", {"argv": [script], "workspace": text, "zone": "UTC"}
        )
        assert isinstance(answer, dict), answer
        output = self.stage.output_of(str(answer["job"]))
        self._await(output.exists, f"job {answer['job']} starts")
        return asked_us, now()

    def committed_us(self, window: Window) -> int:
        """When the last promise of a window was committed."""
        begin, end = window
        return max(at_us for at_us, _, what in self._all() if what == COMMITTED and begin <= at_us <= end)

    def passed(self, windows: list[Window], shapes: frozenset[str], folder: str) -> dict[str, list[str]]:
        """Files that were given one of these shapes in every window, and which."""
        rounds = [
            {(file, shape) for at_us, file, shape in self._all() if begin <= at_us <= end and shape in shapes}
            for begin, end in windows
        ]
        found: dict[str, list[str]] = {}
        for file, shape in sorted(set.intersection(*rounds)):
            name = str(Path(file).relative_to(ROOT))
            if name.startswith(folder):
                found.setdefault(name, []).append(shape)
        return found

    def _all(self) -> list[tuple[int, str, str]]:
        return [tuple(each) for path in self._seen.iterdir() for each in json.loads(path.read_text())]

    def _await(self, is_so: Callable[[], bool], what: str) -> None:
        for _ in range(MOST_WAIT_S * 100):
            if is_so():
                return
            sleep(0.01)
        raise SystemExit(f"{MOST_WAIT_S} s have passed before {what}:\n{self.stage.last_words()}")


def main() -> int:
    if sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="name the files")
    given = parser.parse_args()
    if unknown := unknown_shapes():
        parser.error(f"no class is called {', '.join(sorted(unknown))}: correct the lists of shapes")
    with tempfile.TemporaryDirectory(prefix="passage-") as folder:
        passages = Passages(Path(folder))
        with passages.running():
            jobs = [passages.job(number) for number in range(ROUNDS)]
            kept = [passages.reservation(number) for number in range(ROUNDS)]
        decided = [(window[0], passages.committed_us(window)) for window, _ in kept]
        carried = [(end, first_us) for (_, end), (_, first_us) in zip(decided, kept, strict=True)]
        for what, windows, shapes, where in (
            ("a reservation, until its row is committed", decided, RESERVATION, "outrider"),
            ("its image's order, until the first byte", carried, IMAGE_ORDER, ""),
            ("a best-effort job, until it starts", jobs, JOB, "outrider"),
        ):
            found = passages.passed(windows, shapes, where)
            kinds = {kind for each in found.values() for kind in each}
            print(f"{len(found):4d} files, {len(kinds):3d} shapes: {what}")
            if given.list:
                print("".join(f"       {name}: {', '.join(each)}\n" for name, each in found.items()), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
