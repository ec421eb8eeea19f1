"""A trace: who submits what and when, and how long it will really run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from outrider.core.model import Node, Workspace


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceSubmission:
    """A workspace handed in at `at_s`.

    `run_s` is how long it will really run, which the scheduler never sees; it is at most
    the workspace's duration, because the batch system ends what runs longer. At `cancel_s` it is
    taken back, whether it waits, runs or is over by then.
    """

    at_s: int
    workspace: Workspace
    run_s: int
    user: str = ""
    cancel_s: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.run_s <= self.workspace.duration_s:
            raise ValueError(
                f"workspace {self.workspace.name} runs {self.run_s} s: not within its "
                f"duration of {self.workspace.duration_s} s"
            )
        if self.cancel_s is not None and self.cancel_s < self.at_s:
            raise ValueError(
                f"workspace {self.workspace.name} is cancelled at {self.cancel_s} s, before it is handed in"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """Submissions in the order of their arrival, and the nodes if the file names them."""

    name: str
    submissions: Sequence[TraceSubmission]
    nodes: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        arrivals = [submission.at_s for submission in self.submissions]
        if arrivals != sorted(arrivals):
            raise ValueError(f"trace {self.name}: its submissions are not in order of arrival")


class WorkloadError(ValueError):
    """A workload file that cannot be read: which one, where, what to do."""


@contextmanager
def named_errors(where: str) -> Iterator[None]:
    """A value that cannot be made of what stands there is an error of the file."""
    try:
        yield
    except ValueError as error:
        raise WorkloadError(f"{where}: {error}") from error
