"""Outrider on a cluster: what its installation puts where, and its daemons. No batch system's part.

For tests, the demo and benches, which all want a site that serves. It is not the installer: that
is tried by itself, against sites that it has to find out about. A batch system's site derives from this.
"""

from __future__ import annotations

import io
import json
import secrets
import tempfile
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

import cachemgr
import outrider
import outrider_client
from cachemgr.base.errors import NoDaemon
from cachemgr.network.client import SOCKET as NODE_SOCKET
from cachemgr.network.client import DaemonClient
from outrider.cli.demo.images import write_image
from outrider.cli.installing.common.pyz import pack
from outrider.cli.installing.common.shipped import package_file, shipped
from outrider.cli.main import main
from outrider_client import Outrider, OutriderError
from outrider_client.doors import SOCKET
from testbed.batchcluster import HEAD, IMAGES, IMAGES_FOLDER, IMAGES_PORT, BatchCluster

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping

LIBRARY = "/usr/lib/outrider"
CACHEMGR = f"{LIBRARY}/cachemgr.pyz"
PROGRAMS = "/opt/outrider"
KEY = "/etc/outrider/site.key"
CONFIGURATION = "/etc/outrider/outriderd.yaml"
POOL = "/var/lib/outrider/pool"
# Where a registry listens if a test starts one: on the host of the images, without TLS.
REGISTRY_PORT = 5000
REGISTRY = f"{IMAGES}:{REGISTRY_PORT}"
# Where nodes fetch from the head what it has made of container images.
CONVERSIONS_PORT = 7012
SERVICE, NODE_DAEMON = "outriderd", "cachemgr"
SERVE_S = 120
KEY_BYTES = 32

# As systemd does before it starts a unit with a RuntimeDirectory.
IN_ITS_FOLDER = ("/bin/sh", "-c", 'mkdir -p /run/outrider && exec "$@"', "sh")

# With bytecode, as pip does it: users cannot write it, and their commands would compile everything each time.
INSTALLED = (
    'set -e; mkdir -p "$1"; cp -r --preserve=timestamps "$2" "$3" "$4" "$1"; '
    '/usr/bin/python3 -m compileall -q "$1"; chmod -R go+rX "$1"'
)

NODE_CONFIGURATION = f"""[cachemgr]
pool = {POOL}
control_listen = 0.0.0.0:7011
relay_listen = 0.0.0.0:7010
relay_key = {KEY}
node = %s
sweep_interval = 5s
plain_http = {REGISTRY}
"""


@dataclass(frozen=True, kw_only=True)
class ServedImage:
    """An image on the server of images."""

    name: str
    uri: str
    digest: str
    size_bytes: int

    @property
    def lines(self) -> str:
        """As a script names it."""
        return f"#OUTRIDER image: {self.uri}\n#OUTRIDER digest: {self.digest}\n"


C = TypeVar("C", bound=BatchCluster)


@cache
def packed_for_nodes() -> bytes:
    """The node side as one file: compiling it takes longer than to write it onto nodes."""
    with tempfile.TemporaryDirectory(prefix="outrider-site-") as folder:
        packed = Path(folder, "cachemgr.pyz")
        pack(packed, bytecode_of="/usr/bin/python3")
        return packed.read_bytes()


class ClusterSite(Generic[C]):
    """A cluster with Outrider installed on it. The cluster is the caller's to begin and to end."""

    backend: ClassVar[Mapping[str, object]]
    """The section of the service's configuration."""
    administrators: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        cluster: C,
        *,
        link_bytes_per_s: int,
        pool: str = "1GiB",
        settings: Mapping[str, object] | None = None,
        is_preloaded: bool = False,
    ) -> None:
        """
        `settings` are sections of the service's configuration that go over those here; `is_preloaded` spares
        the service's starts the imports (see `testbed.preloaded`), which are of these sources then.
        """
        self.cluster = cluster
        # With another tree of files comes another Python.
        self._is_preloaded = is_preloaded and cluster.record.tree == "/"
        self._pool = pool
        self._key = secrets.token_hex(KEY_BYTES)
        self._settings: dict[str, object] = {
            "version": 1,
            "site": "testbed",
            "link": {"rate": link_bytes_per_s, "reserve": "at-once", "spread": "3s"},
            "timings": {"look": "2s", "progress": "1s", "call": "10s", "away": "10s", "reconcile": "15s"},
            "backend": self.backend,
            "registries": {"plain_http": REGISTRY},
            "conversions": {"address": f"{HEAD}:{CONVERSIONS_PORT}", "user": "nobody"},
            "administrators": {"users": list(self.administrators)},
            **(settings or {}),
        }

    def install(self) -> None:
        """Put everything in place and start it; returns when the service promises."""
        self.install_head()
        for node in self.cluster.nodes:
            self.install_node(node, packed_for_nodes())
        self.cluster.run_everywhere(
            self.cluster.nodes, [CACHEMGR, "--no-daemon", "init", "--limit", self._pool]
        )
        for node in self.cluster.nodes:
            self.start_node(node)
        self.start_service()

    def start_service(self) -> None:
        """Start outriderd on the head, and wait until it promises."""
        options, variables = ["--config", CONFIGURATION, "--init-if-empty"], {"PYTHONPATH": PROGRAMS}
        if self._is_preloaded:
            self.cluster.start_preloaded(HEAD, options, name=SERVICE, environment=variables)
        else:
            words = [*IN_ITS_FOLDER, self.cluster.python, "-m", "outrider.service", *options]
            self.cluster.start(HEAD, words, name=SERVICE, environment=variables)
        self.cluster.wait_for("outriderd to promise", self.is_promising, SERVE_S, self.logs)

    def start_node(self, node: str) -> None:
        """Start a node's daemon, now and at each boot."""
        self.cluster.start(node, [*IN_ITS_FOLDER, CACHEMGR, "serve"], name=NODE_DAEMON, at_boot=True)

    def is_promising(self) -> bool:
        with suppress(OutriderError, OSError):
            return self.service().status().is_promising
        return False

    def service(self) -> Outrider:
        """The service, asked as root by this process: a command for each look takes ten times as long."""
        return Outrider(socket=self.cluster.from_outside(HEAD, SOCKET))

    def outrider(
        self, *words: str, user: str = "ada", check: bool = True, timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """A user's `outrider …` on the head."""
        return self.cluster.run(HEAD, ["outrider", *words], user=user, check=check, timeout_s=timeout_s)

    def told(self, *words: str) -> str:
        """What `outrider …` prints for root, by this process: for whoever looks again and again."""
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(io.StringIO()):
            main([*words, "--socket", self.cluster.from_outside(HEAD, SOCKET)])
        return printed.getvalue()

    def home(self, user: str = "ada") -> str:
        return self.cluster.people.of(user).home

    def image(self, name: str, content_bytes: int) -> ServedImage:
        """A disk full of random bytes on the server of images."""
        with tempfile.TemporaryDirectory(prefix="outrider-image-") as folder:
            path = Path(folder, name)
            write_image(path, content_bytes)
            digest = Path(f"{path}.sha256").read_text().split()[0]
            self.cluster.write(IMAGES, f"{IMAGES_FOLDER}/{name}", path.read_bytes())
            return ServedImage(
                name=name,
                uri=f"http://{IMAGES}:{IMAGES_PORT}/{name}",
                digest=f"sha256:{digest}",
                size_bytes=path.stat().st_size,
            )

    def hold_back(self, image: ServedImage) -> None:
        """Let an image arrive by half, and go on only when it is let go: something can happen meanwhile."""
        self.cluster.write(IMAGES, f"{IMAGES_FOLDER}/{image.name}.held", "")

    def let_go(self, image: ServedImage) -> None:
        self.cluster.run(IMAGES, ["rm", f"{IMAGES_FOLDER}/{image.name}.held"])

    def start_images(self) -> None:
        """Start the server of images again after `cluster.kill("images", "images")`."""
        self.cluster.boot([IMAGES])

    def asked(self, node: str, verb: str, name: str | None = None) -> dict[str, object]:
        """What a node's daemon answers root; where none runs, what the command finds."""
        with suppress(NoDaemon), DaemonClient(self.cluster.from_outside(node, NODE_SOCKET)) as daemon:
            return daemon.ask(verb, {"name": name})
        words = [verb] if name is None else [verb, name]
        answer = json.loads(self.cluster.run(node, [CACHEMGR, *words, "--json"]).stdout)
        assert isinstance(answer, dict)
        return answer

    def arrived_s(self, image: ServedImage) -> dict[str, int]:
        """On which nodes an image is, and since when."""
        found: dict[str, int] = {}
        for node in self.cluster.nodes:
            for each in self._images(node):
                if each["digest"] == image.digest:
                    added_s = each["added_s"]
                    assert isinstance(added_s, int)
                    found[node] = added_s
        return found

    def arriving(self, image: ServedImage) -> list[str]:
        """On which nodes some bytes of an image are that is not there yet."""
        found = []
        for node in self.cluster.nodes:
            coming = self.asked(node, "ls")["arriving"]
            assert isinstance(coming, list)
            if any(each["digest"] == image.digest and int(each["arrived_bytes"]) for each in coming):
                found.append(node)
        return found

    def instances(self, node: str) -> list[str]:
        """Whose instances are on a node."""
        answer = self.asked(node, "instances")["instances"]
        assert isinstance(answer, list)
        return sorted(str(each["owner"]) for each in answer)

    def pins(self, node: str) -> list[str]:
        """For whom images are pinned on a node."""
        found: list[str] = []
        for image in self._images(node):
            if not image["pins"]:
                continue
            answer = self.asked(node, "show", str(image["digest"]))["pin_list"]
            assert isinstance(answer, list)
            found += [str(each["owner"]) for each in answer]
        return sorted(found)

    def left_on_nodes(self) -> list[str]:
        """What instances, pins and files of hooks there are that no job and no promise needs."""
        found = []
        for node in self.cluster.nodes:
            found += [f"instance of {owner} on {node}" for owner in self.instances(node)]
            found += [f"pin of {owner} on {node}" for owner in self.pins(node) if not self.may_stay(owner)]
            folders = [f"/run/outrider/{kind}" for kind in ("jobs", "failed", "nodes")]
            done = self.cluster.run(node, ["find", *folders, "-type", "f"], check=False)
            found += [f"{path} on {node}" for path in done.stdout.split()]
        return found

    def may_stay(self, owner: str) -> bool:
        """For a reservation that has run its time an image is kept a while."""
        with suppress(OutriderError):
            return self.service().show(owner.removeprefix("reservation:")).reservation.state == "ended"
        return False

    def _images(self, node: str) -> list[dict[str, object]]:
        answer = self.asked(node, "ls")["images"]
        assert isinstance(answer, list)
        return answer

    def logs(self) -> str:
        """The ends of all daemons' logs, for an error's text."""
        node = self.cluster.nodes[0]
        return (
            f"--- outriderd\n{self.cluster.log(HEAD, SERVICE)}\n"
            f"--- cachemgr on {node}\n{self.cluster.log(node, NODE_DAEMON)}\n{self.cluster.logs()}"
        )

    def install_head(self) -> None:
        """Programs, key and configuration; the batch system's own part is a subclass's."""
        cluster = self.cluster
        cluster.run(
            HEAD,
            [
                "/bin/sh",
                "-c",
                INSTALLED,
                "sh",
                PROGRAMS,
                *(each.__path__[0] for each in (outrider, outrider_client, cachemgr)),
            ],
        )
        program = f'#!/bin/sh\nPYTHONPATH={PROGRAMS} exec /usr/bin/python3 -m outrider.cli.main "$@"\n'
        cluster.write(HEAD, "/usr/bin/outrider", program, mode=0o755)
        cluster.write(HEAD, KEY, f"{self._key}\n", mode=0o600)
        # JSON is YAML, too.
        cluster.write(HEAD, CONFIGURATION, json.dumps(self._settings, indent=1))

    def install_node(self, node: str, packed: bytes) -> None:
        """The daemon, its key and configuration; hooks are a subclass's."""
        cluster = self.cluster
        cluster.write(node, CACHEMGR, packed, mode=0o755)
        cluster.write(node, f"{LIBRARY}/hook.py", package_file("cachemgr", "hook.py"))
        cluster.write(node, f"{LIBRARY}/machine", shipped("prolog/machine"), mode=0o755)
        cluster.write(node, KEY, f"{self._key}\n", mode=0o600)
        cluster.write(node, "/etc/outrider/cachemgr.conf", NODE_CONFIGURATION % node)
