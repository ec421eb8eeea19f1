"""A site's policies in a simulation: the file that the service reads, on the simulated site's book."""

from __future__ import annotations

from dataclasses import replace

from outrider.core.besteffort.protection.first_slice import SliceRules
from outrider.core.besteffort.suspension import memory_bytes
from outrider.core.model import LeaseOwner, Workspace
from outrider.core.reservations.admission import Policy
from outrider.core.reservations.preempting import PreemptionRules
from outrider.core.scheduler import LeaseRules, Scheduler
from outrider.metadata.decision import BookedUsage, Requester, core_policy
from outrider.metadata.leases import (
    admission_policies,
    node_order,
    outranks_by,
    preemption_order,
    price_list,
    steering_rules,
)
from outrider.metadata.policies import Policies
from outrider.sim.setup import Setup

NOBODY = "nobody"
"""Who asks where a workload names no users."""


def with_policies(setup: Setup, policies: Policies) -> Setup:
    """The site under these policies; a MetadataError if one of them cannot be made."""
    section = policies.leases
    rules = LeaseRules(is_moving=setup.is_moving)
    changes: dict[str, object] = {}
    if section is not None:
        rules = replace(
            rules,
            admission=admission_policies(section),
            steering=None if section.adaptive is None else steering_rules(section.adaptive),
            slices=None if section.first_slice_s is None else SliceRules(length_s=section.first_slice_s),
            prices=None if section.pricing is None else price_list(section.pricing),
        )
        if section.preemption is not None:
            order = preemption_order(section.preemption)
            changes["preemption"] = order
            outranks = outranks_by(section.preemption.ranks)
            rules = replace(
                rules, preemption=PreemptionRules(order=order, outranks=outranks, memory_bytes=memory_bytes)
            )
        changes["node_order"] = node_order(section)
    return replace(setup, leases=rules, quotas=lambda scheduler: quota_policy(policies, scheduler), **changes)  # type: ignore[arg-type]


def quota_policy(policies: Policies, scheduler: Scheduler) -> Policy:
    """The file's denials, rules and quotas, counted on the scheduler's book."""

    def policy(workspace: Workspace, now_s: int) -> str:
        owner = workspace.owner
        who = Requester(user=owner.user or NOBODY, groups=owner.groups, account=owner.account)
        asked = replace(workspace, instances=_nodes(scheduler, workspace))

        def booked(from_s: int, until_s: int) -> BookedUsage:
            return _booked(scheduler, owner, from_s, until_s, now_s)

        return core_policy(policies, who, booked)(asked, now_s)

    return policy


def _nodes(scheduler: Scheduler, workspace: Workspace) -> int:
    """How many nodes it takes at the least."""
    need = scheduler.book.timeline.layout.pack(workspace.resources)
    return -(-workspace.instances // max(1, scheduler.board.largest_room(need)))


def _booked(scheduler: Scheduler, owner: LeaseOwner, from_s: int, until_s: int, now_s: int) -> BookedUsage:
    book = scheduler.book
    own = [
        entry
        for entry in book.entries.values()
        if entry.reservation.workspace.owner.user == owner.user and entry.end_s > now_s
    ]
    peaks = [0, 0]
    changes: list[tuple[int, int, bool]] = []
    for entry in book.entries.values():
        is_same = entry.reservation.workspace.owner.account == owner.account
        for start_s, end_s in entry.spans(from_s):
            if start_s < until_s:
                changes += [(start_s, len(entry.fits), is_same), (end_s, -len(entry.fits), is_same)]
    taken = [0, 0]
    for _, count, is_same in sorted(changes):
        taken[0] += count
        taken[1] += count if is_same else 0
        peaks = [max(peak, now) for peak, now in zip(peaks, taken, strict=True)]
    return BookedUsage(
        machine_nodes=len(book.timeline.nodes),
        peak_nodes=peaks[0],
        peak_nodes_of_account=peaks[1],
        reservations=len(own),
        node_seconds=sum(
            len(entry.fits) * (end_s - start_s) for entry in own for start_s, end_s in entry.spans(now_s)
        ),
    )
