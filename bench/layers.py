"""What two images that share most of their layers cost: bytes and time of the second, on nodes in a chain.

    sudo python bench/layers.py [--nodes 8] [--mbit 100] [--mib 400] [--share 90]

Hosts are network namespaces whose links are limited in both directions; a real docker-registry is on one of
them, and each node has a daemon with a pool. The bound is the bytes of the missing layers ÷ link rate, which
nothing can beat. Needs root, iproute2 and docker-registry.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from random import Random

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking, without_root
from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import CacheError
from cachemgr.network.client import DaemonClient
from cachemgr.pool.layout import PoolSettings
from cachemgr.pool.pool import ImagePool
from testbed.hosts import Hosts

ROOT = Path(__file__).resolve().parents[1]
CLOCK = SystemClock()
PORT, RELAY_PORT = 5000, 7010
MOST_BYTES, MOST_RATIO = 1.03, 1.1
MOST_S = 600
LOOK_S = 0.02
KIND = "application/vnd.oci.image"


@dataclass(frozen=True)
class Pushed:
    """An image in the registry: its manifest's digest, and its blobs."""

    name: str
    digest: str
    sizes: dict[str, int]


class Node:
    """A daemon with a pool of its own, on a host."""

    def __init__(self, hosts: Hosts, number: int, folder: Path, key: Path) -> None:
        self.address = hosts.address(number)
        place = folder / f"node{number}"
        place.mkdir()
        ImagePool.create(RealDisk(), str(place / "pool"), PoolSettings(limit_bytes=1 << 40, policy="lru"))
        self._socket = str(place / "s")
        config = place / "cachemgr.conf"
        config.write_text(
            f"[cachemgr]\npool = {place}/pool\nsocket = {self._socket}\nwatchdog = 0\n"
            f"relay_listen = {self.address}:{RELAY_PORT}\nrelay_key = {key}\n"
            f"plain_http = {hosts.address(0)}:{PORT}\n"
        )
        argv = [sys.executable, "-m", "cachemgr.daemon", "--config", str(config)]
        self.process = logged(hosts, number, argv, place / "log")

    def ask(self, verb: str, **fields: object) -> dict[str, object]:
        with DaemonClient(self._socket) as client:
            return client.ask(verb, fields)

    def is_up(self) -> bool:
        try:
            return bool(self.ask("ping"))
        except CacheError:
            return False

    def has_ended(self) -> bool:
        found = self.ask("transfers")["transfers"]
        assert isinstance(found, list)
        if wrong := [each["message"] for each in found if each["error"]]:
            raise SystemExit(f"a transfer failed: {wrong[0]}")
        return all(each["ended_s"] is not None for each in found)

    def fetched_bytes(self) -> int:
        text = str(self.ask("metrics")["text"])
        lines = [line for line in text.splitlines() if line.startswith("outrider_fetched_bytes_total{")]
        return sum(int(float(line.split()[-1])) for line in lines)


def logged(hosts: Hosts, number: int, argv: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """A program on a host, whose log is kept."""
    script = f"cd {shlex.quote(str(ROOT))} && exec {shlex.join(argv)} >{shlex.quote(str(log))} 2>&1"
    return hosts.start(number, ["sh", "-c", script])


def until(what: str, is_so: Callable[[], bool]) -> None:
    end_s = CLOCK.monotonic_s() + MOST_S
    while not is_so():
        if CLOCK.monotonic_s() > end_s:
            raise SystemExit(f"not within {MOST_S} s: {what}")
        CLOCK.sleep(LOOK_S)


def ask(host: str, method: str, path: str, body: bytes = b"", kind: str = "") -> str:
    """A request of the registry; where it says that the answer is."""
    line = http.client.HTTPConnection(host, PORT, timeout=MOST_S)
    line.request(method, path, body, {"Content-Type": kind} if kind else {})
    answer = line.getresponse()
    answer.read()
    line.close()
    if answer.status not in (201, 202):
        raise SystemExit(f"the registry says {answer.status} to {method} {path}")
    return (answer.getheader("location") or "").partition(f":{PORT}")[2]


def push_blob(host: str, name: str, data: bytes) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    ask(host, "PUT", f"{ask(host, 'POST', f'/v2/{name}/blobs/uploads/')}&digest={digest}", data)
    return {"digest": digest, "size": len(data)}


def push_manifest(host: str, name: str, config: dict[str, object], layers: list[dict[str, object]]) -> bytes:
    kind = f"{KIND}.manifest.v1+json"
    text = json.dumps({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers}).encode()
    ask(host, "PUT", f"/v2/{name}/manifests/v1", text, kind)
    return text


def push_file(host: str, name: str, data: bytes) -> None:
    """One file, as Apptainer and oras push it."""
    config = {"mediaType": "application/vnd.sylabs.sif.config.v1+json", **push_blob(host, name, b"{}")}
    layer = {"mediaType": "application/vnd.sylabs.sif.layer.v1.sif", **push_blob(host, name, data)}
    push_manifest(host, name, config, [layer])


def push(host: str, name: str, layers: Sequence[bytes]) -> Pushed:
    parts = [{"mediaType": f"{KIND}.layer.v1.tar", **push_blob(host, name, layer)} for layer in layers]
    diffs = [part["digest"] for part in parts]
    settings = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": diffs}}
    config = {"mediaType": f"{KIND}.config.v1+json", **push_blob(host, name, json.dumps(settings).encode())}
    sizes = {str(part["digest"]): int(str(part["size"])) for part in (*parts, config)}
    text = push_manifest(host, name, config, parts)
    return Pushed(name, hashlib.sha256(text).hexdigest(), sizes)


def noise(seed: int, size_bytes: int) -> bytes:
    """Bytes that are the same for a seed."""
    random = Random(seed)
    return b"".join(random.randbytes(min(1 << 20, size_bytes - at)) for at in range(0, size_bytes, 1 << 20))


def pushed_on(hosts: Hosts, name: str, common_bytes: int, own_bytes: int, seed: int) -> Pushed:
    """Pushed on the registry's own host: its link is for the nodes."""
    argv = [
        sys.executable,
        __file__,
        "push",
        hosts.address(0),
        name,
        *map(str, (common_bytes, own_bytes, seed)),
    ]
    found = json.loads(hosts.run(0, argv, MOST_S))
    return Pushed(**found)


def brought(nodes: Sequence[Node], registry: str, image: Pushed) -> float:
    """How long it took until the last node had the image."""
    uri = f"docker://{registry}:{PORT}/{image.name}:v1@sha256:{image.digest}"
    pin = {"owner": image.name, "until_s": CLOCK.now_s() + 3_600}
    began_s = CLOCK.monotonic_s()

    def told(number: int) -> None:
        above = [f"relay://{each.address}:{RELAY_PORT}/sha256:{image.digest}" for each in nodes[:number][-2:]]
        sources = [*reversed(above), uri]
        nodes[number].ask("add", uri=uri, digest=image.digest, format="layers", sources=sources, pin=pin)

    # As the service does it: each asks the registry for the manifest first.
    with ThreadPoolExecutor(len(nodes)) as crew:
        list(crew.map(told, range(len(nodes))))
    for node in reversed(nodes):
        until("the image is on all nodes", node.has_ended)
    return CLOCK.monotonic_s() - began_s


def measure(options: object, folder: Path, hosts: Hosts, nodes: Sequence[Node]) -> bool:
    count, mbit = len(nodes), int(getattr(options, "mbit"))  # noqa: B009 - of a namespace
    size_bytes = int(getattr(options, "mib")) << 20  # noqa: B009
    common_bytes = size_bytes * int(getattr(options, "share")) // 100  # noqa: B009
    is_good = True
    before: Pushed | None = None
    for seed, name in ((1, "first"), (2, "second")):
        image = pushed_on(hosts, name, common_bytes, size_bytes - common_bytes, seed)
        missing = {
            key: size for key, size in image.sizes.items() if before is None or key not in before.sizes
        }
        missing_bytes = sum(missing.values())
        had_bytes = sum(node.fetched_bytes() for node in nodes)
        took_s = brought(nodes, hosts.address(0), image)
        moved_bytes = sum(node.fetched_bytes() for node in nodes) - had_bytes
        bound_s = missing_bytes * 8 / (mbit * 1_000_000)
        bytes_ratio, ratio = moved_bytes / (missing_bytes * count), took_s / bound_s
        print(
            f"{name:6}  {missing_bytes / 2**20:6.1f} MiB missing  bound {bound_s:6.2f} s  "
            f"last of {count} nodes after {took_s:6.2f} s  ratio {ratio:.3f}  bytes {bytes_ratio:.3f}",
            flush=True,
        )
        if before is not None:
            is_good = bytes_ratio <= MOST_BYTES and ratio <= MOST_RATIO
        before = image
    return is_good


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["push"]:
        host, name, common_bytes, own_bytes, seed = arguments[1:]
        layers = [noise(0, int(common_bytes)), noise(int(seed), int(own_bytes))]
        image = push(host, name, layers)
        print(json.dumps({"name": image.name, "digest": image.digest, "sizes": image.sizes}))
        return 0
    parser = Arguments(__doc__)
    parser.add("--nodes", 8, 2)
    parser.add_argument("--mbit", type=int, default=100, help="the rate of each link")
    parser.add("--mib", 400, 8, "the size of an image")
    parser.add_argument("--share", type=int, default=90, help="percent that both have in common")
    # All nodes share one disk here, which would be what is measured.
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    options = parser.given(arguments)
    program = shutil.which("docker-registry", path=f"{os.environ.get('PATH', '')}:/usr/bin")
    lacks = "needs iproute2" if not shutil.which("ip") else "" if program else "needs docker-registry"
    if without_root("to make hosts") or lacking(lacks):
        return NOT_MEASURED
    with tempfile.TemporaryDirectory(prefix="outrider-layers-", dir=options.folder) as name:
        folder = Path(name)
        key = folder / "key"
        key.write_text("k" * 32)
        key.chmod(0o600)
        with Hosts(options.nodes + 1, options.mbit * 1_000_000) as hosts:
            storage = {"filesystem": {"rootdirectory": str(folder / "registry")}}
            config = {"version": "0.1", "storage": storage, "http": {"addr": f"{hosts.address(0)}:{PORT}"}}
            (folder / "registry.json").write_text(json.dumps(config))
            argv = [str(program), "serve", str(folder / "registry.json")]
            started = [logged(hosts, 0, argv, folder / "registry.log")]
            nodes = [Node(hosts, number, folder, key) for number in range(1, options.nodes + 1)]
            started += [node.process for node in nodes]
            try:
                for node in nodes:
                    until("daemons serve", node.is_up)
                return judged(options, is_good=measure(options, folder, hosts, nodes))
            finally:
                for process in started:
                    process.terminate()
                    process.wait(MOST_S)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
