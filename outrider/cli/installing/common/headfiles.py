"""What of Outrider's own goes to every head node, whichever batch system it has: as requests to `placing`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from cachemgr.protocol import CONTROL_PORT, RELAY_PORT
from outrider.cli.installing.common.placing import Json
from outrider.cli.installing.common.shipped import package_file

MANIFEST = "/usr/lib/outrider/manifest-head.json"
KEY = "/etc/outrider/site.key"
CONFIG = "/etc/outrider/outriderd.yaml"
UNIT = "/etc/systemd/system/outriderd.service"
UNIT_PART = "unit"
DEPLOYED = "/usr/lib/outrider/deployed.json"
KEY_BYTES = 32


def has_systemd() -> bool:
    return os.path.isdir("/run/systemd/system")


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


def as_folders(paths: Iterable[str]) -> tuple[Json, ...]:
    """Folders that all may look into."""
    return tuple({"path": path, "mode": 0o755} for path in paths)


def head_folders(paths: Iterable[str], user: str) -> list[Json]:
    """These, and the one of the store, which is the service's."""
    owner = "" if user == "root" else user
    return [*as_folders(paths), {"path": "/var/lib/outrider", "mode": 0o711, "owner": owner}]


def service_files(configuration: str, user: str, key: bytes | None, parts: frozenset[str]) -> list[Json]:
    """Key, configuration and unit of the service; a key that is None is left alone."""
    owner = "" if user == "root" else user
    found = [] if key is None else [file(KEY, key, mode=0o600, owner=owner, is_config=True)]
    found.append(file(CONFIG, configuration.encode(), owner=owner, is_config=True))
    if has_systemd() and UNIT_PART in parts:
        found.append(file(UNIT, unit(user)))
    return found


def configuration(site: str, kind: str, backend: Iterable[str], more: Sequence[str] = ()) -> str:
    """outriderd.yaml: few keys, all others have defaults. `backend` are the lines of this batch system."""
    return "\n".join(
        [
            f"# Written by outrider init {kind}. `outriderd --example` prints every key; check changes with",
            "# outriderd --check, then restart the service.",
            "version: 1",
            f"site: {site}",
            "# What all transfers together may take of the network, in bytes a second.",
            "link: {rate: 125MB}",
            "# How often the queue is looked at for jobs that name an image.",
            "timings: {look: 10s}",
            "backend:",
            f"  kind: {kind}",
            f"  {kind}:",
            *(f"    {each}" for each in backend),
            f"  key: {KEY}",
            f"  control_port: {CONTROL_PORT}",
            f"  relay_port: {RELAY_PORT}",
            *more,
            "",
        ]
    )


def site_key() -> bytes | None:
    """The site's key, if it is ours, or a new one; nothing if somebody else has made it, or may see it."""
    if not os.path.exists(KEY):
        return f"{secrets.token_hex(KEY_BYTES)}\n".encode()
    if not is_ours(KEY) or not os.access(KEY, os.R_OK):
        return None
    return Path(KEY).read_bytes()


def is_ours(path: str) -> bool:
    """Whether an earlier installation has put it there."""
    try:
        return path in json.loads(Path(MANIFEST).read_bytes())["files"]
    except OSError:
        return False


def unit(user: str) -> bytes:
    """The unit with the program of this very installation, and its user."""
    text = package_file("outrider.service.daemon", "units/outriderd.service").decode()
    beside = os.path.join(os.path.dirname(sys.executable), "outriderd")
    program = beside if os.access(beside, os.X_OK) else f"{sys.executable} -m outrider.service"
    text = re.sub(r"(?m)^ExecStart=\S+", f"ExecStart={program}", text)
    if user != "root":
        text = text.replace("\n[Service]\n", f"\n[Service]\nUser={user}\n")
    return text.encode()


def service_user() -> str:
    """As whom outriderd runs here."""
    found = re.search(r"(?m)^User=(\S+)", _text(UNIT))
    return found[1] if found else "root"


def installed_for() -> str:
    """Which batch system this head's service is for; empty if nobody has said."""
    return configured("kind")


def configured(key: str, default: str = "") -> str:
    """What the service's configuration says of a key of its batch system."""
    found = re.search(rf"(?m)^ +{key}: *(\S+)", _text(CONFIG))
    return found[1] if found else default


def deployed(kind: str = "nodes") -> tuple[str, ...]:
    """The nodes to which `outrider nodes deploy` has brought everything; as `wrapped`, those that have
    what slurm.conf names, too, which an earlier version did not bring to all sites."""
    try:
        return tuple(json.loads(Path(DEPLOYED).read_bytes()).get(kind, ()))
    except OSError:
        return ()


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
