"""The verb `bundle`: gives a container of Slurm's own the image of its job, for whoever runs it.

Slurm reads the bundle that `--container` names before a job's image has a path on the node, and cannot know
whose job it will be. So the bundle that is named is an empty one, the same for all; what Slurm has written
for the runtime gets the job's image here, right before the runtime reads it.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress

from cachemgr.base.errors import BadRequest, NotInPool, Unsuitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession

JOBS = "/run/outrider/jobs"
CONFIGURATION = "config.json"
ANNOTATION = "outrider.image"
"""What the empty bundle has: others keep the image that they name."""
MOST_BYTES = 8 << 20
HOST_FILES = ("/etc/hosts", "/etc/resolv.conf", "/etc/passwd", "/etc/group")
EMPTY = {
    "ociVersion": "1.0.2",
    "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/sh"], "cwd": "/"},
    "root": {"path": "rootfs"},
    "annotations": {ANNOTATION: "of the job"},
}


def add(commands: VerbParsers) -> None:
    bundle = commands.add(
        "bundle",
        _bundle,
        "put a job's image into the container that Slurm is about to start (RunTimeRun of oci.conf)",
        "bundle %b --job %j --state /tmp/crun-%u && exec crun --root=/tmp/crun-%u run --bundle=%b %j-%s-%t",
        "bundle --empty",
    )
    bundle.add_argument("folder", nargs="?", metavar="FOLDER", help="the bundle that Slurm has written: %%b")
    bundle.add_argument("--job", metavar="NUMBER", help="whose image it is: %%j")
    bundle.add_argument(
        "--state", metavar="FOLDER", help="make this folder, for what the runtime remembers, the user's own"
    )
    bundle.add_argument(
        "--empty", action="store_true", help="print config.json of the empty bundle, which --container names"
    )


def _bundle(session: VerbSession, arguments: argparse.Namespace) -> None:
    if arguments.empty:
        session.show(EMPTY, json.dumps(EMPTY, indent=1))
        return
    if arguments.folder is None or not str(arguments.job or "").isdecimal():
        raise BadRequest("say which bundle and whose it is: bundle %b --job %j, as oci.conf writes it")
    if arguments.state is not None:
        own(arguments.state)
    path = os.path.join(arguments.folder, CONFIGURATION)
    given = _read(path)
    found = given
    if ANNOTATION in _part(given, "annotations"):
        image = image_of(arguments.job)
        found = with_image(given, _read(os.path.join(image, CONFIGURATION)), image)
    for_user(found, os.geteuid(), os.getegid())
    try:
        beside = f"{path}.new"
        with open(beside, "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(found, file)
        os.replace(beside, path)
    except OSError as error:
        raise BadRequest(f"{path}: {error.strerror}: the job's user has to own Slurm's bundle") from error
    session.show({"root": found["root"]["path"]}, "")


def own(folder: str) -> None:
    """A folder of nobody else's: whoever writes there says which processes the runtime ends."""
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise BadRequest(
            f"{folder} is not this user's alone: remove it, and tell the administrators whose it is"
        )


def image_of(job: str, jobs: str = JOBS) -> str:
    """Where the job's image is, as the task prolog tells it."""
    try:
        with open(f"{jobs}/{job}", encoding="utf-8", errors="surrogateescape") as file:
            image = file.readline().rstrip("\n")
    except OSError:
        image = ""
    if not image:
        raise NotInPool(f"job {job} has no image on this node: write #OUTRIDER image and format: bundle")
    if not os.path.isfile(os.path.join(image, CONFIGURATION)):
        raise Unsuitable(
            f"the image of job {job}, {image}, is not an OCI bundle: write #OUTRIDER format: bundle; where "
            "it is a file, the node does not mount squashfs images: ask the administrators for mount_squashfs"
        )
    return image


def with_image(given: dict[str, Any], own: dict[str, Any], image: str) -> dict[str, Any]:
    """The image's own configuration, with what Slurm starts in it, and how."""
    task = _part(given, "process")
    process = {**_part(own, "process"), "args": task.get("args"), "terminal": task.get("terminal", False)}
    # As Slurm does it for a bundle that is named: what the image says comes before the job's environment.
    said = {each.partition("=")[0]: each for each in [*task.get("env", []), *process.get("env", [])]}
    process["env"] = list(said.values())
    files = [
        {"destination": path, "type": "none", "source": path, "options": ["rbind"]}
        for path in HOST_FILES
        if os.path.isfile(path)
    ]
    return {
        **own,
        "process": process,
        "root": {**_part(own, "root"), "path": os.path.join(image, _part(own, "root").get("path", "rootfs"))},
        "mounts": [*own.get("mounts", []), *files, *given.get("mounts", [])],
    }


def for_user(found: dict[str, Any], uid: int, gid: int) -> None:
    """Runtimes of ordinary users need to be told whose root the container's is."""
    linux = found.setdefault("linux", {})
    spaces = linux.setdefault("namespaces", [])
    if uid == 0 or any(each.get("type") == "user" for each in spaces):
        return
    spaces.append({"type": "user"})
    linux["uidMappings"] = [{"containerID": 0, "hostID": uid, "size": 1}]
    linux["gidMappings"] = [{"containerID": 0, "hostID": gid, "size": 1}]


def _read(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(MOST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise BadRequest(f"{path} cannot be read as the configuration of a bundle: {error}") from error
    if not isinstance(found, dict):
        raise BadRequest(f"{path} is not the configuration of a bundle")
    return found


def _part(found: dict[str, Any], name: str) -> dict[str, Any]:
    part = found.get(name)
    return part if isinstance(part, dict) else {}
