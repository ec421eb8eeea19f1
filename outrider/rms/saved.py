"""A job's machine that was told to save itself, and what of the job's time is left: batch systems give each
run of a job its whole limit."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedMachine:
    """A job's machine as it was saved: where, and what of the job's time was left when that run began."""

    node: str
    """Of several machines the nodes, with commas, in the order of the machines."""
    limit_s: int
    run_s: int
    """Since when the run went on."""
    asked_s: int
    """When it was told to save itself: no time is charged from then on."""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(self.node.split(","))

    @property
    def left_s(self) -> int:
        """What of its time it has when it goes on."""
        return max(1, self.limit_s - max(0, self.asked_s - self.run_s))


def saved_again(
    before: SavedMachine | None, node: str, limit_s: int | None, run_s: int, now_s: int
) -> SavedMachine:
    """What is noted of a machine that is told to save itself, once or again in the same run."""
    if before is None:
        # Without a limit it has what its partition or queue gives, each time.
        return SavedMachine(node=node, limit_s=limit_s or 0, run_s=run_s, asked_s=now_s)
    kept_s = before.limit_s if before.run_s == run_s else before.left_s
    # Without a limit none is ever left.
    return SavedMachine(node=node, limit_s=kept_s if before.limit_s else 0, run_s=run_s, asked_s=now_s)
