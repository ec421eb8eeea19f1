"""What an administrator sets for best-effort jobs."""

from __future__ import annotations

from pydantic import Field

from outrider.metadata.fields import Duration, Share, Size
from outrider.metadata.validation import Section
from outrider.service.daemon.configuration.types import given


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
        description="how much of a pool the images of one user's waiting jobs may take, of what others leave",
        json_schema_extra=given("50%"),
    )
    preemptible: bool = Field(
        False, description="whether jobs may say that they can be requeued for a reservation"
    )
    machines: bool = Field(False, description="whether jobs may run in virtual machines on their nodes")
    saving_rate_bytes_per_s: Size = Field(
        50_000_000,
        ge=1_000_000,
        alias="saving_rate",
        description="with which a machine's memory is written to a node's disk, at least: by it is known how "
        "long before a reservation's start machines are suspended",
        json_schema_extra=given("50MB"),
    )
    most_grace_s: Duration = Field(
        300,
        alias="most_grace",
        description="the longest time that such a job may ask for between its signal and the requeue",
        json_schema_extra=given("5m"),
    )
    requeue_margin_s: Duration = Field(
        90,
        alias="requeue_margin",
        description="how long before a reservation's start such jobs are requeued: the batch system's own "
        "time to end a job and to clean up after it",
        json_schema_extra=given("90s"),
    )
