"""What is asked for, in the words of the API: a workspace's text and what options change in it.

The text is sent as it is and read by the service; so is each option. Nothing is understood twice.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from outrider_client.errors import InputError
from outrider_client.transport import Json, printable_line

MOST_BYTES = 256 * 1024
"""Of a workspace's text: no more is read by the service."""
MOST_FILE_NAME = 255
MOST_SCRIPT_HEAD = 65536
LINE = "#OUTRIDER"
RUNS_IN_MACHINE = re.compile(r"run\s*:")
MOST_NAME = 63
BY_OPTIONS = "(options)"
"""What errors call a workspace that was made of options."""
OPTIONS = (
    "nodes", "instances_per_node", "cpus", "memory", "gpus", "duration", "start", "finish_by",
    "least_piece", "open_from", "open_until", "ready_within", "when_file", "when_job", "when_time",
    "when_call", "when_source", "until_event", "preemptible", "options",
)  # fmt: skip
"""Keys of a deployment that can be given beside the workspace."""


@dataclass(frozen=True)
class Image:
    """An image without a workspace's file: an address, a path, or a name in the site's catalogue."""

    uri: str
    digest: str = ""
    size: int | str = ""
    is_private: bool = False
    name: str = ""
    """What the workspace is called; after the image if it is empty."""

    def document(self) -> str:
        """A workspace with this image and nothing else. JSON is YAML."""
        image: dict[str, Json] = {"uri": uri_of(self.uri)}
        if self.digest:
            image["digest"] = self.digest
        if self.size:
            image["size"] = int(self.size) if _is_number(self.size) else self.size
        if self.is_private:
            image["private"] = True
        name = self.name or name_from(self.uri)
        return json.dumps({"version": 1, "metadata": {"name": name, "image": image}, "deployment": {}})


@dataclass(frozen=True)
class WorkspaceText:
    """A workspace as somebody has written it; `file` is only told in errors."""

    text: str
    file: str = BY_OPTIONS


@dataclass(frozen=True)
class Wish:
    """A reservation that is wanted, or asked about. Of the options None takes a key out of the text."""

    workspace: WorkspaceText
    options: Mapping[str, str | None] = field(default_factory=dict)
    zone: str = ""
    account: str = ""

    def body(self) -> dict[str, Json]:
        return {
            "workspace": self.workspace.text,
            "file": self.workspace.file,
            "options": {**self.options},
            "zone": self.zone,
            "account": self.account,
        }


@dataclass(frozen=True)
class Job:
    """A job to be handed to the batch system: a program with its arguments, where and on what it runs."""

    argv: Sequence[str]
    nodes: int | None = None
    duration: str = ""
    account: str = ""
    reservation: str = ""
    workspace: WorkspaceText | None = None
    zone: str = ""
    folder: str = ""
    """Where it begins; empty: in its user's home, or here if it runs in a virtual machine."""

    def body(self) -> dict[str, Json]:
        if self.workspace is not None and self.reservation:
            raise InputError(
                "--workspace and --reservation: a reservation has its image; give one of the two"
            )
        argv = [program(self.argv[0]), *self.argv[1:]]
        body: dict[str, Json] = {"argv": [*argv]}
        lines = lines_of(argv[0])
        if lines and self.workspace is None:
            raise InputError(
                f"{argv[0]} says {lines[0]!r} of itself, which is read beside --workspace alone: give one, "
                "or hand it over with sbatch or qsub"
            )
        if lines:
            body["lines"] = [*lines]
        folder = self.folder or (os.getcwd() if any(map(RUNS_IN_MACHINE.match, lines)) else "")
        if folder:
            body["folder"] = os.path.abspath(folder)
        if self.nodes is not None:
            body["nodes"] = self.nodes
        for key in ("reservation", "duration", "account"):
            if value := getattr(self, key):
                body[key] = value
        if self.workspace is not None:
            body["workspace"] = self.workspace.text
            body["file"] = self.workspace.file
            body["zone"] = self.zone
        return body


def options_of(**given: str | int | None) -> dict[str, str | None]:
    """What was given of a deployment, as texts. Raises InputError for a key that is none."""
    unknown = [key for key in given if key not in OPTIONS]
    if unknown:
        raise InputError(f"{unknown[0]} is not a key of a deployment: use {', '.join(OPTIONS)}")
    return {key: str(value) for key, value in given.items() if value is not None}


def _is_number(text: int | str) -> bool:
    return isinstance(text, int) or (text.isascii() and text.isdigit() and len(text) < 19)


def uri_of(image: str) -> str:
    """An image's address; a path, which begins with a slash or a dot, is this machine's file."""
    return Path(image).absolute().as_uri() if image.startswith(("/", "./", "../")) else image


def name_from(uri: str) -> str:
    """A workspace's name after its image: the last part of its address without an ending."""
    last = re.split(r"[?#]|@sha256:", uri)[0].rstrip("/").rpartition("/")[2]
    stem = last.partition(".")[0] or last
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:MOST_NAME]
    return plain or "workspace"


def program(script: str) -> str:
    """A script is named as seen from here; the job may be started elsewhere."""
    if "/" not in script and not os.path.exists(script):
        return script
    if os.path.isfile(script) and not os.access(script, os.X_OK):
        raise InputError(f"{script} is started as a program and is not executable: chmod +x {script}")
    return os.path.abspath(script)


def lines_of(script: str) -> list[str]:
    """What a script says of itself, in lines with #OUTRIDER before its first command."""
    found: list[str] = []
    try:
        with open(script, "rb") as file:
            head = file.read(MOST_SCRIPT_HEAD)
    except OSError:
        return []
    if not head.startswith(b"#!"):
        return []
    for line in head.decode(errors="replace").splitlines():
        if line.strip() and not line.startswith("#"):
            break
        if line.startswith(LINE):
            found.append(line[len(LINE) :].strip())
    return [each for each in found if each]


def shown_file(path: str) -> str:
    return "(stdin)" if path == "-" else path


def sent_file(path: str) -> str:
    """A file's name as far as the service takes it; it is only told in errors."""
    return printable_line(shown_file(path)[-MOST_FILE_NAME:])


def read_text(path: str) -> str:
    """A file's text, of which no more is read than the service takes."""
    try:
        if path == "-":
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with open(path, "rb") as file:
                content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}); check its name, and who may read it"
        ) from error
    if len(content) > MOST_BYTES:
        raise InputError(
            f"{shown_file(path)}: more than {MOST_BYTES} bytes: that is not a workspace; check its name"
        )
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{shown_file(path)}:{line}:1: is not UTF-8: save it in that encoding") from error


def text_of_file(path: str) -> WorkspaceText:
    """A workspace's file, or what stands on stdin for `-`."""
    return WorkspaceText(read_text(path), sent_file(path))
