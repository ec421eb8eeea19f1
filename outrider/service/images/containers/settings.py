"""What an image says of its programs: its variables, its first command, its folder, as files in the result.

Without them a container would start without PATH. pyxis and enroot read /etc/environment and /etc/rc,
Charliecloud /ch/environment, Apptainer /.singularity.d.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass

from outrider.service.images.containers.faults import ConversionFault
from outrider.service.images.containers.tree import Tree

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
MOST_VARIABLES = 1_000
MOST_TEXT = 128 << 10
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
FOLDERS = ("dev", "proc", "sys", "root", "home", "tmp", "var/tmp", "etc")
"""Where runtimes mount something: they cannot make a folder in a read-only image."""
FILES = ("etc/hosts", "etc/resolv.conf", "etc/passwd", "etc/group")


@dataclass(frozen=True, slots=True)
class ImageSettings:
    """Of an image's configuration what is used. `diffs` are the digests of its layers, unpacked."""

    variables: tuple[tuple[str, str], ...]
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    folder: str
    diffs: tuple[str, ...]
    platform: str


def read_settings(body: bytes) -> ImageSettings:
    """What the configuration of an image says. Raises ConversionFault."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ConversionFault("the image's configuration is not JSON: push it again") from error
    top = found if isinstance(found, dict) else {}
    inner = top.get("config")
    config = inner if isinstance(inner, dict) else {}
    rootfs = top.get("rootfs")
    variables = {}
    for each in _texts(config.get("Env"), "Env"):
        name, equals, value = each.partition("=")
        if equals and NAME.fullmatch(name):
            variables[name] = value
    variables.setdefault("PATH", DEFAULT_PATH)
    folder = config.get("WorkingDir")
    return ImageSettings(
        variables=tuple(sorted(variables.items())),
        entrypoint=_texts(config.get("Entrypoint"), "Entrypoint"),
        command=_texts(config.get("Cmd"), "Cmd"),
        folder=folder if isinstance(folder, str) and len(folder) < 4_096 and "\0" not in folder else "",
        diffs=_texts(rootfs.get("diff_ids") if isinstance(rootfs, dict) else None, "rootfs"),
        platform=f"{top.get('os')}/{top.get('architecture')}"[:80],
    )


def add_settings(tree: Tree, settings: ImageSettings, image_format: str) -> None:
    """Put the files into the tree that runtimes of this format read."""
    for name in FOLDERS:
        tree.add_missing(name, is_folder=True)
    for name in FILES:
        tree.add_missing(name, is_folder=False)
    if image_format == "sif":
        _add_apptainer(tree, settings)
    elif image_format == "squashfs":
        lines = "".join(f"{name}={value}\n" for name, value in settings.variables if "\n" not in value)
        tree.add("etc/environment", lines.encode("utf-8", "surrogateescape"))
        tree.add("ch/environment", lines.encode("utf-8", "surrogateescape"))
        script = f"mkdir -p {shlex.quote(settings.folder)} 2>/dev/null\n" if settings.folder else ""
        script += f"cd {shlex.quote(settings.folder)} && unset OLDPWD || exit 1\n" if settings.folder else ""
        tree.add("etc/rc", f"{script}{_start(settings)}".encode("utf-8", "surrogateescape"), 0o755)


def _add_apptainer(tree: Tree, settings: ImageSettings) -> None:
    lines = ["#!/bin/sh\n"]
    for name, value in settings.variables:
        quoted = shlex.quote(value)
        is_path = name == "PATH"
        lines.append(
            f"export {name}={quoted}\n" if is_path else f'[ -n "${{{name}+x}}" ] || export {name}={quoted}\n'
        )
    tree.add(".singularity.d/env/10-docker2singularity.sh", _encoded("".join(lines)), 0o755)
    tree.add(".singularity.d/runscript", _encoded(f"#!/bin/sh\n{_start(settings)}"), 0o755)
    tree.add(".singularity.d/startscript", _encoded("#!/bin/sh\n"), 0o755)
    tree.add(".singularity.d/labels.json", b"{}\n")
    tree.add_missing(".singularity.d/libs", is_folder=True)
    tree.add_link("singularity", ".singularity.d/runscript")
    tree.add_link("environment", ".singularity.d/env/10-docker2singularity.sh")


def _start(settings: ImageSettings) -> str:
    """What a container does that is told nothing, or only the arguments."""
    entry, command = shlex.join(settings.entrypoint), shlex.join(settings.command)
    with_words = f'exec {entry} "$@"' if entry else 'exec "$@"'
    alone = f"exec {entry} {command}" if entry or command else "exec /bin/sh"
    return f"if [ $# -gt 0 ]; then\n    {with_words}\nfi\n{alone}\n"


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _texts(value: object, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    found = value if isinstance(value, list) else [None]
    texts = [each for each in found if isinstance(each, str) and "\0" not in each]
    if len(texts) != len(found) or len(texts) > MOST_VARIABLES or sum(map(len, texts)) > MOST_TEXT:
        raise ConversionFault(f"the image's configuration has an unusable {name}: push it again")
    return tuple(texts)
