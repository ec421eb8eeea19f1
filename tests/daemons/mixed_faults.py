"""What of a mixed load is not as it has to be: jobs, promises, their prices and the quota."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outrider.metadata.notation.hostlists import expand
from tests.daemons.mixed_load import (
    LIMIT_S,
    PER_NODE_S,
    QUOTA,
    WITHIN_S,
    JobWish,
    Ledger,
    MixedBatch,
    Promise,
    Story,
    Wish,
    ledger,
    reported,
)
from tests.daemons.reservations import Site, shown


def faults(batch: MixedBatch, story: Story, wishes: Sequence[Wish]) -> list[str]:
    """All that is not as it has to be."""
    return job_faults(batch, story, wishes) + lease_faults(batch.site, story, ledger(batch.site))


def job_faults(batch: MixedBatch, story: Story, wishes: Sequence[Wish]) -> list[str]:
    """Jobs that did not end once with their own result, or were preempted although they may not be."""
    written = ledger(batch.site)
    records = batch.records(list(story.jobs.values()))
    found = []
    for wish in (each for each in wishes if isinstance(each, JobWish)):
        begun, ended = len(written.begun.get(wish.number, ())), len(written.ended.get(wish.number, ()))
        record = records[key := story.jobs[wish.number]]
        told = f"job {key} ({wish}) has begun {begun} and ended {ended} times, and {record}"
        if ended != 1:
            found.append(f"not ended once: {told}")
        if record.completed != 1 or not 1 <= begun <= record.completed + record.requeued:
            found.append(f"accounting: {told}")
        if record.unlaunched > len(story.outages):
            found.append(f"lost by nodes that nobody killed: {told}")
        if not wish.is_preemptible and (begun, record.requeued) != (1, 0):
            found.append(f"preempted: {told}")
    return found


def lease_faults(site: Site, story: Story, written: Ledger) -> list[str]:
    """Promises that were not kept, and sums that do not add up."""
    found, charged, ends_s = [], 0, dict[str, int]()
    places = {each.name: _place(site, each) for each in story.promises}
    for promise in story.promises:
        details = shown(site, promise.name, user="root")
        receipt, view = details["receipt"], details["reservation"]
        assert isinstance(receipt, Mapping)
        assert isinstance(view, Mapping)
        ends_s[promise.name] = int(str(details["ended_s"]))
        charged += int(receipt["charged"] or 0)
        if promise.kind == "preemptible" and "it yielded to" in str(receipt["words"]):
            continue
        start_s, inside = int(view["start_s"]), written.inside.get(promise.name, [])
        told = f"{promise}: {view['state']}, {receipt['words']}, its job {inside}; outages {story.outages}"
        if not receipt["is_met"] or view["state"] != "ended":
            found.append(f"not kept: {told}")
        end_s = int(view["end_s"])
        # Nobody starts a job while there is no controller, and Slurm none in one reservation whose limit,
        # a minute at least, reaches into another one. The promise is of nodes and image.
        is_proven = not any(from_s < end_s and start_s < until_s for from_s, until_s in story.outages)
        is_proven &= not promise.is_late and not any(
            start_s < other.start_s < end_s + LIMIT_S and other.nodes & places[promise.name].nodes
            for other in places.values()
        )
        if len(inside) > 1 or (is_proven and not inside):
            found.append(f"its job: {told}")
        # Nobody ends a reservation either while there is no controller, and until then its jobs start.
        over_s = max(
            (until_s for from_s, until_s in story.outages if from_s <= end_s < until_s), default=end_s
        )
        if any(words != "QFI" or not start_s <= at_s <= over_s + 1 for at_s, words in inside):
            found.append(f"its job's image or time: {told}")
        event_s = promise.triggered_s
        if promise.kind == "open" and (event_s is None or not event_s <= start_s <= event_s + WITHIN_S):
            found.append(f"not in time after its event: {told}")
        if promise.kind not in ("open", "deadline") and start_s != promise.start_s:
            found.append(f"not when it was promised: {told}")
        wanted = promise.nodes * promise.lasts_s * PER_NODE_S
        if promise.kind not in ("open", "preemptible") and receipt["charged"] != wanted:
            found.append(f"charged {receipt['charged']}, not {wanted}: {told}")
    more = tuple(now - before for now, before in zip(reported(site), story.reported, strict=True))
    if more != (len(story.promises), charged):
        found.append(f"the report has {more} more than before, receipts {(len(story.promises), charged)}")
    return found + quota_faults(story, ends_s)


@dataclass(frozen=True, slots=True)
class Place:
    """Where and when a reservation was in the end."""

    start_s: int
    nodes: frozenset[str]


def _place(site: Site, promise: Promise) -> Place:
    view = shown(site, promise.name, user="root")["reservation"]
    assert isinstance(view, Mapping)
    return Place(int(view["start_s"]), frozenset(expand(str(view["nodes"]))))


def quota_faults(story: Story, ends_s: Mapping[str, int]) -> list[str]:
    """Times at which bob had more than he may."""
    own = [each for each in story.promises if each.user == "bob"]
    most = max(
        (sum(other.asked_s <= each.asked_s < ends_s[other.name] for other in own) for each in own), default=0
    )
    return [f"bob had {most} reservations at once, {QUOTA} allowed"] if most > QUOTA else []
