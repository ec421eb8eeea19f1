"""What requests say, as models: nothing unknown, nothing converted that nobody asked for, all bounded.

Times and durations are texts here, as users write them; `understanding` makes numbers of them.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from outrider.metadata.fields import MOST_INSTANCES
from outrider.metadata.notation.times import LAST_S
from outrider.metadata.yamlfile import MOST_BYTES
from outrider.service.requests import MOST_LISTED

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,89}$"
"""A reservation's name: a workspace's, and mostly a number."""

OFFER = r"^offer-[a-z2-7]{6}-[1-9]$"
"""An offer's name."""

JOB = r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$"
"""A job's name in its batch system."""
HOST = r"^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$"

_LINE = r"^[^\x00-\x1f\x7f]*$"
OptionKey = Annotated[str, Field(pattern=r"^[a-z][a-z_]{0,31}$")]
OptionText = Annotated[str, Field(max_length=8192, pattern=_LINE)]
Zone = Annotated[str, Field(max_length=64, pattern=r"^([A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)*)?$")]
Account = Annotated[str, Field(max_length=129, pattern=r"^([A-Za-z0-9_][A-Za-z0-9._@+-]*[$]?)?$")]
When = Annotated[str, Field(min_length=1, max_length=64, pattern=_LINE)]
Argument = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
Nodes = Annotated[int, Field(ge=1, le=MOST_INSTANCES)]
Number = Annotated[int, Field(ge=0, le=2**63 - 1)]
Most = Annotated[int, Field(ge=1, le=MOST_LISTED)]
Instant = Annotated[int, Field(ge=0, lt=LAST_S)]
JobText = Annotated[str, Field(pattern=JOB)]
HostList = Annotated[str, Field(max_length=4096, pattern=_LINE)]


class Body(BaseModel):
    """JSON that was sent."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, hide_input_in_errors=True)


class Query(BaseModel):
    """What stands behind the question mark: texts, so that numbers are read from them."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class LoginBody(Body):
    """A name and a password at a registry. They are shown to nobody again."""

    host: str = Field(max_length=260, pattern=_LINE, description="the registry, HOST or HOST:PORT")
    user: str = Field(max_length=8_192, pattern=_LINE, description="the name there")
    password: str = Field(
        max_length=8_192, pattern=_LINE, description="the password, or a token in its place"
    )


class WorkspaceBody(Body):
    """A workspace's text as its user wrote it, and what options change in its deployment."""

    workspace: str = Field(max_length=MOST_BYTES, description="the YAML text of the workspace")
    file: str = Field(
        "workspace.yaml", max_length=255, pattern=_LINE, description="the text's name in errors; never opened"
    )
    options: dict[OptionKey, OptionText | None] = Field(
        {}, max_length=32, description="keys of the deployment; null removes one"
    )
    zone: Zone = Field("", description="where times without a zone are meant; empty: where the service is")
    account: Account = Field("", description="which account it is for")


class ReserveBody(WorkspaceBody):
    """A reservation that is wanted, once or again and again."""

    every: str = Field(
        "", max_length=100, pattern=_LINE, description="how often: daily, weekdays, weekly, or a duration"
    )
    until: str = Field(
        "",
        max_length=64,
        pattern=_LINE,
        description="with every: the last date, or the last instant, of a start",
    )
    max_price: str = Field(
        "",
        max_length=20,
        pattern=r"^([0-9]{1,12}([.][0-9]{1,3})?)?$",
        description="what it may cost at most: 12.50",
    )
    best_fit: bool = Field(False, description="with every: take those that can be kept, and not all or none")


class ChangeBody(Body):
    """Other times, another number of nodes, or instances of another size. What is null or absent stays."""

    start: When | None = Field(None, description="when it starts, as in a workspace")
    duration: When | None = Field(None, description="for how long, as in a workspace")
    nodes: Nodes | None = Field(None, description="how many nodes it has")
    cpus: Annotated[int, Field(ge=1, le=100_000)] | None = Field(
        None, description="processors of each instance"
    )
    memory: When | None = Field(None, description="memory of each instance, as in a workspace: 8GiB")
    gpus: Annotated[int, Field(ge=0, le=1000)] | None = Field(
        None, description="graphics processors of each instance"
    )
    zone: Zone = Field("", description="where times without a zone are meant; empty: where the service is")


class TriggerBody(Body):
    """What has come: the event that begins an open reservation, or the one that ends it."""

    what: Literal["begin", "end"] = Field("begin", description="begin it, or end it")


class CallBody(Body):
    """A signed call. The signature is HMAC-SHA256 of `NAME WHAT AT_S` with the reservation's secret, in
    hexadecimal."""

    what: Literal["begin", "end"] = Field("begin", description="begin it, or end it")
    at_s: Instant = Field(description="when it was signed: seconds since 1970")
    signature: str = Field(pattern=r"^[0-9a-f]{64}$", description="64 hexadecimal digits")


class SubmitBody(Body):
    """A job to be handed to the batch system, with or without a workspace and a reservation."""

    argv: list[Argument] = Field(min_length=1, max_length=1000, description="the program and its arguments")
    nodes: Nodes | None = Field(None, description="how many nodes; else the workspace's, else 1")
    reservation: str | None = Field(None, pattern=NAME, description="the reservation that it runs in")
    duration: When | None = Field(None, description="for how long; else the workspace's")
    workspace: str = Field("", max_length=MOST_BYTES, description="the YAML text of its workspace")
    file: str = Field(
        "workspace.yaml", max_length=255, pattern=_LINE, description="the text's name in errors"
    )
    options: dict[OptionKey, OptionText | None] = Field(
        {}, max_length=32, description="keys of the deployment; null removes one"
    )
    zone: Zone = Field("", description="where times without a zone are meant; empty: where the service is")
    account: Account = Field("", description="which account it is for")
    lines: list[OptionText] = Field(
        [], max_length=32, description="what the script says of itself beside the workspace, like run: vm"
    )
    folder: str = Field(
        "",
        max_length=4096,
        pattern=r"^(/[^\x00]*)?$",
        description="where it begins; empty: in its user's home",
    )


class StartingBody(Body):
    """A job that the batch system is about to start."""

    job: str = Field(pattern=JOB, description="the batch system's own name for the job")
    nodes: list[Annotated[str, Field(pattern=HOST)]] = Field(
        min_length=1, max_length=MOST_INSTANCES, description="the nodes that it has got"
    )


class MigrationBody(Body):
    """Where a job's machine is to continue."""

    node: str = Field(
        default="", pattern=f"^$|{HOST}", description="the node; without it the service names one"
    )


class SwitchBody(Body):
    """A switch that is to be planned, or carried out."""

    is_plan: bool = Field(True, description="only plan, and change nothing")
    drained: HostList = Field("", description="nodes that are to be empty, like n[1-4,7]")
    fences: dict[JobText, HostList] = Field(
        {}, max_length=1_000, description="by job, the nodes among which its machines are to be"
    )
    explain: str = Field("", pattern=f"^$|{JOB}", description="a job: say why it moves or does not")


class DrainBody(Body):
    """Nodes that are to take no jobs any more, or to take them again."""

    nodes: HostList = Field(min_length=1, description="these, like n[1-4,7]")
    is_ended: bool = Field(False, description="whether they take jobs again")


class BackupBody(Body):
    """Where a copy of the store goes."""

    path: str = Field(
        max_length=1024,
        pattern=r"^(/[^/\x00-\x1f\x7f]+)+$",
        description="the full path of a file on the service's machine that is not there yet",
    )


class ReservationsQuery(Query):
    past: bool = Field(False, description="list those that are over instead of those that are not")
    user: Account | None = Field(None, description="those of one user")
    state: str = Field(
        "", max_length=256, pattern=r"^[a-z,-]*$", description="those in these states, with commas"
    )
    after: Number | None = Field(
        None, description="continue after the number next_after of the answer before"
    )
    most: Most = MOST_LISTED


class JobsQuery(Query):
    user: Account | None = Field(None, description="those of one user")
    state: str = Field(
        "", max_length=256, pattern=r"^[a-z,-]*$", description="those in these states, with commas"
    )
    after: str = Field(
        "",
        max_length=64,
        pattern=r"^([A-Za-z0-9][A-Za-z0-9_.+-]{0,63})?$",
        description="continue after the job next_after",
    )
    most: Most = MOST_LISTED


class NodesQuery(Query):
    names: HostList = Field("", description="a list like n[1-4,7]; empty: all nodes")
    after: HostList = Field("", description="continue after the name next_after of the answer before")
    most: Most = MOST_LISTED


class DecisionsQuery(Query):
    after: Number = Field(0, description="the number of the last one that is known already")
    most: Most = MOST_LISTED
    wait: Annotated[int, Field(ge=0, le=30)] = Field(0, description="seconds to wait for a newer one")


class MostQuery(Query):
    most: Most = MOST_LISTED


class SharesQuery(MostQuery):
    user: str = Field("", max_length=64, pattern=_LINE, description="of this user only: a name or a number")
    thing: str = Field("", max_length=64, pattern=_LINE, description="of this thing only")
    nodes: HostList = Field("", description="on these nodes only, a row for each: a list like n[1-4,7]")


class LeasesQuery(Query):
    kind: Literal["", "reservation", "deadline", "recurring", "roles", "offer"] = Field(
        "", description="of this kind only"
    )
    user: Account | None = Field(None, description="those of one user")
    most: Most = MOST_LISTED


class ReportQuery(Query):
    by: Literal["user", "account", "group"] = Field("user", description="what is added up")
    since: str = Field(
        "", max_length=64, pattern=_LINE, description="the start of the period; empty: all that is known"
    )
    until: str = Field("", max_length=64, pattern=_LINE, description="the end of the period; empty: now")
    zone: Zone = Field("", description="where times without a zone are meant; empty: where the service is")


class ChangeQuery(Query):
    plan: bool = Field(False, description="only tell what would be answered")
