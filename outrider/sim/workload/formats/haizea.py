"""Haizea's lease workload files (LWF, the XML form): reader.

docs/reference/formats.md has the drawing and the table of what becomes of what. Annotation files and
the older plain-text form are not read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from outrider.core.model import Image, Node, Resources, Workspace
from outrider.sim.workload.formats.xml_tree import Element, read_xml
from outrider.sim.workload.nodes import uniform_nodes
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError, named_errors

_MEGABYTE = 10**6
MOST_NODES = 1_000_000
# Days are optional; a plus sign is how Haizea writes what counts from the beginning.
_TIME = re.compile(r"\+?(?:(\d+):)?(\d+):([0-5]?\d):([0-5]?\d)(?:\.(\d*))?", re.ASCII)


def read_haizea(path: str | os.PathLike[str], *, name: str | None = None) -> Trace:
    """Read a lease workload, and the site if the file has one.

    Resource types keep their names and amounts (`CPU` 100 is one core). Times are rounded
    up to whole seconds. A lease that Haizea would let run longer than it asked for is cut
    at what it asked for.
    """
    where = os.fspath(path)
    root = read_xml(path)
    if root.tag != "lease-workload":
        raise WorkloadError(f"{where}, line {root.line}: <{root.tag}> where a workload has <lease-workload>")
    site, requests = root.find("site"), root.find("lease-requests")
    nodes = _nodes(site, where) if site is not None else ()
    submissions = [
        _submission(request, row, where)
        for row, request in enumerate(requests.find_all("lease-request") if requests else (), 1)
    ]
    submissions.sort(key=lambda submission: submission.at_s)
    title = name or root.attributes.get("name") or Path(path).stem
    return Trace(name=title, submissions=tuple(submissions), nodes=nodes)


def _nodes(site: Element, where: str) -> tuple[Node, ...]:
    sets = list(_node_sets(site, where))
    capacities = [capacity for count, capacity in sets for _ in range(count)]
    names = uniform_nodes(len(capacities), Resources.of())
    return tuple(
        Node(name=node.name, capacity=capacity) for node, capacity in zip(names, capacities, strict=True)
    )


def _node_sets(parent: Element, where: str) -> Iterator[tuple[int, Resources]]:
    """How many nodes there are of which kind, checked before any list of them is made."""
    total = 0
    for node_set in _child(parent, "nodes", where).find_all("node-set"):
        count = _number(node_set, "numnodes", where)
        total += count
        if total > MOST_NODES:
            raise WorkloadError(
                f"{where}, line {node_set.line}: more than {MOST_NODES} nodes; correct numnodes"
            )
        amounts: dict[str, int] = {}
        for resource in node_set.find_all("res"):
            # A resource in several instances (cores of 100 each) counts as their sum.
            parts = list(resource.find_all("instance")) or [resource]
            kind = _attribute(resource, "type", where)
            amounts[kind] = sum(_number(part, "amount", where) for part in parts)
        yield count, _resources(tuple(amounts.items()))


@lru_cache(maxsize=1024)
def _resources(amounts: tuple[tuple[str, int], ...]) -> Resources:
    """A workload has a few sizes and images, each in thousands of leases."""
    return Resources.from_mapping(dict(amounts))


@lru_cache(maxsize=1024)
def _image_of(uri: str, size_bytes: int) -> Image:
    return Image(uri=uri, size_bytes=size_bytes)


def _submission(request: Element, row: int, where: str) -> TraceSubmission:
    lease = _child(request, "lease", where)
    at_s = _seconds(request, "arrival", where)
    shapes = _shapes(lease, where)
    instances, resources = shapes[0]
    duration_s = _seconds(_child(lease, "duration", where), "time", where)
    start_s, finish_by_s = _window(lease, at_s, where)
    now = _child(lease, "start", where).find("now")
    within_s = None if now is None or "within" not in now.attributes else _seconds(now, "within", where)
    image = _image(lease, where)
    real = request.find("realduration")
    run_s = duration_s if real is None else _seconds(real, "time", where)
    preemptible = _attribute(lease, "preemptible", where).lower()
    if preemptible not in ("true", "false"):
        raise WorkloadError(
            f"{where}, line {lease.line}: preemptible is {preemptible!r}; write true or false"
        )
    with named_errors(f"{where}, line {lease.line}"):
        workspace = Workspace(
            name=lease.attributes.get("id", str(row)),
            instances=instances,
            resources=resources,
            duration_s=duration_s,
            image=image,
            start_s=start_s,
            finish_by_s=finish_by_s,
            is_preemptible=preemptible == "true",
            is_immediate=now is not None,
            ready_within_s=within_s,
            may_yield=preemptible == "true" and start_s is not None,
        )
        roles = tuple(
            replace(workspace, name=f"{workspace.name}.{number}", instances=count, resources=each)
            for number, (count, each) in enumerate(shapes[1:], 2)
        )
        return TraceSubmission(
            roles=roles,
            at_s=at_s,
            workspace=workspace,
            run_s=min(run_s, duration_s),
            user=lease.attributes.get("user", ""),
            cancel_s=_seconds(request, "cancelled", where) if "cancelled" in request.attributes else None,
        )


def _shapes(lease: Element, where: str) -> list[tuple[int, Resources]]:
    """How many instances of which size; several sizes are the roles of a reservation."""
    counts: dict[Resources, int] = {}
    for count, resources in _node_sets(lease, where):
        counts[resources] = counts.get(resources, 0) + count
    is_best_effort = not _child(lease, "start", where).children and lease.find("deadline") is None
    if not counts or (len(counts) > 1 and is_best_effort):
        raise WorkloadError(
            f"{where}, line {lease.line}: nodes of {len(counts)} kinds, where best effort "
            "has one; write one lease for each kind"
        )
    return [(count, resources) for resources, count in counts.items()]


def _window(lease: Element, at_s: int, where: str) -> tuple[int | None, int | None]:
    """First possible start and deadline; neither is best effort.

    What is to start now starts as soon as its image can be there: Haizea has no word for how long
    that may take, so `within` says it here.

    A deadline without a start counts from the arrival: Haizea ignores it there, but then
    nothing would remain of what the user asked for.
    """
    start, deadline = _child(lease, "start", where), lease.find("deadline")
    finish_by_s = None if deadline is None else _seconds(deadline, "time", where)
    if not start.children:
        return (None if finish_by_s is None else at_s), finish_by_s
    form = start.children[0]
    if form.tag == "now":
        return at_s, finish_by_s
    if form.tag == "exact":
        return _seconds(form, "time", where), finish_by_s
    raise WorkloadError(
        f"{where}, line {form.line}: <{form.tag}> in <start>; it is empty (best effort), "
        "or has <exact time=…/> or <now/>"
    )


def _image(lease: Element, where: str) -> Image | None:
    software = _child(lease, "software", where)
    image = software.find("disk-image")
    if image is None:
        if software.find("none") is None:
            raise WorkloadError(
                f"{where}, line {software.line}: <software> without <none/> or <disk-image id=… size=…/>"
            )
        return None
    size_bytes = _number(image, "size", where) * _MEGABYTE
    uri = _attribute(image, "id", where)
    with named_errors(f"{where}, line {image.line}"):
        return _image_of(uri, size_bytes)


def _child(parent: Element, tag: str, where: str) -> Element:
    child = parent.find(tag)
    if child is None:
        raise WorkloadError(f"{where}, line {parent.line}: <{parent.tag}> needs a <{tag}>")
    return child


def _attribute(element: Element, name: str, where: str) -> str:
    value = element.attributes.get(name)
    if value is None:
        raise WorkloadError(f"{where}, line {element.line}: <{element.tag}> needs {name}=…")
    return value


def _number(element: Element, name: str, where: str) -> int:
    text = _attribute(element, name, where)
    if not (text.isascii() and text.isdigit()):
        raise WorkloadError(
            f"{where}, line {element.line}: {name}={text!r} in <{element.tag}>; "
            "write a whole number of 0 or more"
        )
    return int(text)


def _seconds(element: Element, name: str, where: str) -> int:
    text = _attribute(element, name, where)
    match = _TIME.fullmatch(text)
    if match is None:
        raise WorkloadError(
            f"{where}, line {element.line}: {name}={text!r} in <{element.tag}>; "
            "write [days:]hours:minutes:seconds, for instance 01:30:00.00"
        )
    days, hours, minutes, seconds, parts = match.groups()
    whole_s = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole_s + 1 if parts and parts.strip("0") else whole_s
