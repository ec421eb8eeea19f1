"""A suspended machine brought from one node to another: what is done next, as both nodes say how far it is.

Nothing is remembered between two looks, so a service that was killed goes on, and each step may come twice.
Until the old node has given the machine away it can go on there; from then on it is brought to its new
place however often that takes, and the job stays suspended.
"""

from __future__ import annotations

from dataclasses import dataclass

from cachemgr.protocol import JOB_OWNER
from outrider.rms.base import BatchSystem, Refused, Unavailable
from outrider.service.ports import Move, Nodes, NodeTrouble, OrderResult, TellNode

ARRIVE, GIVE, DROP = "arrive", "give", "drop"
TAKEN, FETCHED = "taken", "fetched"
HOPELESS = frozenset({"unsuitable", "not-allowed", "missing", "no-relay", "bad-request"})
"""Words of nodes for what does not change by itself."""
MOST_BUSY = 200
"""So many attempts a machine may take to be saved, before it is taken for one that runs on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MoveFields:
    """A machine that is to move."""

    job: str
    uid: int
    source: str
    target: str
    rate_bytes_per_s: int


class MoveFailed(Exception):
    """A node has not done a step; `code` is its word for it, or nothing if it did not answer."""

    def __init__(self, words: str, code: str = "") -> None:
        super().__init__(words)
        self.code = code


def move_machine(fields: MoveFields, nodes: Nodes, rms: BatchSystem, attempts: int) -> None:
    """Do what is next. Raises Unavailable until it is over there, and Refused if it stays where it is."""
    is_given = False
    try:
        state, place = _arrive(fields, nodes)
        if state == FETCHED:
            _step(nodes, fields, fields.source, GIVE, place=place)
            is_given = True
            state, place = _arrive(fields, nodes)
    except MoveFailed as failed:
        is_busy_for_long = failed.code == "busy" and attempts >= MOST_BUSY
        if not is_given and (failed.code in HOPELESS or is_busy_for_long):
            raise Refused(f"its machine stays on {fields.source}: {failed}") from failed
        raise Unavailable(f"its machine is not on {fields.target} yet: {failed}") from failed
    if state != TAKEN:
        raise Unavailable(f"its machine is on its way to {fields.target}")
    rms.move(fields.job, fields.target)
    try:
        _step(nodes, fields, fields.source, DROP)
    except MoveFailed:
        # What is left there is void, and goes with the job.
        return


def _arrive(fields: MoveFields, nodes: Nodes) -> tuple[str, str]:
    return _step(nodes, fields, fields.target, ARRIVE)


def _step(nodes: Nodes, fields: MoveFields, node: str, step: str, place: str = "") -> tuple[str, str]:
    order = Move(
        owner=f"{JOB_OWNER}{fields.job}",
        step=step,
        uid=fields.uid,
        source=fields.source if step == ARRIVE else "",
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
