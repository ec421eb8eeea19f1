"""The part of the configuration that says which batch system it is, and where the nodes are."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, model_validator

from cachemgr.protocol import CONTROL_PORT, RELAY_PORT
from outrider.core.model import Resources
from outrider.metadata.errors import TextError, shown
from outrider.metadata.fields import Account, Duration, Hosts, Memory, Size
from outrider.metadata.validation import Section, contradiction, named
from outrider.service.daemon.configuration.types import Path, all_defaults, given

VIRTUAL_NODES = ("n1", "n2", "n3", "n4")
LEAST_PORT = 1


def _folder(value: str) -> str:
    if value == "/":
        raise TextError("is the root of all folders: write the one that has the commands")
    return value


def _object(value: object) -> str:
    if not isinstance(value, str) or not _OBJECT.fullmatch(value):
        raise TextError(f"{named(value)} is not a name that Grid Engine takes: write one like all.q")
    return value


def _environments(value: object) -> tuple[tuple[int, str], ...]:
    found = {}
    for each in value.replace(",", " ").split() if isinstance(value, str) else [value]:
        match = _ENVIRONMENT.fullmatch(each) if isinstance(each, str) else None
        if match is None:
            raise TextError(f"{shown(str(each))} is not a name and number of slots: write them like whole=16")
        found[int(match[2])] = match[1]
    return tuple(sorted(found.items()))


_OBJECT = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,200}")
_ENVIRONMENT = re.compile(rf"({_OBJECT.pattern})=([1-9][0-9]{{0,4}})")
ObjectName = Annotated[str, BeforeValidator(_object), WithJsonSchema({"type": "string"})]
Environments = Annotated[
    tuple[tuple[int, str], ...],
    BeforeValidator(_environments),
    WithJsonSchema({"type": "string", "examples": ["whole=16 half=8"]}),
]
Port = Annotated[int, Field(ge=LEAST_PORT, le=65_535)]
Folder = Annotated[Path, AfterValidator(_folder)]


class SlurmSection(Section):
    """Where Slurm is. Everything is asked by its own commands."""

    conf: Path | None = Field(
        None, description="Slurm's slurm.conf; without it the commands find it themselves"
    )
    commands: Folder = Field("/usr/bin", description="the folder of scontrol, squeue, sinfo and sbatch")
    core_cpus: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="CPUs of a core: reservations that name sizes get cores of their nodes; without it "
        "they get whole nodes",
    )
    cpu_memory_mib: Memory | None = Field(
        None,
        alias="cpu_memory",
        description="with core_cpus: the MaxMemPerCPU of slurm.conf, so that cores hold memory for "
        "reservations, too; without it those that name memory get whole nodes",
    )
    expected_start: bool = Field(
        True,
        description="whether squeue shows when a held job is expected to start; its user cannot hold the "
        "job as well then",
    )


class GridEngineSection(Section):
    """Where Grid Engine is, and what its objects are called. Everything is asked by its own commands."""

    root: Path = Field("/var/lib/gridengine", description="SGE_ROOT")
    cell: ObjectName = Field("default", description="SGE_CELL")
    commands: Folder = Field("/usr/bin", description="the folder of qstat, qsub, qalter and qrsub")
    account: Account = Field(
        "outrider",
        description="the account with which the service asks Grid Engine, and which owns the reservations",
    )
    work_queue: ObjectName = Field("all.q", description="the queue of ordinary jobs")
    reservation_queue: ObjectName = Field("outrider.q", description="the queue of reservations")
    parts_queue: ObjectName | None = Field(
        None,
        description="the queue of reservations of parts of nodes; without it all get whole nodes",
    )
    slot_memory_mib: Memory | None = Field(
        None,
        alias="slot_memory",
        description="with parts_queue: the h_vmem of the queues, so that slots hold memory for "
        "reservations, too; without it those that name memory get whole nodes",
    )
    environments: Environments = Field(
        (),
        description="parallel environments by the slots that they give each node, such as `whole=16 half=8`",
        json_schema_extra=given(""),
    )
    checkpoint: ObjectName | None = Field(
        None, description="the checkpoint object of jobs that may be suspended; without it no job is"
    )
    drmaa: Path | None = Field(
        None,
        description="the DRMAA library, which submits and ends jobs faster; without it, and while it has "
        "no session, the commands do that",
    )
    duration_offset_s: Duration = Field(
        60,
        alias="duration_offset",
        description="DURATION_OFFSET of the scheduler's params",
        json_schema_extra=given("60s"),
    )

    @model_validator(mode="after")
    def _has_two_queues(self) -> Self:
        if self.work_queue == self.reservation_queue:
            contradiction(
                "is the work queue, too: reservations need a queue of their own", "reservation_queue"
            )
        if self.parts_queue in (self.work_queue, self.reservation_queue):
            contradiction("has other jobs, too: parts of nodes need a queue of their own", "parts_queue")
        if self.slot_memory_mib is not None and self.parts_queue is None:
            contradiction("keeps nothing without a queue for parts of nodes: set parts_queue", "slot_memory")
        return self


class BackendSection(Section):
    """The batch system, and where the nodes are."""

    kind: Literal["embedded", "twin", "slurm", "gridengine"] = Field(
        description="embedded: pools of its own on this machine, jobs are its processes; "
        "twin: the same pools, but jobs only in memory, for trying things out; "
        "slurm, gridengine: an installed one and its nodes"
    )
    nodes: Hosts | None = Field(
        None,
        description="embedded, twin: the nodes' names (without it `n[1-4]`); otherwise the nodes that "
        "have Outrider (without it all)",
    )
    cpus: int = Field(1, ge=1, le=65_536, description="embedded, twin: processors of each node")
    memory_mib: Memory = Field(
        1024,
        alias="memory",
        description="embedded, twin: memory of each node",
        json_schema_extra=given("1GiB"),
    )
    pool_bytes: Size = Field(
        10 * 2**30,
        alias="pool",
        description="embedded, twin: size of each node's pool",
        json_schema_extra=given("10GiB"),
    )
    user_percent: int = Field(
        25,
        ge=1,
        le=100,
        description="embedded, twin: what one user may hold of a pool beside reservations, in percent",
    )
    users_percent: int = Field(
        50, ge=1, le=100, description="embedded, twin: the same for all users together"
    )
    rate_bytes_per_s: Size | None = Field(
        None,
        alias="rate",
        description="embedded, twin: bytes a second that each node takes in; without it there is no limit",
    )
    folder: Path | None = Field(
        None,
        description="embedded, twin: where pools and jobs are; without it, embedded in the state folder",
    )
    boot: Path = Field(
        "/etc/outrider/boot",
        description="embedded: where the kernels are that jobs in virtual machines may name",
    )
    jobs_on_a_processor: int = Field(
        1, ge=1, le=100, description="embedded: how many jobs may have the same processor of a node"
    )
    slurm: SlurmSection = Field(default_factory=all_defaults(SlurmSection), description="where Slurm is")
    gridengine: GridEngineSection = Field(
        default_factory=all_defaults(GridEngineSection), description="where Grid Engine is"
    )
    control_port: Port = Field(CONTROL_PORT, description="clusters: where the nodes' daemons are asked")
    relay_port: Port = Field(RELAY_PORT, description="clusters: where nodes pass images on to one another")
    key: Path = Field(
        "/etc/outrider/site.key",
        description="clusters: the file of the key that the head and all nodes share",
    )

    @model_validator(mode="after")
    def _shares_what_it_has(self) -> Self:
        if self.kind != "embedded" and self.jobs_on_a_processor > 1:
            words = f"is for the embedded backend: how jobs share processors with {self.kind} is said there"
            contradiction(words, "jobs_on_a_processor")
        return self

    @property
    def virtual_nodes(self) -> tuple[str, ...]:
        return VIRTUAL_NODES if self.nodes is None else self.nodes

    @property
    def abilities(self) -> dict[str, Any]:
        """What the desk is told of the batch system: fields of `Settings` other than their defaults."""
        if self.kind == "gridengine":
            # An advance reservation of Grid Engine's cannot be changed.
            found = {"environments": self.gridengine.environments, "moves_starts": False}
            if self.gridengine.parts_queue is None:
                return found
            sizes = tuple(slots for slots, _ in self.gridengine.environments)
            return {
                **found,
                "parts": ("cpus",),
                "has_fixed_parts": True,
                "cpu_numbers": sizes,
                "memory_of_cpu_mib": self.gridengine.slot_memory_mib,
            }
        slurm = self.slurm
        if self.kind != "slurm" or slurm.core_cpus is None:
            return {}
        return {
            "parts": ("cpus",),
            "has_fixed_parts": True,
            "cpus_at_once": slurm.core_cpus,
            "memory_of_cpu_mib": slurm.cpu_memory_mib,
        }

    @property
    def capacity(self) -> Resources:
        return Resources.of(cpus=self.cpus, memory_mib=self.memory_mib)
