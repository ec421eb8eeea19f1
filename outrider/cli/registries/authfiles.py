"""Names and passwords where podman, skopeo, docker and curl keep them: auth.json, config.json and netrc."""

from __future__ import annotations

import base64
import binascii
import json
import netrc
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from outrider.cli.errors import InputError

MOST_BYTES = 1 << 20
HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io")


def files(environment: Mapping[str, str]) -> list[Path]:
    """Where they are looked for, in podman's order and then docker's."""
    home = Path(environment.get("HOME") or Path.home())
    found = []
    if environment.get("REGISTRY_AUTH_FILE"):
        found.append(Path(environment["REGISTRY_AUTH_FILE"]))
    if environment.get("XDG_RUNTIME_DIR"):
        found.append(Path(environment["XDG_RUNTIME_DIR"]) / "containers/auth.json")
    config = Path(environment.get("XDG_CONFIG_HOME") or home / ".config")
    docker = Path(environment.get("DOCKER_CONFIG") or home / ".docker")
    return [*found, config / "containers/auth.json", docker / "config.json"]


def find(host: str, environment: Mapping[str, str]) -> tuple[str, str, Path] | None:
    """The name and the password for a registry, and the file that has them; None if there is none."""
    for path in files(environment):
        found = _in_file(path, host)
        if found is not None:
            return (*found, path)
    path = Path(environment.get("NETRC") or Path(environment.get("HOME") or Path.home()) / ".netrc")
    return _in_netrc(path, host)


def _in_file(path: Path, host: str) -> tuple[str, str] | None:
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(MOST_BYTES))
    except OSError:
        return None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON: correct it, or use --username") from error
    rows = found.get("auths") if isinstance(found, dict) else None
    for name, row in rows.items() if isinstance(rows, dict) else ():
        if not _is_for(str(name), host) or not isinstance(row, dict):
            continue
        if row.get("identitytoken"):
            raise InputError(
                f"{path} has an identity token for {host}, which is not understood: use --username"
            )
        with suppress(binascii.Error, ValueError, TypeError):
            user, colon, password = base64.b64decode(row["auth"], validate=True).decode().partition(":")
            if colon and user and password:
                return user, password
    helpers = found.get("credHelpers") if isinstance(found, dict) else None
    if (isinstance(helpers, dict) and any(_is_for(name, host) for name in helpers)) or (
        isinstance(found, dict)
        and found.get("credsStore")
        and isinstance(rows, dict)
        and any(_is_for(str(name), host) for name in rows)
    ):
        raise InputError(
            f"{path} leaves the password of {host} to a program: use --username, and its password or token"
        )
    return None


def _in_netrc(path: Path, host: str) -> tuple[str, str, Path] | None:
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            return None
        found = netrc.netrc(str(path)).hosts.get(host.partition(":")[0])
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return None
    if found is None or not found[0] or not found[2]:
        return None
    return found[0], found[2], path


def _is_for(name: str, host: str) -> bool:
    """Whether a file's entry is for that registry. One for a repository of it is not."""
    bare = name.removeprefix("https://").removeprefix("http://").rstrip("/")
    for ending in ("/v1", "/v2"):
        bare = bare.removesuffix(ending)
    return bare == host or (bare in HUB_NAMES and host in HUB_NAMES)
