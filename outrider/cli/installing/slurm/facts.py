"""What is found out about a head node before anything is planned: which Slurm, and where."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from outrider.cli.errors import InputError
from outrider.cli.installing.common.running import ProgramRunner
from outrider.cli.installing.slurm.siteconf import SiteConf, read_site

USUAL = (
    "/etc/slurm/slurm.conf",
    "/etc/slurm-llnl/slurm.conf",
    "/usr/local/etc/slurm.conf",
    "/opt/slurm/etc/slurm.conf",
)
SHARED_TYPES = frozenset(
    ("nfs", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "fuse.glusterfs", "afs", "cifs", "9p", "panfs")
)
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?")
_SHOWN = re.compile(r"(?m)^([^\s\[]+)(?:\[\d+\])?\s*= ?(.*)$")


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmFacts:
    """What was found."""

    site: SiteConf
    version: tuple[int, ...]
    """Empty if Slurm's commands are not here."""
    version_text: str
    running: Mapping[str, str]
    """What the controller says of its configuration; empty if it does not answer."""
    silence: str
    """Why it does not."""
    has_systemd: bool
    shared_as: str
    """The kind of network file system that slurm.conf is on, if it is on one."""

    @property
    def slurm_user(self) -> str:
        return self.site.value("SlurmUser", "root")

    @property
    def is_configless(self) -> bool:
        return "enable_configless" in self.site.value("SlurmctldParameters").lower()


def gather(conf: str | None, environment: Mapping[str, str], runner: ProgramRunner) -> SlurmFacts:
    """Look at everything. Raises InputError if there is no slurm.conf to be read."""
    path = conf_path(conf, environment)
    said = runner.run(["scontrol", "show", "config"])
    version = runner.run(["scontrol", "--version"]).output.strip()
    return SlurmFacts(
        site=read_site(path, read_bytes),
        version=version_of(version),
        version_text=version.rpartition(" ")[2] or "unknown",
        running=shown(said.output) if said.is_good else {},
        silence="" if said.is_good else said.reason,
        has_systemd=os.path.isdir("/run/systemd/system"),
        shared_as=file_system(os.path.realpath(path), Path("/proc/self/mounts").read_text()),
    )


def conf_path(given: str | None, environment: Mapping[str, str]) -> str:
    """Which slurm.conf is meant."""
    named = given or environment.get("SLURM_CONF")
    if named:
        return os.path.abspath(named)
    for path in USUAL:
        if os.path.exists(path):
            return path
    raise InputError(f"there is no slurm.conf in {', '.join(USUAL)}: name it with --conf")


def read_bytes(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def version_of(text: str) -> tuple[int, ...]:
    """`slurm-wlm 22.05.8` as (22, 5, 8)."""
    found = _VERSION.search(text)
    return tuple(int(each) for each in found.groups(default="0")) if found else ()


def shown(text: str) -> dict[str, str]:
    """What `scontrol show config` prints, by key in small letters; what is not set is empty.

    Since 24.05 there is a line for each of several programs, as `Prolog[0]`: here they are one list.
    """
    found: dict[str, str] = {}
    for key, shown_value in _SHOWN.findall(text):
        value = "" if shown_value.strip() in ("(null)", "N/A") else shown_value.strip()
        known = found.get(key.lower())
        found[key.lower()] = f"{known},{value}" if known else value
    return found


def file_system(path: str, mounts: str) -> str:
    """The kind of a network file system that a path is on; empty if it is on a local one."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split()
        if (
            len(fields) >= 3
            and (path + "/").startswith(fields[1].rstrip("/") + "/")
            and len(fields[1]) >= len(best)
        ):
            best, kind = fields[1], fields[2]
    return kind if kind in SHARED_TYPES else ""
