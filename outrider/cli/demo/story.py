"""What is shown, step by step. Each step is a command; the service decides what comes of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from outrider.cli.demo.screen import DemoScreen
from outrider.cli.demo.stage import NODES, RATE_BYTES_PER_S, DemoStage
from outrider.cli.demo.summary import Kept, summary
from outrider.cli.errors import BrokenError, RefusedError
from outrider.service.answers.reservations import ReservationDetails
from outrider_client.reading import read
from outrider_client.transport import in_path

if TYPE_CHECKING:
    from cachemgr.base.clock import Clock

INTRODUCTION = f"""A job's image takes time to reach its nodes. Outrider promises nodes only if the image
can be there first, and then sees to it. Below: a real service with five nodes on this machine ({NODES}:
pools, daemons, transfers at {RATE_BYTES_PER_S // 1_000_000} MB/s), and what users type."""
T = TypeVar("T")
LOOK_S = 0.2
MOST_S = 60
TRIES = 3
"""On a busy machine images come later than was planned, and with them the start that can be had."""
_NAMED = re.compile(r"^(\S+) is reserved", re.MULTILINE)
_COMMAND = re.compile(r"^ +(outrider reserve .*)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plot:
    """How large, when and how long. Starts are seconds after the command is typed."""

    image_bytes: Mapping[str, int]
    duration: str
    first_in_s: int
    too_soon_in_s: int
    again_in_s: int
    has_trouble: bool


FULL = Plot(
    image_bytes={"render": 48_000_000, "train": 60_000_000},
    duration="8s",
    first_in_s=24,
    too_soon_in_s=9,
    again_in_s=48,
    has_trouble=True,
)
BRIEF = Plot(
    image_bytes={"render": 9_000_000, "train": 24_000_000},
    duration="3s",
    first_in_s=10,
    too_soon_in_s=5,
    again_in_s=19,
    has_trouble=False,
)


class Story:
    """The demo from its first line to its last."""

    def __init__(self, stage: DemoStage, screen: DemoScreen, clock: Clock, plot: Plot) -> None:
        self._stage = stage
        self._screen = screen
        self._clock = clock
        self._plot = plot
        self._jobs: dict[str, str] = {}

    def tell(self) -> None:
        self._open()
        first = self._first()
        self._refused()
        again = self._again()
        self._screen.part("Images arrive before their deadlines")
        self._screen.run(f"outrider watch {first} --until ready --every 1")
        if self._plot.has_trouble:
            self._trouble(again)
        self._job(first)
        self._screen.part(f"The job in {again} begins, too")
        self._submit(again, 3)
        self._screen.run(f"outrider watch {again} --every 1")
        self._show_job(again)
        self._receipts(first, again)

    def _open(self) -> None:
        self._screen.part("A site")
        self._screen.run("outrider status")
        self._screen.run("outrider nodes")

    def _first(self) -> str:
        plot = self._plot
        self._screen.part("A reservation: nodes, and the image on them before the start")
        self._screen.type("cat render.yaml")
        self._screen.print(self._stage.write_workspace("render", 2, plot.duration).rstrip())
        name = self._reserved(
            self._screen.run(f"outrider reserve render.yaml --start now+{plot.first_in_s}s")
        )
        self._submit(name, 2)
        return name

    def _refused(self) -> None:
        plot = self._plot
        self._screen.part("What cannot be promised is refused, with what would work")
        self._stage.write_workspace("train", 1, plot.duration)
        too_soon = f"outrider reserve train.yaml --start now+{plot.too_soon_in_s}s"
        text = self._screen.run(too_soon, expected=RefusedError.exit_code)
        for _ in range(TRIES):
            found = _COMMAND.search(text)
            if found is None:
                raise BrokenError("the refusal names no command that would work")
            self._screen.say("Now the command that the refusal names.")
            text = self._screen.run(found[1], expected=None)
            if _NAMED.search(text):
                return
        raise BrokenError(f"what {TRIES} refusals named was refused")

    def _again(self) -> str:
        self._screen.part("The same image again: nodes that have it, or will, come first")
        command = f"outrider reserve render.yaml --nodes 3 --start now+{self._plot.again_in_s}s"
        name = self._reserved(self._screen.run(command))
        self._screen.run("outrider timeline --until now+2minutes")
        return name

    def _trouble(self, name: str) -> None:
        """One node of a reservation stands still while the image is on its way there."""
        self._screen.part("Trouble: a node stands still while its image is arriving")
        node = self._await(f"the image is on its way to {name}", lambda: self._arriving(name))
        self._screen.type(f"kill -STOP {self._stage.daemon_of(node)}   # the daemon of {node}'s pool")
        self._stage.freeze(node)
        self._screen.say("Nobody tells the service. It has to find out, and to keep its promise elsewhere.")
        self._screen.run(f"outrider watch {name} --until ready --every 1")
        self._screen.run(f"outrider explain {name}")

    def _arriving(self, name: str) -> str | None:
        for each in self._details(name).staging:
            if each.state == "arriving" and each.arrived_bytes > each.size_bytes // 8:
                return each.node
        return None

    def _submit(self, name: str, nodes: int) -> None:
        text = self._screen.run(f"outrider submit --reservation {name} --nodes {nodes} ./job.sh")
        self._jobs[name] = text.strip()

    def _job(self, name: str) -> None:
        self._screen.part(f"The job in {name} begins, with its image there")
        self._await(f"the job of {name} has run", lambda: self._has_run(name))
        self._show_job(name)

    def _show_job(self, name: str) -> None:
        """What it has printed, and how long its instances took."""
        job = self._jobs[name]
        output = self._stage.output_of(job)
        self._screen.type(f"cat {output.relative_to(self._stage.folder)}")
        self._screen.print(output.read_text(errors="replace").rstrip())
        self._screen.type(f"grep 'instance made job={job}' log")
        made = [each for each in self._log_lines() if each.startswith(f"info instance made job={job} ")]
        self._screen.print("\n".join(re.sub(r"(sha256:\w{12})\w+", r"\1", each) for each in made))

    def _has_run(self, name: str) -> bool:
        output = self._stage.output_of(self._jobs[name])
        return output.exists() and output.stat().st_size > 0

    def _receipts(self, *names: str) -> None:
        self._screen.part("Receipts")
        for name in names:
            self._await(f"{name} is over", lambda name=name: self._details(name).receipt)  # type: ignore[misc]
            self._screen.run(f"outrider show {name}")
        kept = [self._kept(name) for name in names]
        self._screen.part("What it was good for")
        self._screen.print(f"\n{summary(kept, self._log_lines())}")

    def _kept(self, name: str) -> Kept:
        details = self._details(name)
        began_ns = self._stage.output_of(self._jobs[name]).stat().st_mtime_ns
        return Kept(details=details, job_began_ms=began_ns // 1_000_000)

    def _reserved(self, text: str) -> str:
        found = _NAMED.search(text)
        if found is None:
            raise BrokenError("an accepted reservation has no name")
        return found[1]

    def _details(self, name: str) -> ReservationDetails:
        return read(ReservationDetails, self._stage.client.get(f"/v1/reservations/{in_path(name)}"))

    def _log_lines(self) -> list[str]:
        return self._stage.log.read_text(errors="replace").splitlines()

    def _await(self, what: str, look: Callable[[], T | None]) -> T:
        until_s = self._clock.monotonic_s() + MOST_S
        while self._clock.monotonic_s() < until_s:
            found = look()
            if found:
                return found
            self._clock.sleep(LOOK_S)
        raise BrokenError(f"this did not happen within {MOST_S} s: {what}")
