"""What an OCI runtime reads beside the files of an image: the configuration of its bundle.

It is the same for whoever uses the image: who runs it, and what, the node adds (`cachemgr bundle`).
"""

from __future__ import annotations

import json

from outrider.service.images.containers.settings import ImageSettings
from outrider.service.images.containers.tree import Tree

VERSION = "1.0.2"
ROOT, CONFIGURATION = "rootfs", "config.json"
MOUNTS = (
    ("/proc", "proc", "proc", ()),
    ("/dev", "tmpfs", "tmpfs", ("nosuid", "strictatime", "mode=755", "size=65536k")),
    ("/dev/pts", "devpts", "devpts", ("nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620")),
    # Tasks of one job on a node talk through it.
    ("/dev/shm", "none", "/dev/shm", ("rbind", "nosuid", "nodev")),
    ("/sys", "none", "/sys", ("rbind", "nosuid", "noexec", "nodev", "ro")),
    # Slurm puts the job's script there, below a folder that the runtime makes.
    ("/tmp", "tmpfs", "tmpfs", ("nosuid", "nodev", "mode=1777")),
)


def enclose(tree: Tree, settings: ImageSettings) -> None:
    """Let everything so far be the bundle's root file system, and put the configuration beside it."""
    tree.enclose(ROOT)
    tree.add(CONFIGURATION, json.dumps(configuration(settings), indent=1, sort_keys=True).encode())


def configuration(settings: ImageSettings) -> dict[str, object]:
    """The network is the node's, as for any other task of a job."""
    words = [*settings.entrypoint, *settings.command] or ["/bin/sh"]
    return {
        "ociVersion": VERSION,
        "process": {
            "terminal": False,
            "user": {"uid": 0, "gid": 0},
            "args": words,
            "env": [f"{name}={value}" for name, value in settings.variables],
            "cwd": settings.folder if settings.folder.startswith("/") else "/",
            "noNewPrivileges": True,
        },
        "root": {"path": ROOT, "readonly": False},
        "mounts": [
            {"destination": place, "type": kind, "source": source, "options": list(options)}
            for place, kind, source, options in MOUNTS
        ],
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]},
    }
