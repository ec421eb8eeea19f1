"""outriderd's configuration: one file, a folder of further ones, and the environment.

The models are the only definition of what may be written: `outriderd --schema` prints them as
JSON Schema, and the table of the documentation is compared with them. How files are found, laid
over one another and read is in `configfile`.
"""

from __future__ import annotations

import os
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from cachemgr.base.steady import DOUBT_S, STEP_S
from outrider.metadata.fields import Duration, Mode, Name, Size
from outrider.metadata.validation import Section, contradiction
from outrider.service.daemon.configuration.backend import BackendSection
from outrider.service.daemon.configuration.head import HeadSection
from outrider.service.daemon.configuration.images import (
    BucketName,
    BucketSection,
    HostName,
    NamedImageSection,
    SiteLoginSection,
    TokenSection,
)
from outrider.service.daemon.configuration.jobs import JobsSection
from outrider.service.daemon.configuration.link import LinkSection, network_of
from outrider.service.daemon.configuration.registries import ConversionsSection, RegistriesSection
from outrider.service.daemon.configuration.reservations import ReservationsSection
from outrider.service.daemon.configuration.types import (
    Address,
    Names,
    Path,
    SocketPath,
    StorePlace,
    all_defaults,
    given,
    mapping_of_names,
)
from outrider.service.settings import Administrators, Effort, Settings
from outrider.store.place import is_database

LEAST_BACKUP_S = 60
MOST_CALL_S = 150
"""Less than what the desk waits until it asks a node again."""


class TcpSection(Section):
    """Listening beyond this machine. Who asks is vouched for by MUNGE, and by nothing else."""

    listen: Address = Field(description="address and port")
    munge: bool = Field(False, description="true, once this machine and those that ask share a MUNGE key")

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        if not self.munge:
            contradiction("has to be true: without MUNGE nobody knows who asks over the network", "munge")
        return self


class PoolsSection(Section):
    """The nodes' pools of images."""

    size_bytes: Size | None = Field(
        None, alias="size", description="taken for the size of a pool that has never reported"
    )


class TimingsSection(Section):
    """How often things are looked at, and how long they are waited for."""

    look_s: Duration = Field(
        30,
        alias="look",
        description="how often the batch system is looked at",
        json_schema_extra=given("30s"),
    )
    progress_s: Duration = Field(
        2,
        alias="progress",
        description="how often a node is asked while an image arrives there",
        json_schema_extra=given("2s"),
    )
    reconcile_s: Duration = Field(
        300,
        alias="reconcile",
        description="how often store, batch system and nodes are compared as a whole",
        json_schema_extra=given("5m"),
    )
    sight_s: Duration = Field(
        300,
        alias="sight",
        description="nothing is promised when the batch system has not been seen for this long",
        json_schema_extra=given("5m"),
    )
    away_s: Duration = Field(
        120,
        alias="away",
        description="a node whose pool has not answered for this long is promised to nobody",
        json_schema_extra=given("2m"),
    )
    pins_s: Duration = Field(
        86_400,
        alias="pins",
        description="how long a pin lasts on its own; it is renewed before",
        json_schema_extra=given("1d"),
    )
    grace_s: Duration = Field(
        300,
        alias="grace",
        description="how long after a reservation's end its images stay pinned",
        json_schema_extra=given("5m"),
    )
    history_s: Duration = Field(
        90 * 86_400,
        alias="history",
        description="how long reservations that are over are remembered",
        json_schema_extra=given("90d"),
    )
    call_s: Duration = Field(
        120,
        alias="call",
        description="when a call to a node or to the batch system is given up",
        json_schema_extra=given("2m"),
    )
    note_s: Duration = Field(
        20, alias="note", description="how often a job's note may change", json_schema_extra=given("20s")
    )
    clock_step_s: Duration = Field(
        STEP_S,
        alias="clock_step",
        description="a clock that is set by more than this is not trusted at first: nothing ends and "
        "nothing is promised meanwhile",
        json_schema_extra=given(f"{STEP_S}s"),
    )
    clock_doubt_s: Duration = Field(
        DOUBT_S,
        alias="clock_doubt",
        description="how long a clock that was set is not trusted, unless it is set back",
        json_schema_extra=given("2m"),
    )
    lookup_s: Duration = Field(
        15,
        alias="lookup",
        description="when the look-up of an image is given up, whatever its server does",
        json_schema_extra=given("15s"),
    )
    reading_s: Duration = Field(
        900,
        alias="reading",
        description="when the reading of a file for its digest is given up",
        json_schema_extra=given("15m"),
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.sight_s < 2 * self.look_s:
            contradiction(
                "is less than two looks at the batch system: a late look would stop everything", "sight"
            )
        if self.call_s > MOST_CALL_S:
            contradiction(
                f"is more than {MOST_CALL_S} seconds, when a call is considered lost anyway", "call"
            )
        return self


class LimitsSection(Section):
    """What is too much."""

    reservations: int = Field(100_000, ge=1, le=1_000_000, description="reservations that are not over")
    calls: int = Field(64, ge=1, le=1_000, description="calls to nodes under way at once")
    requests: int = Field(1_000, ge=1, le=100_000, description="requests that wait for the desk")
    connections: int = Field(
        512, ge=64, le=16_384, description="connections of users of this machine, and as many of others"
    )
    user_connections: int = Field(128, ge=1, le=4_096, description="connections of one user")
    host_connections: int = Field(512, ge=1, le=16_384, description="connections of one other machine")
    user_requests: int = Field(64, ge=1, le=4_096, description="requests of one user under way at once")
    host_requests: int = Field(
        512, ge=1, le=16_384, description="requests of one other machine under way at once"
    )
    kept: int = Field(
        32,
        ge=1,
        le=1_024,
        description="of connections and requests, those that only root and administrators get",
    )
    probes: int = Field(
        32, ge=1, le=1_024, description="connections, beyond all others, for /healthz and /readyz"
    )
    bodies_bytes: Size = Field(
        256 << 20,
        ge=16 << 20,
        alias="bodies",
        description="bodies of requests in memory, all together: an eighth of it for one user or machine",
        json_schema_extra=given("256MiB"),
    )
    polls: int = Field(256, ge=1, le=16_384, description="requests that wait for something new")
    user_polls: int = Field(8, ge=1, le=4_096, description="such requests of one user")
    user_lookups: int = Field(
        8, ge=1, le=1_024, description="images of one user that are looked up or wait for it"
    )
    user_submissions: int = Field(
        16, ge=1, le=1_024, description="jobs that one user submits by the service, waiting ones included"
    )
    user_decisions: int = Field(
        16, ge=1, le=1_024, description="requests of one user at the site's policy program"
    )
    refusals: int = Field(
        120,
        ge=1,
        le=1_000_000,
        description="refused requests of one user that are written down in an hour; further ones are counted",
    )
    resolving: int = Field(
        32, ge=1, le=256, description="images that are looked up at once: a sixteenth of it for one user"
    )
    reading: int = Field(
        32,
        ge=1,
        le=256,
        description="files under way to be read for their digests; two are read at any moment",
    )
    reading_rate_bytes_per_s: Size = Field(
        1_000_000_000,
        alias="reading_rate",
        description="bytes a second of users' files that are read for their digests, all together",
        json_schema_extra=given("1GB"),
    )
    image_bytes: Size = Field(
        1 << 40,
        alias="image",
        description="the largest image that is looked at; if all pools are smaller, the largest of them",
        json_schema_extra=given("1TiB"),
    )


class AdministratorsSection(Section):
    """Who may see and do everything, besides root."""

    users: Names = Field((), description="users who may see and do everything")
    groups: Names = Field((), description="groups whose members may, too")


class LogSection(Section):
    """What is written to stderr, where systemd's journal takes it."""

    level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="the lowest level that is written"
    )
    format: Literal["text", "json"] = Field("text", description="plain lines, or JSON objects")


class BackupSection(Section):
    """Copies of the store, made while the service runs."""

    folder: Path | None = Field(
        None, description="the folder of the copies, on another disk; without it none are made"
    )
    every_s: Duration = Field(
        3_600, alias="every", description="how often a copy is made", json_schema_extra=given("1h")
    )
    keep: int = Field(
        48, ge=1, le=10_000, description="how many copies are kept; the oldest are deleted first"
    )

    @model_validator(mode="after")
    def _is_bearable(self) -> Self:
        if self.every_s < LEAST_BACKUP_S:
            contradiction(f"is less than {LEAST_BACKUP_S} seconds: each copy reads the whole store", "every")
        return self


class Config(Section):
    """outriderd's configuration, version 1."""

    version: Literal[1] = Field(description="the version of this file's format")
    site: Name = Field("site", description="what the site is called")
    state: Path = Field("/var/lib/outrider", description="the folder of what must not be lost")
    store: StorePlace | None = Field(
        None,
        description="the store's file, on a local disk; without it outriderd.sqlite in the state folder. Of "
        "several heads the address of their database, as postgresql://outrider@db/outrider",
    )
    head: HeadSection = Field(
        default_factory=all_defaults(HeadSection), description="this head, where there are several"
    )
    socket: SocketPath = Field("/run/outrider/outriderd.sock", description="where users' programs ask")
    socket_mode: Mode = Field("0666", description="who may ask at all; who asks is known from the kernel")
    tcp: TcpSection | None = Field(None, description="where programs on other machines ask")
    policies: Path | None = Field(
        None, description="the file of policies; without it everybody who may ask may reserve"
    )
    link: LinkSection = Field(default_factory=all_defaults(LinkSection), description="the link and its use")
    pools: PoolsSection = Field(
        default_factory=all_defaults(PoolsSection), description="the nodes' pools of images"
    )
    timings: TimingsSection = Field(
        default_factory=all_defaults(TimingsSection), description="intervals and time limits"
    )
    jobs: JobsSection = Field(
        default_factory=all_defaults(JobsSection), description="best-effort jobs that name an image"
    )
    reservations: ReservationsSection = Field(
        default_factory=all_defaults(ReservationsSection),
        description="recurring reservations, and offers",
    )
    limits: LimitsSection = Field(
        default_factory=all_defaults(LimitsSection), description="limits of users and of the service"
    )
    administrators: AdministratorsSection = Field(
        default_factory=all_defaults(AdministratorsSection), description="who may see and do everything"
    )
    images: Annotated[dict[Name, NamedImageSection], BeforeValidator(mapping_of_names)] = Field(
        default_factory=dict, description="the site's catalogue: names of images, and what they stand for"
    )
    buckets: Annotated[dict[BucketName, BucketSection], BeforeValidator(mapping_of_names)] = Field(
        default_factory=dict, description="buckets of S3 stores, from which users name images"
    )
    tokens: Annotated[dict[HostName, TokenSection], BeforeValidator(mapping_of_names)] = Field(
        default_factory=dict,
        description="web servers that want a token of the site's, `HOST` or `HOST:PORT`: Glance and the like",
    )
    logins: Annotated[dict[HostName, SiteLoginSection], BeforeValidator(mapping_of_names)] = Field(
        default_factory=dict,
        description="registries at which the site has a login that a program tells, `HOST[:PORT]`: ECR",
    )
    registries: RegistriesSection = Field(
        default_factory=all_defaults(RegistriesSection), description="how registries are asked"
    )
    conversions: ConversionsSection = Field(
        default_factory=all_defaults(ConversionsSection), description="what is made of container images"
    )
    backend: BackendSection = Field(description="the batch system, and where the nodes are")
    log: LogSection = Field(default_factory=all_defaults(LogSection), description="what is written down")
    backup: BackupSection = Field(
        default_factory=all_defaults(BackupSection), description="copies of the store"
    )

    @model_validator(mode="after")
    def _keeps_its_rate(self) -> Self:
        rate = self.backend.rate_bytes_per_s
        if rate is not None and rate < self.link.rate_bytes_per_s:
            contradiction(
                "is less than link.rate, with which transfers are planned: each would be late",
                "backend",
                "rate",
            )
        if self.backup.folder is not None and is_database(self.store_path):
            contradiction(
                "copies a file, and the store is a database: copy that with pg_dump", "backup", "folder"
            )
        if self.jobs.live and not self.jobs.machines:
            contradiction(
                "is true, and no job runs in a machine: jobs.machines has to be true, too", "jobs", "live"
            )
        if self.jobs.consolidate.enabled and not self.jobs.machines:
            words = "is true, and no job runs in a machine: jobs.machines has to be true, too"
            contradiction(words, "jobs", "consolidate", "enabled")
        return self

    @property
    def unmoved(self) -> str:
        """Why no machine can leave a node that is overloaded, and what to do about it; nothing if one can."""
        if self.backend.kind == "gridengine" and self.jobs.machines:
            return "with Grid Engine each slot is for one job alone: leave it out"
        if not self.jobs.machines or self.backend.kind not in ("slurm", "embedded"):
            return (
                "no machine can leave a node that is overloaded here: leave it out, or, with Slurm or the "
                "embedded backend, set jobs.machines in outriderd.yaml"
            )
        if self.backend.kind == "embedded" and self.backend.jobs_on_a_processor == 1:
            return (
                "each processor is for one job alone here: leave it out, or set "
                "backend.jobs_on_a_processor in outriderd.yaml"
            )
        return ""

    @property
    def store_path(self) -> str:
        return self.store or f"{self.state}/outriderd.sqlite"

    @property
    def clock_path(self) -> str:
        """Where it is remembered what the time was believed to be."""
        return f"{self.state}/clock.json"

    @property
    def conversions_folder(self) -> str:
        return self.conversions.folder or f"{self.state}/conversions"

    @property
    def backend_folder(self) -> str:
        return self.backend.folder or f"{self.state}/embedded"

    @property
    def machines_folder(self) -> str:
        """Of the embedded backend's jobs; nothing where they are on nodes."""
        is_here = self.jobs.machines and self.backend.kind == "embedded"
        return os.path.realpath(f"{self.backend_folder}/machines") if is_here else ""


def settings_of(config: Config) -> Settings:
    """What the desk is told of the configuration."""
    timings, link = config.timings, config.link
    return Settings(
        site=config.site,
        link_rate_bytes_per_s=link.rate_bytes_per_s,
        network=network_of(link),
        best_effort_rate_bytes_per_s=link.best_effort_bytes_per_s,
        urgent_rate_bytes_per_s=link.urgent_rate_bytes_per_s,
        reserve_s=link.reserve_s,
        shipping=link.shipping,
        pool_bytes=config.pools.size_bytes,
        spread_s=link.spread_s,
        looks_for_uid=os.geteuid() or None,
        **config.backend.abilities,
        look_every_s=timings.look_s,
        progress_every_s=timings.progress_s,
        reconcile_every_s=timings.reconcile_s,
        most_sight_age_s=timings.sight_s,
        away_after_s=timings.away_s,
        pin_lease_s=timings.pins_s,
        grace_s=timings.grace_s,
        keep_history_s=timings.history_s,
        most_reservations=config.limits.reservations,
        most_refusals=config.limits.refusals,
        offers_held_s=config.reservations.offers_held_s,
        most_occurrences=config.reservations.occurrences,
        most_offers=config.reservations.offered_users,
        most_calls=config.limits.calls,
        longest_wait_s=config.jobs.longest_wait_s,
        note_every_s=timings.note_s,
        most_copies=config.jobs.copies,
        allows_preemptible=config.jobs.preemptible,
        allows_machines=config.jobs.machines,
        machines_folder=config.machines_folder,
        moves_live=config.jobs.live,
        consolidates=config.jobs.consolidate.enabled,
        consolidate_every_s=config.jobs.consolidate.every_s,
        consolidate_actions=config.jobs.consolidate.actions_per_hour,
        saving_rate_bytes_per_s=config.jobs.saving_rate_bytes_per_s,
        most_requeue_grace_s=config.jobs.most_grace_s,
        requeue_margin_s=config.jobs.requeue_margin_s,
        user_share_percent=config.jobs.user_share,
        schedule=config.jobs.schedule.settings,
    )


def effort_of(config: Config) -> Effort:
    """How much is spent on look-ups of images."""
    return Effort(
        at_once=config.limits.resolving,
        waiting_of_one=config.limits.user_lookups,
        limit_s=config.timings.lookup_s,
        reading_at_once=config.limits.reading,
        reading_limit_s=config.timings.reading_s,
    )


def administrators_of(config: Config) -> Administrators:
    return Administrators(
        users=frozenset(config.administrators.users), groups=frozenset(config.administrators.groups)
    )
