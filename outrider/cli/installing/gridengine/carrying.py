"""Carries out changes by qconf, and takes them back: what an object said before is on disk first."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from outrider.cli.errors import OutputError
from outrider.cli.installing.common.running import ProgramRunner
from outrider.cli.installing.common.writing import write
from outrider.cli.installing.gridengine.plan import GridChange
from outrider.cli.installing.gridengine.site import joined, value, with_values

RECORD = "/usr/lib/outrider/gridengine-before.json"
SHOWN = {"queue attribute": "-sq", "environment attribute": "-sp", "queue": "-sq", "environment": "-sp"}


class Qconf:
    """Grid Engine's own tool. Raises OutputError with its words."""

    def __init__(self, runner: ProgramRunner) -> None:
        self._runner = runner

    def shown(self, *argv: str) -> str:
        """What there is; empty if there is none."""
        done = self._runner.run(["qconf", *argv])
        return joined(done.output) if done.is_good else ""

    def do(self, *argv: str) -> None:
        done = self._runner.run(["qconf", *argv])
        if not done.is_good:
            raise OutputError(f"qconf {' '.join(argv[:3])}: {done.reason}")

    def give(self, option: str, text: str, name: str = "object") -> None:
        """The same with an object in a file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / name
            path.write_text(text)
            self.do(option, str(path))

    def set_attribute(self, kind: str, name: str, key: str, after: str) -> None:
        """A queue's attribute alone, also beside those of single hosts; an environment as a whole."""
        if kind == "queue attribute":
            self.do("-rattr", "queue", key, after, name)
        else:
            # It takes no NONE for an attribute alone.
            self.give("-Mp", with_values(self.shown("-sp", name), {key: after}))

    def set_global(self, values: Mapping[str, str | None]) -> None:
        self.give("-Mconf", with_values(self.shown("-sconf"), values), "global")

    def set_scheduler(self, values: Mapping[str, str | None]) -> None:
        self.give("-Msconf", with_values(self.shown("-ssconf"), values))


def carry_out(changes: Sequence[GridChange], qconf: Qconf) -> None:
    """In their order. What is noted before can be taken back, also if this ends halfway."""
    note([*noted(), *changes])
    for change in changes:
        _put(change, qconf)


def take_back(qconf: Qconf) -> tuple[list[GridChange], list[str]]:
    """In the opposite order: what was taken back, and what somebody has changed since, in words."""
    done, kept = [], []
    for change in reversed(noted()):
        if _remove(change, qconf):
            done.append(change)
        else:
            kept.append(f"{change.words}: it was changed since, and stays as it is")
    if os.path.exists(RECORD):
        os.unlink(RECORD)
    return done, kept


def undo(changes: Sequence[GridChange], qconf: Qconf) -> None:
    """As if these had never been carried out."""
    for change in reversed(changes):
        _remove(change, qconf)
    note([each for each in noted() if each not in changes])


def noted() -> list[GridChange]:
    try:
        return [GridChange(**each) for each in json.loads(Path(RECORD).read_bytes())["changes"]]
    except OSError:
        return []


def note(changes: Sequence[GridChange]) -> None:
    os.makedirs(os.path.dirname(RECORD), exist_ok=True)
    text = json.dumps({"version": 1, "changes": [asdict(each) for each in dict.fromkeys(changes)]})
    write(RECORD, f"{text}\n".encode())


def _put(change: GridChange, qconf: Qconf) -> None:
    after = change.after or ""
    match change.kind:
        case "queue attribute" | "environment attribute":
            qconf.set_attribute(change.kind, change.name, change.key, after)
        case "configuration":
            qconf.set_global({change.key: after})
        case "scheduler":
            qconf.set_scheduler({change.key: after})
        case "complex":
            qconf.give("-Mc", f"{qconf.shown('-sc')}{after}\n")
        case "queue":
            qconf.give("-Aq", after)
        case "environment":
            qconf.give("-Ap", after)
        case "manager":
            qconf.do("-am", change.name)
        case "reserver":
            qconf.do("-au", change.name, "arusers")


def _remove(change: GridChange, qconf: Qconf) -> bool:
    """Whether it could be taken back; what was never done, or is gone, counts as taken back."""
    match change.kind:
        case "queue attribute" | "environment attribute":
            text = qconf.shown(SHOWN[change.kind], change.name)
            is_ours = value(text, change.key).split() == (change.after or "").split()
            if is_ours:
                qconf.set_attribute(change.kind, change.name, change.key, change.before or "NONE")
            return is_ours or not text or value(text, change.key).split() == (change.before or "").split()
        case "configuration":
            found = value(qconf.shown("-sconf"), change.key)
            if found.split() == (change.after or "").split():
                qconf.set_global({change.key: change.before})
                return True
            return found == (change.before or "")
        case "scheduler":
            found = value(qconf.shown("-ssconf"), change.key)
            if found.split() == (change.after or "").split():
                qconf.set_scheduler({change.key: change.before})
                return True
            return found == (change.before or "")
        case "complex":
            lines = qconf.shown("-sc").splitlines()
            left = [line for line in lines if not line.startswith(f"{change.name} ")]
            if left != lines:
                qconf.give("-Mc", "\n".join(left) + "\n")
        case "queue" | "environment":
            if qconf.shown(SHOWN[change.kind], change.name):
                qconf.do("-dq" if change.kind == "queue" else "-dp", change.name)
        case "manager":
            if change.name in qconf.shown("-sm").split():
                qconf.do("-dm", change.name)
        case "reserver":
            if change.name in value(qconf.shown("-su", "arusers"), "entries").split(","):
                qconf.do("-du", change.name, "arusers")
    return True
