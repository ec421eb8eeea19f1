"""Outrider's own trace form: JSON lines, a header and then one submission a line.

docs/reference/formats.md has the drawing. What is written is read back exactly; unknown keys are
refused, because a misspelt `start_s` would silently turn a reservation into best effort.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from outrider.core.model import Image, LeaseOwner, Node, Resources, Workspace
from outrider.core.options.request import Option
from outrider.sim.workload.formats.files import numbered_lines, replace_text
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError, named_errors

FORMAT = "outrider-trace"
VERSION = 1

_HEADER_KEYS = frozenset({"format", "version", "name", "nodes", "images"})
_NODE_KEYS = frozenset({"name", "capacity", "pool_bytes"})
_ROLE_KEYS = frozenset({"name", "instances", "resources", "image"})
_OPTION_KEYS = frozenset({"instances", "resources", "duration_s", "image"})
_IMAGE_KEYS = frozenset({"uri", "size_bytes", "digest"})
_SUBMISSION_KEYS = frozenset(
    {
        "at_s", "name", "instances", "resources", "duration_s", "run_s", "image", "start_s",
        "finish_by_s", "is_parallel", "is_preemptible", "is_immediate",
        "ready_within_s", "may_yield", "user", "groups", "account", "lease_class", "value",
        "most_rate", "cancel_s", "every_s", "times", "roles", "open_until_s", "within_s", "trigger_s",
        "options",
    }
)  # fmt: skip


def write_native(path: str | os.PathLike[str], trace: Trace) -> None:
    """Write a trace; a name that ends in .gz is packed."""
    labels: dict[Image, str] = {}
    for submission in trace.submissions:
        images = [one.image for one in (submission.workspace, *submission.roles)]
        for image in (*images, *(option.image for option in submission.options)):
            if image is not None:
                labels.setdefault(image, f"i{len(labels) + 1}")
    with replace_text(path) as file:
        file.write(_line(_header(trace, labels)))
        file.writelines(_line(_row(one, labels)) for one in trace.submissions)


def read_native(path: str | os.PathLike[str]) -> Trace:
    """Read a trace; every error names the line."""
    where = os.fspath(path)
    lines = _objects(path, where)
    try:
        header = next(lines)
    except StopIteration:
        raise WorkloadError(f"{where}: empty; the first line is the header") from None
    if header.values.get("format") != FORMAT:
        raise WorkloadError(f'{header.where}: no "format": "{FORMAT}"; this is another format')
    if header.values.get("version") != VERSION:
        raise WorkloadError(
            f"{header.where}: version {header.values.get('version')!r}, but this program "
            f"reads version {VERSION}; use the program that wrote the file"
        )
    header.refuse_unknown(_HEADER_KEYS)
    images = {label: _image(part) for label, part in header.objects("images").items()}
    nodes = tuple(_node(part) for part in header.array("nodes"))
    submissions = tuple(_submission(line, images) for line in lines)
    try:
        return Trace(name=header.text("name"), submissions=submissions, nodes=nodes)
    except ValueError as error:
        raise WorkloadError(f"{where}: {error}; sort its lines by at_s") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class _Object:
    """A JSON object and where it stands, so that each value is asked for by its type."""

    where: str
    values: Mapping[str, object]

    def refuse_unknown(self, known: frozenset[str]) -> None:
        if not self.values.keys() <= known:
            unknown = next(key for key in self.values if key not in known)
            raise WorkloadError(
                f"{self.where}: unknown key {unknown!r}; the keys are {', '.join(sorted(known))}"
            )

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a text")
        return value

    def number(self, key: str, default: int | None = None) -> int:
        value = self.values.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(key, "a whole number")
        return value

    def optional_number(self, key: str) -> int | None:
        return None if self.values.get(key) is None else self.number(key)

    def truth(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def resources(self, key: str) -> Resources:
        part = self.part(key, self.values.get(key))
        amounts = {name: part.number(name) for name in part.values}
        with named_errors(self.where):
            return Resources.from_mapping(amounts)

    def objects(self, key: str) -> dict[str, _Object]:
        inner = self.part(key, self.values.get(key, {}))
        return {name: self.part(name, value) for name, value in inner.values.items()}

    def array(self, key: str) -> list[_Object]:
        value = self.values.get(key, [])
        if not isinstance(value, list):
            raise self._wrong(key, "a list")
        return [self.part(key, item) for item in value]

    def part(self, key: str, value: object) -> _Object:
        if not isinstance(value, dict):
            raise self._wrong(key, "an object")
        return _Object(where=self.where, values=value)

    def _wrong(self, key: str, wanted: str) -> WorkloadError:
        found = repr(self.values[key]) if key in self.values else "missing"
        return WorkloadError(f"{self.where}: {key!r} is {found}; it must be {wanted}")


def _objects(path: str | os.PathLike[str], where: str) -> Iterator[_Object]:
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        place = f"{where}, line {number}"
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise WorkloadError(f"{place}: not JSON ({error}); repair the line") from error
        if not isinstance(value, dict):
            raise WorkloadError(f"{place}: not a JSON object; each line is one")
        yield _Object(where=place, values=value)


def _image(part: _Object) -> Image:
    part.refuse_unknown(_IMAGE_KEYS)
    uri, size_bytes, digest = part.text("uri"), part.number("size_bytes"), part.text("digest", "")
    with named_errors(part.where):
        return Image(uri=uri, size_bytes=size_bytes, digest=digest)


def _node(part: _Object) -> Node:
    part.refuse_unknown(_NODE_KEYS)
    name, capacity = part.text("name"), part.resources("capacity")
    pool_bytes = part.optional_number("pool_bytes")
    with named_errors(part.where):
        return Node(name=name, capacity=capacity, pool_bytes=pool_bytes)


def _submission(line: _Object, images: Mapping[str, Image]) -> TraceSubmission:
    line.refuse_unknown(_SUBMISSION_KEYS)
    label = line.text("image") if "image" in line.values else None
    if label is not None and label not in images:
        raise WorkloadError(f"{line.where}: image {label!r} is not among the header's images")
    start_s, finish_by_s = line.optional_number("start_s"), line.optional_number("finish_by_s")
    name, instances = line.text("name"), line.number("instances")
    resources, duration_s = line.resources("resources"), line.number("duration_s")
    at_s, run_s = line.number("at_s"), line.number("run_s", duration_s)
    is_parallel = line.truth("is_parallel", True)
    is_preemptible = line.truth("is_preemptible", True)
    is_immediate = line.truth("is_immediate", False)
    ready_within_s = line.optional_number("ready_within_s")
    user = line.text("user", "")
    cancel_s = line.optional_number("cancel_s")
    with named_errors(line.where):
        workspace = Workspace(
            name=name,
            instances=instances,
            resources=resources,
            duration_s=duration_s,
            image=None if label is None else images[label],
            start_s=start_s,
            finish_by_s=finish_by_s,
            is_parallel=is_parallel,
            is_preemptible=is_preemptible,
            is_immediate=is_immediate,
            ready_within_s=ready_within_s,
            may_yield=line.truth("may_yield", False),
            owner=LeaseOwner(
                groups=tuple(part for part in line.text("groups", "").split(",") if part),
                account=line.text("account", ""),
                lease_class=line.text("lease_class", ""),
                value=line.number("value", 0),
                most_rate=line.optional_number("most_rate"),
            ),
        )
        return TraceSubmission(
            at_s=at_s,
            workspace=workspace,
            run_s=run_s,
            user=user,
            cancel_s=cancel_s,
            every_s=line.optional_number("every_s"),
            times=line.number("times", 1),
            roles=tuple(_role(part, workspace, images) for part in line.array("roles")),
            open_until_s=line.optional_number("open_until_s"),
            within_s=line.number("within_s", 0),
            trigger_s=line.optional_number("trigger_s"),
            options=tuple(_option(part, images) for part in line.array("options")),
        )


def _role(part: _Object, workspace: Workspace, images: Mapping[str, Image]) -> Workspace:
    """Further instances that begin with a reservation; all else is as of that."""
    part.refuse_unknown(_ROLE_KEYS)
    label = part.text("image") if "image" in part.values else None
    if label is not None and label not in images:
        raise WorkloadError(f"{part.where}: image {label!r} is not among the header's images")
    return replace(
        workspace,
        name=f"{workspace.name}.{part.text('name')}",
        instances=part.number("instances"),
        resources=part.resources("resources"),
        image=None if label is None else images[label],
    )


def _option(part: _Object, images: Mapping[str, Image]) -> Option:
    """What may be run in the place of a reservation."""
    part.refuse_unknown(_OPTION_KEYS)
    label = part.text("image") if "image" in part.values else None
    if label is not None and label not in images:
        raise WorkloadError(f"{part.where}: image {label!r} is not among the header's images")
    return Option(
        instances=part.number("instances"),
        resources=part.resources("resources"),
        duration_s=part.number("duration_s"),
        image=None if label is None else images[label],
    )


def _line(values: Mapping[str, object]) -> str:
    return json.dumps(values, separators=(",", ":")) + "\n"


def _header(trace: Trace, labels: Mapping[Image, str]) -> dict[str, object]:
    header: dict[str, object] = {"format": FORMAT, "version": VERSION, "name": trace.name}
    if trace.nodes:
        header["nodes"] = [
            {"name": node.name, "capacity": dict(node.capacity.amounts)}
            | ({} if node.pool_bytes is None else {"pool_bytes": node.pool_bytes})
            for node in trace.nodes
        ]
    header["images"] = {
        label: {"uri": image.uri, "size_bytes": image.size_bytes}
        | ({"digest": image.digest} if image.digest else {})
        for image, label in labels.items()
    }
    return header


def _row(submission: TraceSubmission, labels: Mapping[Image, str]) -> dict[str, object]:
    """The line's keys; what has its usual value is left out."""
    workspace = submission.workspace
    image = None if workspace.image is None else labels[workspace.image]
    run_s = None if submission.run_s == workspace.duration_s else submission.run_s
    row: dict[str, object] = {
        "at_s": submission.at_s,
        "name": workspace.name,
        "instances": workspace.instances,
        "resources": dict(workspace.resources.amounts),
        "duration_s": workspace.duration_s,
    }
    optional = {
        "run_s": run_s,
        "image": image,
        "start_s": workspace.start_s,
        "finish_by_s": workspace.finish_by_s,
        "is_parallel": None if workspace.is_parallel else False,
        "is_preemptible": None if workspace.is_preemptible else False,
        "is_immediate": workspace.is_immediate or None,
        "ready_within_s": workspace.ready_within_s,
        "may_yield": workspace.may_yield or None,
        "user": submission.user or None,
        "groups": ",".join(workspace.owner.groups) or None,
        "account": workspace.owner.account or None,
        "lease_class": workspace.owner.lease_class or None,
        "value": workspace.owner.value or None,
        "most_rate": workspace.owner.most_rate,
        "cancel_s": submission.cancel_s,
        "every_s": submission.every_s,
        "times": None if submission.times == 1 else submission.times,
        "roles": [_role_row(role, workspace.name, labels) for role in submission.roles] or None,
        "open_until_s": submission.open_until_s,
        "within_s": submission.within_s or None,
        "trigger_s": submission.trigger_s,
        "options": [_option_row(option, labels) for option in submission.options] or None,
    }
    return row | {key: value for key, value in optional.items() if value is not None}


def _role_row(role: Workspace, name: str, labels: Mapping[Image, str]) -> dict[str, object]:
    image = {} if role.image is None else {"image": labels[role.image]}
    return {
        "name": role.name.removeprefix(f"{name}."),
        "instances": role.instances,
        "resources": dict(role.resources.amounts),
    } | image


def _option_row(option: Option, labels: Mapping[Image, str]) -> dict[str, object]:
    image = {} if option.image is None else {"image": labels[option.image]}
    return {
        "instances": option.instances,
        "resources": dict(option.resources.amounts),
        "duration_s": option.duration_s,
    } | image
