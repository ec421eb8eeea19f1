"""A job in a virtual machine, beside the rest of the demo: saved before a reservation, and back after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.cli.errors import BrokenError
from testbed.demo import files

if TYPE_CHECKING:
    from collections.abc import Callable

    from outrider.cli.demo.screen import DemoScreen
    from testbed.demo.stage import DemoCluster

YIELDS = "yields to reservation"
BEGUN = 2
"""A machine that has counted so far is up."""


class CountingMachine:
    """The job, once it has begun; before that, or where there is no QEMU, nothing is told."""

    def __init__(
        self, stage: DemoCluster, screen: DemoScreen, wait_for: Callable[[str, Callable[[], bool]], None]
    ) -> None:
        self._stage, self._screen, self._await = stage, screen, wait_for
        self._job = ""
        self._saved_at = 0
        """How far it had counted when it was saved."""

    def begin(self, submitted: Callable[[], str]) -> None:
        """On a node that a reservation is going to need."""
        self._screen.part("A job in a virtual machine, which may be saved for a reservation")
        if self._stage.no_machine:
            self._screen.say(f"\nLeft out here: {self._stage.no_machine}.")
            return
        self._stage.write("count.sh", files.IN_MACHINE)
        self._screen.run("cat count.sh")
        self._job = submitted()
        self._await(f"job {self._job} to count in its guest", lambda: len(self._counted()) >= BEGUN)
        self._screen.run(f"cat slurm-{self._job}.out")
        self._screen.say("\n\nIts guest has booted, and counts a number a second.")

    def is_told(self) -> None:
        """The reservations need all nodes."""
        if not self._job:
            return
        self._screen.say(f"\nThe reservations take all nodes, also the one on which job {self._job} counts:")
        told = f"outrider show {self._job} 2>/dev/null || true"
        self._await(f"job {self._job} to be told", lambda: YIELDS in self._stage.shell(told))
        self._screen.run(f"outrider show {self._job}")

    def is_away(self) -> None:
        """A reservation has begun: the machine is on its node's disk."""
        if not self._job or self._saved_at or self._stage.state_of(self._job) != "PENDING":
            return
        self._saved_at = len(self._counted())
        self._screen.run(f"squeue --jobs={self._job} --format='%i %j %T %r'")
        self._screen.say(f"\nThe machine is saved on its node's disk. It has counted to {self._saved_at}.")

    def finish(self) -> None:
        """It has come back, and ends: no number is missing, and none is there twice."""
        if not self._job:
            return
        self._screen.part("The machine has continued where it was")
        self._stage.wait_over(self._job)
        self._screen.run(f"cat slurm-{self._job}.out")
        if self._counted() != list(range(1, files.COUNTS_TO + 1)) or not self._saved_at:
            raise BrokenError(f"job {self._job} was saved at {self._saved_at} and has counted wrong")
        self._screen.say(
            f"\n\nIt was saved at {self._saved_at}, its node was a reservation's, and it went on with "
            f"{self._saved_at + 1}: every number from 1 to {files.COUNTS_TO} is there once."
        )

    def _counted(self) -> list[int]:
        words = self._stage.shell(f"cat slurm-{self._job}.out 2>/dev/null || true").split()
        return [int(word) for word in words if word.isdigit()]
