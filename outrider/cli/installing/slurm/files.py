"""Outrider's own files for a head and for nodes of Slurm."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from outrider.cli.installing.common import headfiles, nodefiles
from outrider.cli.installing.common.headfiles import file
from outrider.cli.installing.common.nodefiles import NodeKit
from outrider.cli.installing.common.placing import Json
from outrider.cli.installing.common.ports import Ports
from outrider.cli.installing.common.shipped import shipped
from outrider.cli.installing.slurm.hooks import (
    FOLDER,
    HOOKS,
    PROLOG_SLURMCTLD,
    WRAPPERS,
    ComposedHook,
    composed,
)
from outrider.cli.installing.slurm.marking import LUA, is_marked
from outrider.cli.installing.slurm.plan import CLI_PART, MANY_PROGRAMS, SPANK_FILE
from outrider.cli.installing.slurm.siteconf import SiteConf
from outrider.cli.installing.slurm.slurmconf import settings
from outrider.metadata.errors import TextError
from outrider.metadata.notation.hostlists import expand

SHIPPED = {
    "prolog": "prolog/slurm-prolog",
    "epilog": "epilog/slurm-epilog",
    "task-prolog": "prolog/slurm-task-prolog",
    "prolog-slurmctld": "prolog/slurm-prolog-slurmctld",
    "job_submit.lua": "plugins/slurm/job_submit.lua",
    "cli_filter.lua": "plugins/slurm/cli_filter.lua",
    "outrider_metadata.lua": "plugins/slurm/outrider_metadata.lua",
    "outrider_options.lua": "plugins/slurm/outrider_options.lua",
    "outrider_roles.lua": "plugins/slurm/outrider_roles.lua",
    "outrider_images.lua": "plugins/slurm/outrider_images.lua",
    "outrider_channels.lua": "plugins/slurm/outrider_channels.lua",
    "outrider_machines.lua": "plugins/slurm/outrider_machines.lua",
    "outrider_submit.lua": "plugins/slurm/outrider_submit.lua",
    "outrider_cli.lua": "plugins/slurm/outrider_cli.lua",
    "outrider_file.lua": "plugins/slurm/outrider_file.lua",
}
"""What has which name in FOLDER, and where it is in Outrider."""
ON_HEAD = (
    "prolog-slurmctld", "job_submit.lua", "outrider_submit.lua", "cli_filter.lua", "outrider_cli.lua",
    "outrider_file.lua", "outrider_metadata.lua", "outrider_options.lua", "outrider_roles.lua",
    "outrider_images.lua", "outrider_channels.lua", "outrider_machines.lua",
)  # fmt: skip
ON_NODES = (
    "prolog", "epilog", "task-prolog", "cli_filter.lua", "outrider_cli.lua", "outrider_file.lua",
    "outrider_metadata.lua", "outrider_options.lua", "outrider_roles.lua", "outrider_images.lua",
    "outrider_channels.lua",
)  # fmt: skip
HEAD_FOLDERS = (FOLDER, "/etc/outrider", WRAPPERS, "/run/outrider")
NODE_FOLDERS = (FOLDER, WRAPPERS, "/run/outrider")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmHead:
    """What is particular to this head node."""

    site: SiteConf
    user: str
    """As whom outriderd runs."""
    slurm_user: str
    spank: bytes | None = None
    key: bytes | None
    """What the key's file is to hold; None to leave it alone."""
    parts: frozenset[str]


def head_files(head: SlurmHead, hooks: Sequence[ComposedHook]) -> list[Json]:
    """Everything, with its content."""
    found = _shipped(ON_HEAD) + hook_files(each for each in hooks if each.hook.is_on_head)
    if head.spank is not None:
        found.append(file(SPANK_FILE, head.spank))
    return found + headfiles.service_files(configuration(head), head.user, head.key, head.parts)


def kit(site: SiteConf, version: tuple[int, ...], ports: Ports, key: bytes) -> NodeKit:
    """What each node gets. The same sources and the same slurm.conf give the same bytes."""
    hooks = [
        composed(hook, site, can_be_several=version >= MANY_PROGRAMS) for hook in HOOKS if not hook.is_on_head
    ]
    files = _shipped(ON_NODES) + hook_files(hooks)
    if os.path.exists(SPANK_FILE):
        files.append(file(SPANK_FILE, Path(SPANK_FILE).read_bytes()))
    return nodefiles.kit(files, NODE_FOLDERS, ports, key)


def _shipped(names: Iterable[str]) -> list[Json]:
    return [
        file(f"{FOLDER}/{name}", shipped(SHIPPED[name]), mode=0o644 if name.endswith(".lua") else 0o755)
        for name in names
    ]


def hook_files(hooks: Iterable[ComposedHook]) -> list[Json]:
    """The programs that call ours, which composed hooks need where they run."""
    return [
        file(each.link or each.wrapper_path, each.wrapper.encode(), mode=0o755)
        for each in hooks
        if each.wrapper
    ]


def in_force(site: SiteConf) -> frozenset[str]:
    """The parts, of those that are left out unless they are wanted, that an earlier run has put in force."""
    found = set()
    hook = composed(PROLOG_SLURMCTLD, site, can_be_several=False)
    values = {each.value for file in site.files for each in settings(file.present) if _is_of(hook, each.key)}
    if values & {hook.hook.ours, hook.wrapper_path} or (hook.link and headfiles.is_ours(hook.link)):
        found.add(hook.hook.name)
    with suppress(OSError):
        if is_marked(Path(site.folder, "cli_filter.lua").read_text(errors="replace"), LUA):
            found.add(CLI_PART)
    return frozenset(found)


def _is_of(hook: ComposedHook, key: str) -> bool:
    return key.lower() == hook.hook.key.lower()


def configuration(head: SlurmHead) -> str:
    """outriderd.yaml for this site."""
    site = _NOT_IN_NAMES.sub("-", head.site.value("ClusterName", "cluster").lower()).strip("-") or "cluster"
    more = [
        "# The hook of the controller asks as this user.",
        f"administrators: {{users: [{head.slurm_user}]}}",
    ]
    return headfiles.configuration(
        site, "slurm", [f"conf: {head.site.main.path}"], more if head.slurm_user != "root" else []
    )


def nodes_of(site: SiteConf) -> tuple[str, ...]:
    """Every node that slurm.conf names. What cannot be read as a set is left out."""
    found: list[str] = []
    for text in site.node_names():
        try:
            found += expand(text)
        except TextError:
            continue
    return tuple(dict.fromkeys(found))
