"""What any single look has to show: facts that fit together, in a fixed order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from outrider.rms.base import JobState, RmsJob, Sight

ON_NODES = (JobState.STARTING, JobState.RUNNING)


def inconsistencies(sight: Sight) -> list[str]:
    """What does not fit together in one look; nothing, if all is well."""
    return [*of_order(sight), *of_jobs(sight), *of_nodes(sight), *of_reservations(sight)]


def of_order(sight: Sight) -> Iterator[str]:
    if [node.name for node in sight.nodes] != sorted({node.name for node in sight.nodes}):
        yield "nodes do not come by name, each once"
    jobs = [(job.submitted_s, job.key) for job in sight.jobs]
    if jobs != sorted(jobs) or len({key for _, key in jobs}) < len(jobs):
        yield "jobs do not come by submission and key, each once"
    reservations = [(each.start_s, each.name) for each in sight.reservations]
    if reservations != sorted(reservations) or len({name for _, name in reservations}) < len(reservations):
        yield "reservations do not come by start and name, each once"


def of_jobs(sight: Sight) -> Iterator[str]:
    reservations = {each.name for each in sight.reservations}
    for job in sight.jobs:
        if job.state is JobState.ENDED:
            yield f"job {job.key} has ended and is shown"
        if job.state in ON_NODES:
            if len(set(job.nodes)) != job.nodes_wanted or job.nodes != tuple(sorted(job.nodes)):
                yield f"job {job.key} wants {job.nodes_wanted} nodes and runs on {job.nodes}"
            if job.start_s is None or not job.submitted_s <= job.start_s <= sight.at_s:
                yield f"job {job.key} started at {job.start_s}, seen at {sight.at_s}"
            if job.is_held_by_us:
                yield f"job {job.key} is held and runs"
        elif job.nodes:
            yield f"job {job.key} is {job.state.value} and has nodes {job.nodes}"
        if job.is_held_by_us and job.state is not JobState.HELD:
            yield f"job {job.key} is held by us and {job.state.value}"
        if job.reservation is not None and job.reservation not in reservations:
            yield f"job {job.key} is bound to {job.reservation}, which is not shown"


def of_nodes(sight: Sight) -> Iterator[str]:
    """No node gives more than it has."""
    taken: dict[str, Counter[str]] = {node.name: Counter() for node in sight.nodes}
    for job, name in on_nodes(sight):
        if name not in taken:
            yield f"job {job.key} runs on {name}, which is not shown"
            continue
        taken[name].update(dict(job.resources.amounts))
    for node in sight.nodes:
        for resource, amount in sorted(taken[node.name].items()):
            if amount > node.capacity[resource]:
                yield f"node {node.name} has {node.capacity} and gives {resource}={amount}"


def of_reservations(sight: Sight) -> Iterator[str]:
    """No two share a node at any time, unless both have parts of it; a job in one runs on its nodes after
    its start."""
    by_name = {each.name: each for each in sight.reservations}
    for number, one in enumerate(sight.reservations):
        for other in sight.reservations[number + 1 :]:
            meet = one.start_s < other.end_s and other.start_s < one.end_s
            meet &= one.is_whole or other.is_whole
            if meet and set(one.nodes) & set(other.nodes):
                yield f"reservations {one.name} and {other.name} overlap"
    for job, name in on_nodes(sight):
        own = by_name.get(job.reservation or "")
        if own is not None and name not in own.nodes:
            yield f"job {job.key} runs on {name}, outside reservation {own.name}"
        if own is not None and job.start_s is not None and job.start_s < own.start_s:
            yield f"job {job.key} started at {job.start_s}, before reservation {own.name}"


def on_nodes(sight: Sight) -> Iterator[tuple[RmsJob, str]]:
    return ((job, name) for job in sight.jobs if job.state in ON_NODES for name in job.nodes)
