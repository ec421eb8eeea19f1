"""A trace: who submits what and when, and how long it will really run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from outrider.core.model import Node, Workspace

if TYPE_CHECKING:
    from outrider.core.options.request import Option


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceSubmission:
    """A workspace handed in at `at_s`.

    `run_s` is how long it will really run, which the scheduler never sees; it is at most
    the workspace's duration, because the batch system ends what runs longer. At `cancel_s` it is
    taken back, whether it waits, runs or is over by then.

    A reservation may recur (`times`, every `every_s`), or have further `roles`: instances of other
    sizes and images that begin with it; all or nothing in both cases. One that is open (`open_until_s`)
    has its nodes ready from its start on, and begins within `within_s` of its event at `trigger_s`. One with
    `options` is carried out by its workspace or by one of these.
    """

    at_s: int
    workspace: Workspace
    run_s: int
    user: str = ""
    cancel_s: int | None = None
    every_s: int | None = None
    times: int = 1
    roles: tuple[Workspace, ...] = ()
    open_until_s: int | None = None
    within_s: int = 0
    trigger_s: int | None = None
    options: tuple[Option, ...] = ()
    """What would do as well as the workspace, which is the first option; each runs for the same part of its
    duration."""

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
        self._check_kind()

    def _check_kind(self) -> None:
        """What is no plain reservation has a start, and is of one kind."""
        workspace = self.workspace
        kinds = (self.every_s is not None) + bool(self.roles) + (self.open_until_s is not None)
        kinds += bool(self.options)
        if not kinds:
            return
        if workspace.start_s is None or kinds > 1:
            raise ValueError(
                f"workspace {workspace.name}: what recurs, has roles or options or is open needs a start, "
                "and is one of these"
            )
        if self.every_s is not None and (self.every_s < 1 or self.times < 1):
            raise ValueError(
                f"workspace {workspace.name}: {self.times} times every {self.every_s} s; 1 or more"
            )
        if any(
            (each.start_s, each.finish_by_s) != (workspace.start_s, workspace.finish_by_s)
            for each in self.roles
        ):
            raise ValueError(f"workspace {workspace.name}: its roles begin with it, and end by the same time")
        if self.open_until_s is not None:
            assert workspace.start_s is not None
            is_fixed = workspace.finish_by_s is None and not workspace.is_immediate
            if self.open_until_s < workspace.start_s or self.within_s < 0 or not is_fixed:
                raise ValueError(
                    f"workspace {workspace.name}: waits from {workspace.start_s} to {self.open_until_s}, "
                    f"within {self.within_s} s; it ends after its start, and has no deadline"
                )

    def parts(self) -> tuple[TraceSubmission, ...]:
        """One submission for each reservation that it is: itself, unless it recurs or has further roles."""
        if self.every_s is None and not self.roles:
            return (self,) if self.times == 1 else (replace(self, times=1),)
        workspaces: tuple[Workspace, ...] = (self.workspace, *self.roles)
        if self.every_s is not None:
            from outrider.core.reservations.bundles import occurrences

            workspaces = occurrences(self.workspace, self.every_s, self.times)
        alone = replace(self, every_s=None, times=1, roles=())
        return tuple(
            replace(alone, workspace=each, run_s=min(self.run_s, each.duration_s)) for each in workspaces
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


def best_effort_of(workspace: Workspace, duration_s: int) -> Workspace:
    """What was a reservation, as best effort for so long."""
    return replace(
        workspace,
        start_s=None,
        finish_by_s=None,
        is_immediate=False,
        ready_within_s=None,
        may_yield=False,
        duration_s=duration_s,
    )
