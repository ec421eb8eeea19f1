"""The part of the configuration that says which batch system it is, and where the nodes are."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from outrider.core.model import Resources
from outrider.metadata.errors import TextError
from outrider.metadata.fields import Hosts, Memory, Size
from outrider.metadata.validation import Section, contradiction
from outrider.service.daemon.configtypes import Path, all_defaults, given

LATER = ("gridengine",)
VIRTUAL_NODES = ("n1", "n2", "n3", "n4")
CONTROL_PORT = 7011
RELAY_PORT = 7010
LEAST_PORT = 1


def _folder(value: str) -> str:
    if value == "/":
        raise TextError("is the root of all folders: write the one that has the commands")
    return value


Port = Annotated[int, Field(ge=LEAST_PORT, le=65_535)]
Folder = Annotated[Path, AfterValidator(_folder)]


class SlurmSection(Section):
    """Where Slurm is. Everything is asked by its own commands."""

    conf: Path | None = Field(
        None, description="its slurm.conf; without it the commands find theirs as they always do"
    )
    commands: Folder = Field("/usr/bin", description="the folder of scontrol, squeue, sinfo and sbatch")


class BackendSection(Section):
    """The batch system, and where the nodes are."""

    kind: Literal["embedded", "twin", "slurm", "gridengine"] = Field(
        description="embedded: pools of its own on this machine, jobs are its processes; "
        "twin: the same pools, but jobs only in memory, for trying things out; "
        "slurm: an installed Slurm and its nodes"
    )
    nodes: Hosts | None = Field(
        None,
        description="embedded, twin: names (without it `n[1-4]`); else those that have Outrider (without "
        "it all)",
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
    rate_bytes_per_s: Size | None = Field(
        None,
        alias="rate",
        description="embedded, twin: bytes a second that each node takes in; without it there is no limit",
    )
    folder: Path | None = Field(
        None,
        description="embedded, twin: where pools and jobs are; without it, embedded in the state folder",
    )
    slurm: SlurmSection = Field(default_factory=all_defaults(SlurmSection), description="where Slurm is")
    control_port: Port = Field(CONTROL_PORT, description="slurm: where the nodes' daemons are asked")
    relay_port: Port = Field(RELAY_PORT, description="slurm: where nodes pass images on to one another")
    key: Path = Field(
        "/etc/outrider/site.key", description="slurm: the file of the key that the head and all nodes share"
    )

    @model_validator(mode="after")
    def _is_here(self) -> Self:
        if self.kind in LATER:
            contradiction(
                f"{self.kind} cannot be driven by this version yet: write embedded, or wait for one that can",
                "kind",
            )
        return self

    @property
    def virtual_nodes(self) -> tuple[str, ...]:
        return VIRTUAL_NODES if self.nodes is None else self.nodes

    @property
    def capacity(self) -> Resources:
        return Resources.of(cpus=self.cpus, memory_mib=self.memory_mib)
