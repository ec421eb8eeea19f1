"""Suspended machines of a job brought to other nodes: what is done next, as the nodes say how far they are.

Nothing is remembered between two looks, so a service that was killed goes on, and each step may come twice.
Until an old node has given its machine away all can go on there, and none does before all have been brought;
from then on they are brought to their new places however often that takes, and the job stays suspended.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from cachemgr.protocol import JOB_OWNER
from outrider.rms.base import Landing, Refused, Unavailable
from outrider.service.ports import Move, Nodes, NodeTrouble, OrderResult, TellNode

ARRIVE, GIVE, DROP = "arrive", "give", "drop"
TAKEN, FETCHED = "taken", "fetched"
HOPELESS = frozenset({"unsuitable", "not-allowed", "missing", "no-relay", "bad-request"})
"""Words of nodes for what does not change by itself."""
MOST_BUSY = 200
"""So many attempts a machine may take to be saved, before it is taken for one that runs on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MoveFields:
    """The machines of a job, each of which goes from one of the nodes to the one in the same place. What has
    the same node on both sides stays there, saved; no other node is on both sides."""

    job: str
    uid: int
    sources: Sequence[str]
    targets: Sequence[str]
    rate_bytes_per_s: int
    goes_first: bool = False
    """A plan has made room for it there, which is for nobody else."""
    is_live: bool = False
    """Whether it may be there by now without having been saved."""

    @property
    def pairs(self) -> list[tuple[str, str]]:
        found = zip(self.sources, self.targets, strict=True)
        return [(source, target) for source, target in found if source != target]


class MoveFailed(Exception):
    """A node has not done a step; `code` is its word for it, or nothing if it did not answer."""

    def __init__(self, words: str, code: str = "") -> None:
        super().__init__(words)
        self.code = code


class MovesMachines(Protocol):
    """What is asked of the batch system, as `BatchSystem` has it."""

    def land(self, wanted: Landing) -> bool: ...

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> None: ...


def move_machine(fields: MoveFields, nodes: Nodes, rms: MovesMachines, attempts: int) -> None:
    """Do what is next. Raises Unavailable until it is over there, and Refused if it stays where it is."""
    if fields.is_live and rms.land(_asked_about(fields)):
        return
    is_given, targets = False, ", ".join(target for _, target in fields.pairs)
    try:
        found = {pair: _arrive(fields, nodes, pair) for pair in fields.pairs}
        states = {state for state, _ in found.values()}
        is_given = TAKEN in states
        if states <= {FETCHED, TAKEN}:
            for (source, target), (state, place) in found.items():
                if state == FETCHED:
                    _step(nodes, fields, source, GIVE, place=place)
                    is_given = True
                    found[source, target] = _arrive(fields, nodes, (source, target))
    except MoveFailed as failed:
        is_busy_for_long = failed.code == "busy" and attempts >= MOST_BUSY
        if not is_given and (failed.code in HOPELESS or is_busy_for_long):
            sources = ", ".join(source for source, _ in fields.pairs)
            raise Refused(f"its machine stays on {sources}: {failed}") from failed
        raise Unavailable(f"its machine is not on {targets} yet: {failed}") from failed
    if any(state != TAKEN for state, _ in found.values()):
        raise Unavailable(f"its machine is on its way to {targets}")
    rms.move(fields.job, fields.targets, goes_first=fields.goes_first)
    for source, _ in fields.pairs:
        # What is left there is void, and goes with the job.
        with suppress(MoveFailed):
            _step(nodes, fields, source, DROP)


def _asked_about(fields: MoveFields) -> Landing:
    return Landing(
        job=fields.job,
        start_s=0,
        node=fields.targets[0],
        metadata="",
        rate_bytes_per_s=fields.rate_bytes_per_s,
        begins=False,
    )


def _arrive(fields: MoveFields, nodes: Nodes, pair: tuple[str, str]) -> tuple[str, str]:
    return _step(nodes, fields, pair[1], ARRIVE, source=pair[0])


def _step(
    nodes: Nodes, fields: MoveFields, node: str, step: str, *, place: str = "", source: str = ""
) -> tuple[str, str]:
    order = Move(
        owner=f"{JOB_OWNER}{fields.job}",
        step=step,
        uid=fields.uid,
        source=source,
        place=place,
        rate_bytes_per_s=fields.rate_bytes_per_s if step == ARRIVE else None,
    )
    try:
        report = nodes.tell(TellNode(node=node, orders=(order,)))
    except NodeTrouble as trouble:
        raise MoveFailed(str(trouble)) from trouble
    result = next((each for each in report.results if each.order == order), OrderResult(order=order))
    if result.code or not result.words:
        raise MoveFailed(f"{node}: {result.words or 'no answer'}", result.code)
    state, _, found = result.words.partition(" ")
    return state, found
