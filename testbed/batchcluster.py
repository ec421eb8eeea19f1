"""A cluster for a batch system: a head, nodes, and a server of images. The batch system is a subclass's."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypedDict, Unpack

from testbed.cluster import TOOLS, Cluster
from testbed.host_maker import Folder, InitialFile
from testbed.records import TestbedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cachemgr.base.clock import Clock

HEAD, IMAGES = "head", "images"
MOST_NODES = 250
IMAGES_PORT = 8000
IMAGES_FOLDER = "/srv/images"
SERVER = "/usr/lib/testbed/imageserver.py"
BOOT_S = 60
PROGRAMS = (b"#!", b"\x7fELF")


class HostOptions(TypedDict, total=False):
    """What all clusters take; see `Cluster`."""

    name: str | None
    rate_bits_per_s: int | None
    pool_bytes: int | None
    racks: Mapping[str, Sequence[str]] | None
    rack_rate_bits_per_s: int | None
    users: Sequence[str]
    shared: Sequence[Path]
    writable: Sequence[Path]
    clock: Clock | None


class BatchOptions(HostOptions, total=False):
    """The same, and contents by path; see `BatchCluster`."""

    files: Mapping[str, str | bytes] | None


class BatchCluster(Cluster):
    """Hosts `head`, `images` and `n1` to `nK`."""

    _given: Mapping[str, str | bytes]

    def __init__(
        self,
        *,
        nodes: int,
        tree: Path = Path("/"),
        files: Mapping[str, str | bytes] | None = None,
        notes: Mapping[str, str] | None = None,
        **options: Unpack[HostOptions],
    ) -> None:
        """
        `files` are contents by path that every host has before its daemons start; what is a
        program, or begins with #!, can be executed.
        """
        if not 1 <= nodes <= MOST_NODES:
            raise TestbedError(f"{nodes} nodes: there can be 1 to {MOST_NODES}")
        self._given = dict(files or {})
        addresses = {HEAD: "10.77.0.1", IMAGES: "10.77.0.2"}
        super().__init__(
            {**addresses, **{node: f"10.77.1.{place}" for place, node in enumerate(node_names(nodes), 1)}},
            tree=tree,
            notes=notes,
            **options,
        )

    @classmethod
    def attached(cls, name: str, clock: Clock | None = None) -> Self:
        cluster = super().attached(name, clock)
        cluster._given = {}
        return cluster

    @property
    def nodes(self) -> list[str]:
        return [host for host in self.hosts if host not in (HEAD, IMAGES)]

    @property
    def system(self) -> str:
        """The batch system and its version, such as Slurm 22.05.8."""
        raise NotImplementedError

    def node_states(self) -> dict[str, str]:
        """Each node's state in the batch system's own word."""
        raise NotImplementedError

    def logs(self, lines: int = 30) -> str:
        """The ends of the daemons' logs, for an error's text."""
        raise NotImplementedError

    def files(self, host: str) -> list[InitialFile]:
        server = Path(__file__).with_name("imageserver.py").read_bytes()
        return [
            *super().files(host),
            *(plain_file(path, content) for path, content in self._given.items()),
            *([InitialFile(path=SERVER, content=server)] if host == IMAGES else []),
        ]

    def folders(self) -> list[Folder]:
        return [*super().folders(), Folder(path=IMAGES_FOLDER)]

    def boot(self, hosts: Sequence[str]) -> None:
        if IMAGES in hosts:
            self.start(
                IMAGES,
                ["/usr/bin/python3", "-I", "-S", SERVER, IMAGES_FOLDER, str(IMAGES_PORT)],
                name="images",
            )

    def publish(self, name: str, content: bytes) -> str:
        """Put an image on the server; gives its address."""
        self.write(IMAGES, f"{IMAGES_FOLDER}/{name}", content)
        return f"http://{IMAGES}:{IMAGES_PORT}/{name}"


def node_names(nodes: int) -> list[str]:
    return [f"n{number}" for number in range(1, nodes + 1)]


def plain_file(path: str, content: str | bytes) -> InitialFile:
    """Root's; what is a program, or begins with #!, can be executed."""
    data = content.encode() if isinstance(content, str) else content
    return InitialFile(path=path, content=data, mode=0o755 if data.startswith(PROGRAMS) else 0o644)


def missing_tools() -> str | None:
    """What this machine lacks for hosts of any kind; None if it lacks nothing."""
    if os.geteuid() != 0:
        return "a testbed needs root"
    lacking = [name for name in TOOLS if shutil.which(name) is None]
    if lacking:
        return f"a testbed needs {', '.join(lacking)}: apt install iproute2 util-linux"
    return None
