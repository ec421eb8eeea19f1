"""Haizea's lease workload files (LWF, the XML form): reader.

docs/reference/formats.md has the drawing and the table of what becomes of what. Annotation files and
the older plain-text form are not read.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from xml.etree.ElementTree import Element

from outrider.core.model import Image, Node, Resources, Workspace
from outrider.sim.workload.formats.xml_tree import at_line, read_xml
from outrider.sim.workload.nodes import uniform_nodes
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError

_MEGABYTE = 10**6
MOST_NODES = 1_000_000
# Days are optional; a plus sign is how Haizea writes what counts from the beginning.
_TIME = re.compile(r"\+?(?:(\d+):)?(\d+):([0-5]?\d):([0-5]?\d)(?:\.(\d*))?", re.ASCII)


class _FaultError(Exception):
    """An element that no workload can have."""

    def __init__(self, element: Element, words: str) -> None:
        super().__init__(words)
        self.element = element


def read_haizea(path: str | os.PathLike[str], *, name: str | None = None) -> Trace:
    """Read a lease workload, and the site if the file has one.

    Resource types keep their names and amounts (`CPU` 100 is one core). Times are rounded
    up to whole seconds. A lease that Haizea would let run longer than it asked for is cut
    at what it asked for.
    """
    root = read_xml(path)
    try:
        return _trace(root, name or root.get("name") or Path(path).stem)
    except _FaultError as fault:
        raise WorkloadError(f"{at_line(path, root, fault.element)}: {fault}") from fault


def _trace(root: Element, name: str) -> Trace:
    if root.tag != "lease-workload":
        raise _FaultError(root, f"<{root.tag}> where a workload has <lease-workload>")
    site, requests = root.find("site"), root.find("lease-requests")
    nodes = () if site is None else _nodes(site)
    submissions = [
        _submission(request, row)
        for row, request in enumerate(() if requests is None else requests.findall("lease-request"), 1)
    ]
    submissions.sort(key=lambda submission: submission.at_s)
    return Trace(name=name, submissions=tuple(submissions), nodes=nodes)


def _nodes(site: Element) -> tuple[Node, ...]:
    capacities = [capacity for count, capacity in _node_sets(site) for _ in range(count)]
    names = uniform_nodes(len(capacities), Resources.of())
    return tuple(
        Node(name=node.name, capacity=capacity) for node, capacity in zip(names, capacities, strict=True)
    )


def _node_sets(parent: Element) -> list[tuple[int, Resources]]:
    """How many nodes there are of which kind, checked before any list of them is made."""
    total = 0
    sets: list[tuple[int, Resources]] = []
    for node_set in _child(parent, "nodes").findall("node-set"):
        count = _number(node_set, "numnodes")
        total += count
        if total > MOST_NODES:
            raise _FaultError(node_set, f"more than {MOST_NODES} nodes; correct numnodes")
        amounts: dict[str, int] = {}
        for resource in node_set.findall("res"):
            # A resource in several instances (cores of 100 each) counts as their sum.
            parts = resource.findall("instance") or (resource,)
            amounts[_attribute(resource, "type")] = sum([_number(part, "amount") for part in parts])
        sets.append((count, _resources(tuple(amounts.items()))))
    return sets


@lru_cache(maxsize=1024)
def _resources(amounts: tuple[tuple[str, int], ...]) -> Resources:
    """A workload has a few sizes and images, each in thousands of leases."""
    return Resources.from_mapping(dict(amounts))


@lru_cache(maxsize=1024)
def _image_of(uri: str, size_bytes: int) -> Image:
    return Image(uri=uri, size_bytes=size_bytes)


def _submission(request: Element, row: int) -> TraceSubmission:
    lease = _child(request, "lease")
    at_s = _seconds(request, "arrival")
    duration_s = _seconds(_child(lease, "duration"), "time")
    start_s, finish_by_s, now = _window(lease, at_s)
    (instances, resources), *others = _shapes(lease, is_best_effort=start_s is None)
    within_s = None if now is None or "within" not in now.attrib else _seconds(now, "within")
    image = _image(lease)
    real = request.find("realduration")
    run_s = duration_s if real is None else _seconds(real, "time")
    preemptible = _attribute(lease, "preemptible").lower()
    if preemptible not in ("true", "false"):
        raise _FaultError(lease, f"preemptible is {preemptible!r}; write true or false")
    cancel_s = _seconds(request, "cancelled") if "cancelled" in request.attrib else None
    try:
        workspace = Workspace(
            name=lease.get("id", str(row)),
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
            for number, (count, each) in enumerate(others, 2)
        )
        return TraceSubmission(
            roles=roles,
            at_s=at_s,
            workspace=workspace,
            run_s=min(run_s, duration_s),
            user=lease.get("user", ""),
            cancel_s=cancel_s,
        )
    except ValueError as error:
        raise _FaultError(lease, str(error)) from error


def _shapes(lease: Element, *, is_best_effort: bool) -> list[tuple[int, Resources]]:
    """How many instances of which size; several sizes are the roles of a reservation."""
    counts: dict[Resources, int] = {}
    for count, resources in _node_sets(lease):
        counts[resources] = counts.get(resources, 0) + count
    if not counts or (len(counts) > 1 and is_best_effort):
        raise _FaultError(
            lease,
            f"nodes of {len(counts)} kinds, where best effort has one; write one lease for each kind",
        )
    return [(count, resources) for resources, count in counts.items()]


def _window(lease: Element, at_s: int) -> tuple[int | None, int | None, Element | None]:
    """First possible start and deadline; neither is best effort. And what says that it is to start now.

    What is to start now starts as soon as its image can be there: Haizea has no word for how long
    that may take, so `within` says it here.

    A deadline without a start counts from the arrival: Haizea ignores it there, but then
    nothing would remain of what the user asked for.
    """
    start, deadline = _child(lease, "start"), lease.find("deadline")
    finish_by_s = None if deadline is None else _seconds(deadline, "time")
    form = next(iter(start), None)
    if form is None:
        return (None if finish_by_s is None else at_s), finish_by_s, None
    if form.tag == "now":
        return at_s, finish_by_s, form
    if form.tag == "exact":
        return _seconds(form, "time"), finish_by_s, None
    raise _FaultError(
        form, f"<{form.tag}> in <start>; it is empty (best effort), or has <exact time=…/> or <now/>"
    )


def _image(lease: Element) -> Image | None:
    software = _child(lease, "software")
    image = software.find("disk-image")
    if image is None:
        if software.find("none") is None:
            raise _FaultError(software, "<software> without <none/> or <disk-image id=… size=…/>")
        return None
    try:
        return _image_of(_attribute(image, "id"), _number(image, "size") * _MEGABYTE)
    except ValueError as error:
        raise _FaultError(image, str(error)) from error


def _child(parent: Element, tag: str) -> Element:
    child = parent.find(tag)
    if child is None:
        raise _FaultError(parent, f"<{parent.tag}> needs a <{tag}>")
    return child


def _attribute(element: Element, name: str) -> str:
    value = element.get(name)
    if value is None:
        raise _FaultError(element, f"<{element.tag}> needs {name}=…")
    return value


def _number(element: Element, name: str) -> int:
    text = _attribute(element, name)
    if not (text.isascii() and text.isdigit()):
        raise _FaultError(element, f"{name}={text!r} in <{element.tag}>; write a whole number of 0 or more")
    return int(text)


def _seconds(element: Element, name: str) -> int:
    text = _attribute(element, name)
    match = _TIME.fullmatch(text)
    if match is None:
        raise _FaultError(
            element,
            f"{name}={text!r} in <{element.tag}>; "
            "write [days:]hours:minutes:seconds, for instance 01:30:00.00",
        )
    days, hours, minutes, seconds, parts = match.groups()
    whole_s = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    return whole_s + 1 if parts and parts.strip("0") else whole_s
