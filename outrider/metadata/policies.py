"""A site's policies as an administrator writes them: who may reserve, how much, how far ahead.

The models are the only definition of the file; policies.schema.json is written from them,
and a test compares the two. What follows from them for a request is decided in `decision`.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from outrider.core.switch.use import PackingByUse
from outrider.metadata.errors import shown
from outrider.metadata.fields import Account, Argument, Duration, Name, Share, Size, Words
from outrider.metadata.leases import LeasesSection
from outrider.metadata.validation import Section, contradiction, validated
from outrider.metadata.yamlfile import parse_yaml, read_bytes

MOST_RULES = 1000
MOST_NAMES = 1000
MOST_TIMEOUT_S = 60

Names = Annotated[tuple[Account, ...], Field(max_length=MOST_NAMES, strict=False)]


class WhoSection(Section):
    """Whom it is about: everybody in any of the lists, or all if there is none."""

    users: Names = Field((), description="names of users")
    groups: Names = Field((), description="names of groups that a user is in")
    accounts: Names = Field((), description="accounts that a reservation is charged to")

    @property
    def is_everybody(self) -> bool:
        return not (self.users or self.groups or self.accounts)

    def is_about(self, user: str, groups: Collection[str], account: str) -> bool:
        return (
            self.is_everybody
            or user in self.users
            or not set(self.groups).isdisjoint(groups)
            or account in self.accounts
        )


class DenialSection(WhoSection):
    """Who may not reserve, whatever the rules say."""

    because: Words = Field(description="the reason that the user reads")

    @model_validator(mode="after")
    def _is_about_somebody(self) -> Self:
        if self.is_everybody:
            contradiction("names nobody: give users, groups or accounts")
        return self


class RuleSection(WhoSection):
    """What some may reserve. What is not limited here is not limited."""

    name: Name = Field(description="what a refusal calls the rule")
    may_reserve: bool = Field(True, description="false: these may not reserve at all")
    because: Words | None = Field(None, description="with may_reserve: false, the reason that the user reads")
    ahead_s: Duration | None = Field(None, alias="ahead", description="how far ahead a start may lie")
    duration_s: Duration | None = Field(None, alias="duration", description="how long a reservation may be")
    node_hours: int | None = Field(
        None, ge=1, le=10**9, description="how many node-hours a user may have booked at once"
    )
    reservations: int | None = Field(
        None, ge=1, le=10**6, description="how many reservations a user may have at once"
    )
    image_size_bytes: Size | None = Field(None, alias="image_size", description="how large an image may be")
    machine_share_percent: Share | None = Field(
        None,
        alias="machine_share",
        description="how much of all nodes may be reserved at any instant, by anybody",
    )
    account_share_percent: Share | None = Field(
        None,
        alias="account_share",
        description="how much of all nodes an account may have reserved at any instant",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.may_reserve:
            limits = sorted(
                self.model_fields_set - {"users", "groups", "accounts", "name", "may_reserve", "because"}
            )
            if limits:
                key = RuleSection.model_fields[limits[0]].alias or limits[0]
                contradiction("has no effect for those who may not reserve at all: leave it out", key)
        elif self.because is not None:
            contradiction("is said to those only who may not reserve: leave it out", "because")
        return self


class ExternalSection(Section):
    """A program of the site that is asked last: exit 0 allows, exit 1 with a reason refuses."""

    command: Annotated[tuple[Argument, ...], Field(min_length=1, max_length=64, strict=False)] = Field(
        description="the program's full path and its arguments"
    )
    timeout_s: Duration = Field(
        10, alias="timeout", description="how long it may take", json_schema_extra={"default": "10s"}
    )
    when_it_fails: Literal["refuse", "allow"] = Field(
        "refuse", description="what to do when it gives no answer: refuse, or allow"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.command[0].startswith("/"):
            contradiction(
                f"{shown(self.command[0])} is not a full path: one begins with a slash", "command", 0
            )
        if self.timeout_s > MOST_TIMEOUT_S:
            contradiction("is more than a minute: somebody waits for the answer", "timeout")
        return self


class OverbookSection(Section):
    """Machines of jobs are packed by the processors that they use, and not by those that were asked for."""

    margin_percent: Share = Field(
        25,
        alias="margin",
        description="what is added to use for what a machine may want a moment later",
        json_schema_extra={"default": "25%"},
    )
    age_s: Duration = Field(
        120,
        alias="age",
        ge=30,
        description="a machine whose use was measured longer ago counts as what was asked for",
        json_schema_extra={"default": "2m"},
    )
    most: int = Field(
        2, ge=2, le=16, description="how many processors may be asked for, for each that a node has"
    )

    @property
    def packing(self) -> PackingByUse:
        """As the core has it."""
        return PackingByUse(margin_percent=self.margin_percent, age_s=self.age_s, most=self.most)


class Policies(Section):
    """Outrider policies, version 1."""

    version: Literal[1] = Field(description="which version of this form it is")
    deny: Annotated[tuple[DenialSection, ...], Field(max_length=MOST_RULES, strict=False)] = Field(
        (), description="who may not reserve; looked at before the rules"
    )
    machine_share_percent: Share | None = Field(
        None,
        alias="machine_share",
        description="how much of all nodes may be reserved at any instant, by anybody",
    )
    rules: Annotated[tuple[RuleSection, ...], Field(min_length=1, max_length=MOST_RULES, strict=False)] = (
        Field(description="the first rule that is about somebody counts, and no other")
    )
    external: ExternalSection | None = Field(None, description="a program of the site that is asked last")
    holder_account: Account | None = Field(
        None,
        description="the account that the batch system charges for holder jobs of machines that move "
        "(jobs.live); without it the job's own",
    )
    overbook: OverbookSection | None = Field(
        None,
        description="switches pack machines by the processors that they use; without it by those asked for. "
        "Memory is never overbooked",
    )
    leases: LeasesSection | None = Field(
        None, description="what is accepted, who yields, which nodes are taken and what it costs"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        names: set[str] = set()
        above = ""
        for number, rule in enumerate(self.rules):
            if rule.name in names:
                contradiction(
                    f"{rule.name} is the name of a rule above: choose another", "rules", number, "name"
                )
            if above:
                contradiction(
                    f"is never looked at, since rule {above} is about everybody", "rules", number, "name"
                )
            names.add(rule.name)
            above = rule.name if rule.is_everybody else ""
        return self


def parse_policies(content: bytes, *, file: str) -> Policies:
    """The policies in these bytes. Raises FaultyFileError with all faults of the file."""
    return validated(Policies, parse_yaml(content, file=file))


def read_policies(path: str | os.PathLike[str]) -> Policies:
    """The policies in a file; OSError is the caller's to explain."""
    return parse_policies(read_bytes(path), file=os.fspath(path))
