"""What of Outrider's own goes to the head node: folders and files, as requests to `placing`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from outrider.cli.installing.common.marking import LUA, is_marked
from outrider.cli.installing.common.placing import Json
from outrider.cli.installing.common.shipped import SLURM, package_file, shipped
from outrider.cli.installing.slurm.hooks import FOLDER, PROLOG_SLURMCTLD, WRAPPERS, Composed, composed
from outrider.cli.installing.slurm.plan import CLI_PART, SPANK_FILE, UNIT_PART
from outrider.cli.installing.slurm.siteconf import SiteConf
from outrider.cli.installing.slurm.slurmconf import settings
from outrider.metadata.errors import TextError
from outrider.metadata.notation.hostlists import expand

MANIFEST = "/usr/lib/outrider/manifest-head.json"
KEY = "/etc/outrider/site.key"
CONFIG = "/etc/outrider/outriderd.yaml"
UNIT = "/etc/systemd/system/outriderd.service"
DEPLOYED = "/usr/lib/outrider/deployed.json"
ON_HEAD = (
    "prolog-slurmctld", "job_submit.lua", "outrider_submit.lua", "cli_filter.lua", "outrider_cli.lua",
    "outrider_metadata.lua",
)  # fmt: skip
KEY_BYTES = 32
CONTROL_PORT = 7011
RELAY_PORT = 7010
_NOT_IN_NAMES = re.compile(r"[^a-z0-9-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """What is particular to this head node."""

    site: SiteConf
    user: str
    """As whom outriderd runs."""
    slurm_user: str
    has_systemd: bool
    spank: bytes | None
    key: bytes | None
    """What the key's file is to hold; None to leave it alone."""
    parts: frozenset[str]


def folders(head: Head) -> list[Json]:
    owner = "" if head.user == "root" else head.user
    return [
        {"path": FOLDER, "mode": 0o755},
        {"path": "/etc/outrider", "mode": 0o755},
        {"path": WRAPPERS, "mode": 0o755},
        {"path": "/var/lib/outrider", "mode": 0o711, "owner": owner},
        {"path": "/run/outrider", "mode": 0o755},
    ]


def files(head: Head, hooks: Sequence[Composed]) -> list[Json]:
    """Everything, with its content."""
    found = [file(f"{FOLDER}/{name}", shipped(SLURM[name]), mode=_mode(name)) for name in ON_HEAD]
    found += hook_files([each for each in hooks if each.hook.is_on_head])
    owner = "" if head.user == "root" else head.user
    if head.key is not None:
        found.append(file(KEY, head.key, mode=0o600, owner=owner, is_config=True))
    found.append(file(CONFIG, configuration(head).encode(), owner=owner, is_config=True))
    if head.spank is not None:
        found.append(file(SPANK_FILE, head.spank))
    if head.has_systemd and UNIT_PART in head.parts:
        found.append(file(UNIT, unit(head.user)))
    return found


def hook_files(hooks: Sequence[Composed]) -> list[Json]:
    """The programs that call ours, which composed hooks need where they run."""
    return [
        file(each.link or each.wrapper_path, each.wrapper.encode(), mode=0o755)
        for each in hooks
        if each.wrapper
    ]


def file(path: str, content: bytes, **about: object) -> Json:
    return {
        "path": path,
        "content": base64.b64encode(content).decode(),
        "digest": hashlib.sha256(content).hexdigest(),
        **about,
    }


def without_content(files: Sequence[Json]) -> list[Json]:
    """The same, for looking only."""
    return [{key: value for key, value in each.items() if key != "content"} for each in files]


def key() -> bytes | None:
    """The site's key, if it is ours, or a new one; nothing if somebody else has made it, or may see it."""
    if not os.path.exists(KEY):
        return f"{secrets.token_hex(KEY_BYTES)}\n".encode()
    if not _is_ours(KEY) or not os.access(KEY, os.R_OK):
        return None
    return Path(KEY).read_bytes()


def _is_ours(path: str) -> bool:
    """Whether an earlier installation has put it there."""
    try:
        return path in json.loads(Path(MANIFEST).read_bytes())["files"]
    except OSError:
        return False


def service_user() -> str:
    """As whom outriderd runs here."""
    try:
        found = re.search(r"(?m)^User=(\S+)", Path(UNIT).read_text())
    except OSError:
        return "root"
    return found[1] if found else "root"


def deployed(kind: str = "nodes") -> tuple[str, ...]:
    """The nodes to which `outrider nodes deploy` has brought everything; as `wrapped`, those that have
    what slurm.conf names, too, which an earlier version did not bring to all sites."""
    try:
        return tuple(json.loads(Path(DEPLOYED).read_bytes()).get(kind, ()))
    except OSError:
        return ()


def in_force(site: SiteConf) -> frozenset[str]:
    """The parts, of those that are left out unless they are wanted, that an earlier run has put in force."""
    found = set()
    hook = composed(PROLOG_SLURMCTLD, site, can_be_several=False)
    values = {each.value for file in site.files for each in settings(file.present) if _is_of(hook, each.key)}
    if values & {hook.hook.ours, hook.wrapper_path} or (hook.link and _is_ours(hook.link)):
        found.add(hook.hook.name)
    with suppress(OSError):
        if is_marked(Path(site.folder, "cli_filter.lua").read_text(errors="replace"), LUA):
            found.add(CLI_PART)
    return frozenset(found)


def _is_of(hook: Composed, key: str) -> bool:
    return key.lower() == hook.hook.key.lower()


def installed_for() -> str:
    """Which batch system this head's service is for; slurm, if nobody has said."""
    try:
        found = re.search(r"(?m)^ +kind: (\w+)", Path(CONFIG).read_text())
    except OSError:
        return "slurm"
    return found[1] if found else "slurm"


def configuration(head: Head) -> str:
    """outriderd.yaml for this site: few keys, all others have defaults."""
    site = _NOT_IN_NAMES.sub("-", head.site.value("ClusterName", "cluster").lower()).strip("-") or "cluster"
    administrators = [] if head.slurm_user == "root" else [head.slurm_user]
    lines = [
        "# Written by outrider init slurm. Every key is in docs/reference/outriderd.md; check changes with",
        "# outriderd --check, then restart the service.",
        "version: 1",
        f"site: {site}",
        "# What all transfers together may take of the network, in bytes a second.",
        "link: {rate: 125MB}",
        "# How often the queue is looked at for jobs that name an image.",
        "timings: {look: 10s}",
        "backend:",
        "  kind: slurm",
        "  slurm:",
        f"    conf: {head.site.main.path}",
        f"  key: {KEY}",
        f"  control_port: {CONTROL_PORT}",
        f"  relay_port: {RELAY_PORT}",
    ]
    if administrators:
        lines += [
            "# The hook of the controller asks as this user.",
            f"administrators: {{users: [{administrators[0]}]}}",
        ]
    return "\n".join(lines) + "\n"


def unit(user: str) -> bytes:
    """The unit with the program of this very installation, and its user."""
    text = package_file("outrider.service.daemon", "units/outriderd.service").decode()
    beside = os.path.join(os.path.dirname(sys.executable), "outriderd")
    program = beside if os.access(beside, os.X_OK) else f"{sys.executable} -m outrider.service"
    text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={program}", text)
    if user != "root":
        text = text.replace("\n[Service]\n", f"\n[Service]\nUser={user}\n")
    return text.encode()


def nodes_of(site: SiteConf) -> tuple[str, ...]:
    """Every node that slurm.conf names. What cannot be read as a set is left out."""
    found: list[str] = []
    for text in site.node_names():
        try:
            found += expand(text)
        except TextError:
            continue
    return tuple(dict.fromkeys(found))


def _mode(name: str) -> int:
    return 0o644 if name.endswith(".lua") else 0o755
