"""What an administrator sets for best-effort jobs."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.jobs.order import Order
from outrider.core.besteffort.jobs.schedule import MOST_PLACES, ScheduleRules
from outrider.metadata.errors import TextError
from outrider.metadata.fields import Duration, Name, Share, Size
from outrider.metadata.validation import Section, contradiction, named
from outrider.service.daemon.configuration.types import Path, all_defaults, given
from outrider.service.settings import ScheduleSettings

MOST_QUEUES = 100
RULES = {
    "off": ScheduleRules(backfilling=Backfilling.OFF),
    "greedy": ScheduleRules(backfilling=Backfilling.GREEDY),
    "easy": ScheduleRules(places=1),
    "conservative": ScheduleRules(places=None),
}


def _backfilling(value: object) -> str:
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if text in RULES or (text.isascii() and text.isdecimal() and 0 < int(text[:9]) <= MOST_PLACES):
        return text
    raise TextError(
        f"{named(value)} is not a kind of backfilling: write {', '.join(RULES)}, or how many jobs have a "
        f"place in the future, from 1 to {MOST_PLACES}"
    )


Rule = Annotated[
    str,
    BeforeValidator(_backfilling),
    WithJsonSchema({"type": ["integer", "string"], "examples": [*RULES, 5]}),
]


class ScheduleSection(Section):
    """Queues of which Outrider decides when and where their jobs start, with an image or without."""

    queues: Annotated[tuple[Name, ...], Field(max_length=MOST_QUEUES, strict=False)] = Field(
        (),
        description="partitions or queues whose jobs Outrider starts; of all others the batch system decides",
    )
    backfilling: Rule = Field(
        "easy",
        description="who may overtake: off, greedy, easy, conservative, or how many waiting jobs have a "
        "place in the future that nobody may delay",
        json_schema_extra=given("easy"),
    )
    order: Literal["fcfs", "age", "size", "shares", "program"] = Field(
        "fcfs", description="in which order jobs are considered"
    )
    program: Path | None = Field(
        None, description="the program that puts jobs into their order, if order is program"
    )
    program_limit_s: Duration = Field(
        5,
        alias="program_limit",
        description="after this long the program is ended, and jobs are in the order of their submission",
        json_schema_extra=given("5s"),
    )
    start_within_s: Duration = Field(
        120,
        alias="start_within",
        description="a job that was released and has not started for this long gives its place to others",
        json_schema_extra=given("2m"),
    )
    file: Path = Field(
        "/etc/outrider/queues",
        description="where `outrider queues take-over` writes these queues and `outrider queues hand-back` "
        "deletes them; the submit filters read it, too, and know no other place",
    )

    @model_validator(mode="after")
    def _names_its_program(self) -> Self:
        if (self.order == "program") != (self.program is not None):
            contradiction("and order: program belong together: set both or neither", "program")
        return self

    @property
    def settings(self) -> ScheduleSettings | None:
        """What the desk is told; None where the batch system starts all jobs."""
        if not self.queues:
            return None
        rules = RULES.get(self.backfilling)
        return ScheduleSettings(
            queues=self.queues,
            rules=ScheduleRules(places=int(self.backfilling)) if rules is None else rules,
            order=Order(self.order),
            start_within_s=self.start_within_s,
        )


class ConsolidateSection(Section):
    """Switches that the service begins by itself."""

    enabled: bool = Field(
        False, description="whether the service begins switches; `outrider switch` works in any case"
    )
    every_s: Duration = Field(
        30, ge=5, alias="every", description="how often it looks whether one would help",
        json_schema_extra=given("30s"),
    )  # fmt: skip
    actions_per_hour: int = Field(60, ge=1, le=10_000, description="the most actions within an hour")


class JobsSection(Section):
    """Best-effort jobs that name an image."""

    longest_wait_s: Duration = Field(
        1_800,
        alias="longest_wait",
        description="a job whose image takes longer to arrive gets a message that says why",
        json_schema_extra=given("30m"),
    )
    copies: int = Field(
        8,
        ge=1,
        le=1_000,
        description="the most nodes to which a job array's image is brought, and on which an image is kept "
        "for a job",
    )
    user_share: Share = Field(
        50,
        ge=1,
        description="the share of a pool that images of one user's waiting jobs may take, of what other "
        "users leave",
        json_schema_extra=given("50%"),
    )
    preemptible: bool = Field(
        False, description="whether jobs may say that they can be requeued for a reservation"
    )
    machines: bool = Field(False, description="whether jobs may run in virtual machines on their nodes")
    live: bool = Field(
        False,
        description="whether machines move while they run, without being saved: through holder jobs of "
        "their owners, if nodes share users' homes; on the embedded backend to nodes that "
        "have the image",
    )
    saving_rate_bytes_per_s: Size = Field(
        50_000_000,
        ge=1_000_000,
        alias="saving_rate",
        description="the least rate at which a machine's memory is written to a node's disk; it decides "
        "how long before a reservation's start machines are suspended",
        json_schema_extra=given("50MB"),
    )
    consolidate: ConsolidateSection = Field(
        default_factory=all_defaults(ConsolidateSection),
        description="whether machines are moved so that a waiting job has room to start",
    )
    most_grace_s: Duration = Field(
        300,
        alias="most_grace",
        description="the longest time that such a job may ask for between its signal and the requeue",
        json_schema_extra=given("5m"),
    )
    schedule: ScheduleSection = Field(
        default_factory=all_defaults(ScheduleSection),
        description="queues whose jobs Outrider starts; without any the batch system starts all jobs",
    )
    requeue_margin_s: Duration = Field(
        90,
        alias="requeue_margin",
        description="how long before a reservation's start such jobs are requeued: the batch system's own "
        "time to end a job and to clean up after it",
        json_schema_extra=given("90s"),
    )
