"""A workspace as a user writes it down: metadata and, apart from it, a deployment request.

After the thesis, section 2.2: metadata are what stays the same from one deployment to the
next, the image and how its instances differ from one another; a deployment says how many
are wanted, how large, for how long and when. So one file serves many deployments: the
second section may be absent, or be replaced key by key by options.

The models below are the only definition. workspace.schema.json is written from them, and a
test compares the two.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, ValidationInfo, model_validator

from outrider.metadata.errors import TextError, TextPosition
from outrider.metadata.fields import (
    MOST_INSTANCES,
    MOST_TEXT,
    Addresses,
    Digest,
    Duration,
    Event,
    EventFile,
    EventJob,
    EventSource,
    GuestPath,
    Hosts,
    Instant,
    JobValue,
    Memory,
    Mode,
    Name,
    Size,
    Uri,
)
from outrider.metadata.notation.durations import format_duration
from outrider.metadata.notation.events import CALL, FILE, JOB, SOURCE, TIME, EventSpec, read_spec
from outrider.metadata.notation.times import format_instant
from outrider.metadata.notation.ways import MOST_WAYS, read_ways
from outrider.metadata.validation import Circumstances, Section, contradiction, validated
from outrider.metadata.yamlfile import YamlDocument, parse_yaml, read_bytes, scalar

MOST_ROLES = 64
MOST_FILES = 64

Text = Annotated[str, StringConstraints(max_length=MOST_TEXT)]
Options = Mapping[str, str | None]
"""Keys of the deployment as options give them; None takes the key out of what the file says."""


class ImageSection(Section):
    """Which image the instances are copies of."""

    uri: Uri = Field(description="where the image is, or its name in the site's catalogue")
    digest: Digest | None = Field(
        None, description="what its bytes must hash to; without it the service finds out"
    )
    size_bytes: Size | None = Field(
        None, alias="size", description="its size; without it the service finds out"
    )
    format: Literal["qcow2", "raw", "squashfs", "sif", "bundle", "file", "layers"] | None = Field(
        None, description="how the image is packed; without it the service finds out"
    )
    private: bool = Field(False, description="whether only those may use it who may read it at its source")


class FileSection(Section):
    """A file to be written inside each instance of a role."""

    path: GuestPath = Field(description="its full path inside the instance")
    content: Text = Field(description="what is in it")
    mode: Mode = Field("0644", description="who may read and write it")


class RoleSection(Section):
    """Instances that are configured alike, such as a cluster's head or its workers.

    Where any role has an image or a size of its own, each host is an instance on a node of its own, and all
    roles begin together.
    """

    name: Name = Field(description="what the role is called")
    hosts: Hosts = Field(description="the host names of its instances, one each")
    addresses: Addresses = Field((), description="their addresses, as many and in the same order")
    files: Annotated[tuple[FileSection, ...], Field(max_length=MOST_FILES, strict=False)] = Field(
        (), description="files to be written inside each"
    )
    user_data: Text = Field(
        "", description="what is handed to each at its first boot, for instance cloud-init's"
    )
    image: ImageSection | None = Field(None, description="an image of its own; else the workspace's")
    cpus: int | None = Field(
        None, ge=1, le=100_000, description="processors of each; else what the deployment says"
    )
    memory_mib: Memory | None = Field(
        None, alias="memory", description="memory of each; else what the deployment says"
    )
    gpus: int | None = Field(
        None, ge=0, le=1000, description="graphics processors of each; else what the deployment says"
    )

    @property
    def is_unlike(self) -> bool:
        """Whether its instances differ from those of others in what they need."""
        return any(each is not None for each in (self.image, self.cpus, self.memory_mib, self.gpus))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.addresses and len(self.addresses) != len(self.hosts):
            contradiction(
                f"{len(self.addresses)} addresses for {len(self.hosts)} hosts: give one for each", "addresses"
            )
        paths = Counter(file.path for file in self.files)
        for number, file in enumerate(self.files):
            if paths[file.path] > 1:
                contradiction(
                    f"{file.path} is written more than once: keep one of them", "files", number, "path"
                )
        return self


class MetadataSection(Section):
    """What does not change from one deployment to the next."""

    name: Name = Field(description="what the workspace is called")
    image: ImageSection = Field(description="which image the instances are copies of")
    roles: Annotated[tuple[RoleSection, ...], Field(max_length=MOST_ROLES, strict=False)] = Field(
        (), description="how the instances differ; without roles they are all alike"
    )

    @property
    def has_unlike_roles(self) -> bool:
        return any(role.is_unlike for role in self.roles)

    @property
    def most_instances(self) -> int:
        """For how many instances there is a configuration."""
        return sum(len(role.hosts) for role in self.roles) if self.roles else MOST_INSTANCES

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.most_instances > MOST_INSTANCES:
            contradiction(f"{self.most_instances} hosts are too many: at most {MOST_INSTANCES}", "roles")
        names: set[str] = set()
        hosts: set[str] = set()
        addresses: set[str] = set()
        for number, role in enumerate(self.roles):
            if role.name in names:
                contradiction(
                    f"{role.name} is the name of a role above: choose another", "roles", number, "name"
                )
            if twice := sorted(hosts.intersection(role.hosts)):
                contradiction(
                    f"{twice[0]} is a host of a role above: name each once", "roles", number, "hosts"
                )
            if twice := sorted(addresses.intersection(role.addresses)):
                contradiction(
                    f"{twice[0]} is given in a role above: use each once", "roles", number, "addresses"
                )
            names.add(role.name)
            hosts.update(role.hosts)
            addresses.update(role.addresses)
        return self


class OptionSection(Section):
    """One way to carry the deployment out. What it does not say is as in the deployment."""

    nodes: int = Field(ge=1, le=MOST_INSTANCES, description="how many nodes it needs")
    duration_s: Duration = Field(alias="duration", description="for how long it needs them")
    instances_per_node: int | None = Field(
        None, ge=1, le=1000, description="how many instances run on each node"
    )
    cpus: int | None = Field(None, ge=1, le=100_000, description="processors of each instance")
    memory_mib: Memory | None = Field(None, alias="memory", description="memory of each instance")
    image: ImageSection | None = Field(None, description="an image of its own; else the workspace's")


class DeploymentSection(Section):
    """How many instances are wanted this time, how large, for how long and when.

    With `start` it is a reservation for then, with `finish_by` one that may start at any time
    (from `start` on, or from now on) that lets it end by then, with `open_from` one that starts when
    an event comes; with none of them it is best effort.
    """

    nodes: int = Field(ge=1, le=MOST_INSTANCES, description="how many nodes it needs")
    instances_per_node: int = Field(1, ge=1, le=1000, description="how many instances run on each node")
    cpus: int = Field(1, ge=1, le=100_000, description="processors of each instance")
    memory_mib: Memory | None = Field(None, alias="memory", description="memory of each instance")
    gpus: int = Field(0, ge=0, le=1000, description="graphics processors of each instance")
    duration_s: Duration = Field(alias="duration", description="for how long; a bare number counts minutes")
    start_s: Instant | None = Field(None, alias="start", description="when it starts, at the earliest")
    finish_by_s: Instant | None = Field(
        None, alias="finish_by", description="when it has ended, at the latest"
    )
    least_piece_s: Duration | None = Field(
        None,
        alias="least_piece",
        description="with finish_by: it may be had in several pieces, each with at least so much of its "
        "duration, for jobs that go on from their checkpoints",
    )
    open_from_s: Instant | None = Field(
        None, alias="open_from", description="from when on nodes and image are ready for an event"
    )
    open_until_s: Instant | None = Field(
        None, alias="open_until", description="until when the event may come"
    )
    ready_within_s: Duration | None = Field(
        None, alias="ready_within", description="how soon after its event an open reservation starts"
    )
    when_file: EventFile | None = Field(None, description="its event: this file is there, on the head node")
    when_job: EventJob | None = Field(None, description="its event: this job of the user's has ended")
    when_time_s: Instant | None = Field(None, alias="when_time", description="its event: it is this time")
    when_call: bool | None = Field(None, description="its event: a call that is signed with a secret")
    when_source: EventSource | None = Field(
        None, description="its event: a source of the site's own says so; its name, a colon, what it is asked"
    )
    until_event: Event | None = Field(None, description="an event that ends it before its time is over")
    preemptible: bool | None = Field(
        None,
        description="of best effort: whether it may be suspended for a reservation; it may unless this is "
        "false. Of a reservation: whether it may make way for others, by the site's policy; unless this is "
        "true it may not",
    )
    value: JobValue | None = Field(
        None, description="what a job that is made of it is worth, as 12.5; not for reservations"
    )
    options: Annotated[tuple[OptionSection, ...], Field(max_length=MOST_WAYS, strict=False)] = Field(
        (),
        description="ways to carry it out, of which the service takes one; nodes and duration are as in the "
        "first unless they are said",
    )

    @model_validator(mode="before")
    @classmethod
    def _like_first_option(cls, data: Any) -> Any:
        """Nodes and duration of the first option, where the deployment itself does not say them."""
        options = data.get("options") if isinstance(data, Mapping) else None
        first = options[0] if isinstance(options, (list, tuple)) and options else None
        if not isinstance(first, Mapping):
            return data
        return {**{key: first[key] for key in ("nodes", "duration") if key in first}, **data}

    def by(self, option: OptionSection) -> DeploymentSection:
        """The same as one of its options says."""
        said = {name: getattr(option, name) for name in OptionSection.model_fields if name != "image"}
        given = {name: value for name, value in said.items() if value is not None}
        return self.model_copy(update={**given, "options": ()})

    def with_options(self) -> tuple[DeploymentSection, ...]:
        """Itself, and what it would be by each of its options."""
        return (self, *(self.by(option) for option in self.options))

    @property
    def shortest_s(self) -> int:
        """The least time that it takes."""
        return min((option.duration_s for option in self.options), default=self.duration_s)

    @property
    def instances(self) -> int:
        return self.nodes * self.instances_per_node

    @property
    def is_best_effort(self) -> bool:
        return self.start_s is None and self.finish_by_s is None and self.open_from_s is None

    @property
    def begins(self) -> tuple[EventSpec, ...]:
        """The events that begin an open reservation, beside its user's own word."""
        texts = {
            FILE: self.when_file,
            JOB: self.when_job,
            TIME: None if self.when_time_s is None else str(self.when_time_s),
            SOURCE: self.when_source,
        }
        found = [EventSpec(kind, text) for kind, text in texts.items() if text is not None]
        return (*found, *([EventSpec(CALL)] if self.when_call else []))

    @property
    def ends(self) -> tuple[EventSpec, ...]:
        """The events that end it."""
        return () if self.until_event is None else (read_spec(self.until_event),)

    @model_validator(mode="after")
    def _fits_together(self, info: ValidationInfo) -> Self:
        circumstances = info.context
        assert isinstance(circumstances, Circumstances)
        for each in self.with_options():
            if each.instances > MOST_INSTANCES:
                contradiction(f"{each.instances} instances are too many: at most {MOST_INSTANCES}", "nodes")
        _check_window(self)
        if self.least_piece_s is not None and self.finish_by_s is None:
            contradiction("is for what has to end by a time: give finish_by, too", "least_piece")
        if self.least_piece_s is not None and self.preemptible:
            contradiction(
                "is not for what may yield, since its pieces stay where they are: leave out preemptible",
                "least_piece",
            )
        if self.least_piece_s is not None and self.options:
            contradiction(
                "is not for what may be carried out in several ways: leave out options", "least_piece"
            )
        if self.options and self.open_from_s is not None:
            contradiction("are not for what waits for an event: leave out options or open_from", "options")
        if self.finish_by_s is not None:
            first_s = circumstances.now_s if self.start_s is None else self.start_s
            if first_s + self.shortest_s > self.finish_by_s:
                first, last = (
                    format_instant(at_s, zone=circumstances.zone) for at_s in (first_s, self.finish_by_s)
                )
                contradiction(
                    f"{format_duration(self.shortest_s)} from {first} on do not end by {last}: "
                    "allow more time, or ask for less",
                    "finish_by",
                )
        return self


def _check_window(deployment: DeploymentSection) -> None:
    """What an open reservation has to say, and nothing else may."""
    from_s, until_s = deployment.open_from_s, deployment.open_until_s
    if from_s is None:
        of_open = ("open_until_s", "ready_within_s", "when_time_s", "when_file", "when_job", "when_call")
        for name in (*of_open, "when_source", "until_event"):
            if getattr(deployment, name) is not None:
                contradiction("is for what waits for an event: give open_from, too", name.removesuffix("_s"))
        return
    for name in ("start_s", "finish_by_s"):
        if getattr(deployment, name) is not None:
            contradiction(
                "open_from says when it may start: leave one of the two out", name.removesuffix("_s")
            )
    if until_s is None:
        contradiction("needs open_until: until when the event may come", "open_from")
    if deployment.ready_within_s is None:
        contradiction("needs ready_within: how soon after its event it has to start", "open_from")
    if until_s < from_s:
        contradiction("is before open_from: the event could never come", "open_until")
    if deployment.when_time_s is not None and not from_s <= deployment.when_time_s <= until_s:
        contradiction("is outside of the time from open_from to open_until", "when_time")


class WorkspaceFile(Section):
    """Outrider workspace, version 1."""

    version: Literal[1] = Field(description="which version of this form it is")
    metadata: MetadataSection = Field(description="what does not change from one deployment to the next")
    deployment: DeploymentSection | None = Field(
        None, description="how many instances, how large, for how long and when"
    )

    @property
    def unused_keys(self) -> tuple[str, ...]:
        """What it asks for and no part of the service does, in sentences for whoever wrote it."""
        found = []
        if self.metadata.has_unlike_roles:
            found.append("metadata.roles: no instance is told a host name, an address, files or user_data")
        elif self.metadata.roles:
            found.append(
                "metadata.roles is not used by reservations: the image is on all nodes alike, and no "
                "instance is told a host name, an address, files or user_data; jobs in virtual machines have "
                "roles"
            )
        if self.deployment is not None and self.deployment.preemptible and self.deployment.is_best_effort:
            found.append(
                "deployment.preemptible is not used: only the simulator suspends best effort; a job that may "
                "be requeued for a reservation says so in a line of its own, preemptible: requeue"
            )
        return tuple(found)

    def ways(self) -> tuple[WorkspaceFile, ...]:
        """Each option as a workspace of its own, with its image; none if there are no options."""
        deployment, found = self.deployment, []
        for option in () if deployment is None else deployment.options:
            assert deployment is not None
            metadata = self.metadata
            if option.image is not None:
                metadata = metadata.model_copy(update={"image": option.image})
            found.append(self.model_copy(update={"metadata": metadata, "deployment": deployment.by(option)}))
        return tuple(found)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        deployment, most = self.deployment, self.metadata.most_instances
        for each in () if deployment is None else deployment.with_options():
            if each.instances > most:
                contradiction(
                    f"{each.instances} instances are wanted, but the roles of the metadata have {most} "
                    "hosts: add hosts, or ask for fewer",
                    "deployment",
                    "nodes",
                )
        if deployment is not None and self.metadata.has_unlike_roles:
            _check_unlike(deployment, most)
        return self


def _check_unlike(deployment: DeploymentSection, hosts: int) -> None:
    """What a deployment of unlike instances has to say, and cannot."""
    if deployment.instances_per_node != 1 or deployment.nodes != hosts:
        contradiction(
            f"roles with sizes or images of their own have a node for each of their hosts: ask for {hosts} "
            "nodes with one instance each",
            "deployment",
            "nodes",
        )
    for name in ("finish_by_s", "open_from_s", "preemptible", "options"):
        if getattr(deployment, name):
            contradiction(
                "is not for roles with sizes or images of their own, which begin together at a start: leave"
                " it out",
                "deployment",
                name.removesuffix("_s"),
            )


def parse_workspace(
    content: bytes, circumstances: Circumstances, *, file: str, options: Options | None = None
) -> WorkspaceFile:
    """The workspace in these bytes, with a deployment that options complete or replace key by key.

    Raises FaultyFileError with all faults of the file and of the options.
    """
    document = parse_yaml(content, file=file)
    _apply(options or {}, document)
    return validated(WorkspaceFile, document, circumstances)


def read_workspace(
    path: str | os.PathLike[str], circumstances: Circumstances, *, options: Options | None = None
) -> WorkspaceFile:
    """The workspace in a file; OSError is the caller's to explain."""
    return parse_workspace(read_bytes(path), circumstances, file=os.fspath(path), options=options)


def _apply(options: Options, document: YamlDocument) -> None:
    """Put what options say in the place of what the file says."""
    if not options or not isinstance(document.data, dict):
        return
    deployment = document.data.setdefault("deployment", {})
    if not isinstance(deployment, dict):
        return
    for key, text in options.items():
        if text is None:
            deployment.pop(key, None)
            continue
        path = ("deployment", key)
        option = "--option" if key == "options" else f"--{key.replace('_', '-')}"
        document.values[path] = document.keys[path] = TextPosition(option=option)
        document.problems = [each for each in document.problems if each.path[:2] != path]
        if key == "options":
            _apply_ways(text, deployment, document)
        else:
            deployment[key] = scalar(text)


def _apply_ways(text: str, deployment: dict[str, object], document: YamlDocument) -> None:
    """The ways of options in the place of those of the file; nodes and duration are theirs, too."""
    path = ("deployment", "options")
    try:
        ways = read_ways(text)
    except TextError as error:
        document.add_problem(path, str(error))
        deployment.pop("options", None)
        return
    deployment["options"] = [_option_of(way) for way in ways]
    place = TextPosition(option="--option")
    for number, way in enumerate(ways):
        for key in way:
            at = (*path, number, *_OF_IMAGE.get(key, (key,)))
            document.values[at] = document.keys[at] = place


_OF_IMAGE = {"image": ("image", "uri"), "digest": ("image", "digest")}
"""Where the keys of an option in one line are that are not its own."""


def _option_of(way: Mapping[str, str]) -> dict[str, object]:
    """An option as a file has it."""
    found: dict[str, object] = {key: scalar(text) for key, text in way.items() if key not in _OF_IMAGE}
    image = {_OF_IMAGE[key][1]: text for key, text in way.items() if key in _OF_IMAGE}
    return {**found, "image": image} if image else found
