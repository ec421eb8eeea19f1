"""Apptainer's own way beside the pool's: a SIF for nodes at once from a registry, and its start from a pool.

    sudo python bench/apptainer.py [--nodes 8] [--mbit 100] [--mib 64]

Hosts are network namespaces whose links are limited in both directions. A real docker-registry is on one of
them, with a SIF that `apptainer pull oras://…` brings to each node at the same time, and then the planned
relay of the nodes' daemons. A ratio is the time until the last node has it, divided by bytes ÷ link rate,
which nothing can beat. Then `apptainer exec` runs from a node's pool, and from a folder on the registry's
host over SFTP. Needs root, docker-registry, squashfs-tools, sshfs, and Apptainer or Debian sid in the
testbed's cache (make test-versions).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking, without_root
from bench.layers import CLOCK, PORT, RELAY_PORT, Node, logged, noise, push_file, until
from outrider.service.images.containers import sif
from testbed.apptainer import installed, running
from testbed.hosts import Hosts

TIMES = 5
TIMEOUT_S = 600
SHARED_PORT = 7020


def sif_of(folder: Path, size_bytes: int) -> Path:
    """A SIF with a static program, and bytes that no packing makes fewer."""
    tree = folder / "tree"
    for name in ("bin", "proc", "sys", "dev", "tmp", "etc", "root", "home", "var/tmp"):
        (tree / name).mkdir(parents=True)
    for name in ("hosts", "resolv.conf", "passwd", "group"):
        (tree / "etc" / name).touch()
    source = folder / "true.c"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", "-static", "-o", str(tree / "bin/true"), str(source)], check=True)
    (tree / "data").write_bytes(noise(1, size_bytes))
    image = folder / "image.sif"
    argv = ["mksquashfs", str(tree), str(image), "-quiet", "-no-progress", "-all-root", "-noappend"]
    subprocess.run([*argv, "-offset", str(sif.IMAGE_AT)], check=True)
    with image.open("r+b") as file:
        file.write(sif.frame(image.stat().st_size - sif.IMAGE_AT, "amd64", bytes(16)))
    return image


def pulled(hosts: Hosts, count: int, folder: Path, registry: str) -> float:
    """All at once by Apptainer's own pull, each into a folder of its node; until the last is done."""

    def pull(number: int) -> None:
        place = folder / f"pulled{number}"
        place.mkdir(mode=0o777)
        place.chmod(0o777)
        words = [
            "pull",
            "--disable-cache",
            "--no-https",
            "/tmp/folder/x.sif",
            f"oras://{registry}:{PORT}/image:v1",
        ]
        done = subprocess.run(
            hosts.command(number, running(place, "apptainer", words)),
            capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        if done.returncode != 0 or not (place / "x.sif").exists():
            raise SystemExit(f"apptainer pull failed: {done.stderr[-500:]}")

    began_s = CLOCK.monotonic_s()
    with ThreadPoolExecutor(count) as crew:
        list(crew.map(pull, range(1, count + 1)))
    return CLOCK.monotonic_s() - began_s


def relayed(nodes: Sequence[Node], registry: str, digest: str) -> float:
    """The same file by the planned relay."""
    uri = f"oras://{registry}:{PORT}/image:v1"
    pin = {"owner": "bench", "until_s": CLOCK.now_s() + 3_600}
    began_s = CLOCK.monotonic_s()

    def told(number: int) -> None:
        above = [f"relay://{each.address}:{RELAY_PORT}/sha256:{digest}" for each in nodes[:number][-2:]]
        nodes[number].ask("add", uri=uri, digest=digest, sources=[*reversed(above), uri], pin=pin)

    with ThreadPoolExecutor(len(nodes)) as crew:
        list(crew.map(told, range(len(nodes))))
    for node in reversed(nodes):
        until("the image is on all nodes", node.has_ended)
    return CLOCK.monotonic_s() - began_s


def started_s(hosts: Hosts, folder: Path, images: Sequence[str]) -> list[float]:
    """`apptainer exec` of a program that does nothing: the best of some runs, taken in turns."""
    best = [float(TIMEOUT_S)] * len(images)
    for _ in range(TIMES):
        for number, image in enumerate(images):
            words = ["exec", f"/tmp/folder/{image}", "/bin/true"]
            began_s = CLOCK.monotonic_s()
            done = subprocess.run(
                hosts.command(1, running(folder, "apptainer", words)),
                capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
            )  # fmt: skip
            best[number] = min(best[number], CLOCK.monotonic_s() - began_s)
            if done.returncode != 0:
                raise SystemExit(f"apptainer exec failed: {done.stderr[-500:]}")
    return best


SHARING = """
import socket, subprocess, sys
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
while True:
    line, _ = listener.accept()
    subprocess.Popen(["/usr/lib/openssh/sftp-server"], stdin=line, stdout=line)
    line.close()
"""


def shared(hosts: Hosts, folder: Path, target: Path) -> subprocess.Popen[bytes]:
    """A folder of the registry's host, mounted over the first node's link; what serves it."""
    server = hosts.start(0, [sys.executable, "-c", SHARING, hosts.address(0), str(SHARED_PORT)])
    target.mkdir()

    def is_mounted() -> bool:
        words = [
            "-o",
            f"directport={SHARED_PORT},allow_other,ro",
            f"{hosts.address(0)}:{folder}",
            str(target),
        ]
        done = subprocess.run(
            hosts.command(1, ["sshfs", *words]), capture_output=True, check=False, timeout=60
        )
        return done.returncode == 0 and os.path.ismount(target)

    until("the shared folder is mounted", is_mounted)
    return server


def measure(options: object, folder: Path, hosts: Hosts, nodes: Sequence[Node], image: Path) -> bool:
    count, mbit = len(nodes), int(getattr(options, "mbit"))  # noqa: B009 - of a namespace
    size_bytes = image.stat().st_size
    bound_s = size_bytes * 8 / (mbit * 1_000_000)
    digest = hashlib.sha256(image.read_bytes()).hexdigest()
    argv = [sys.executable, __file__, "push", hosts.address(0), str(image)]
    hosts.run(0, argv, TIMEOUT_S)
    print(f"{size_bytes / 2**20:.1f} MiB to {count} nodes, bound {bound_s:.2f} s", flush=True)
    pull_s = pulled(hosts, count, folder, hosts.address(0))
    print(f"apptainer pull on all at once  {pull_s:6.2f} s  ratio {pull_s / bound_s:.2f}", flush=True)
    relay_s = relayed(nodes, hosts.address(0), digest)
    print(f"relay of the nodes' daemons    {relay_s:6.2f} s  ratio {relay_s / bound_s:.2f}", flush=True)
    work = folder / "work"
    work.mkdir(mode=0o755)
    (work / "pool").mkdir()
    os.link(folder / f"node1/pool/images/{digest}/data", work / "pool/x.sif")
    (work / "pool/x.sif").chmod(0o444)
    (folder / "served").mkdir(mode=0o755)
    shutil.copy(image, folder / "served/x.sif")
    server = shared(hosts, folder / "served", work / "shared")
    try:
        pool_s, shared_s = started_s(hosts, work, ["pool/x.sif", "shared/x.sif"])
    finally:
        subprocess.run(["umount", "-l", str(work / "shared")], check=False)
        server.kill()
        server.wait()
    print(f"apptainer exec, from the pool {pool_s:.2f} s, from a folder over SFTP {shared_s:.2f} s")
    return relay_s < pull_s and pool_s < shared_s


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["push"]:
        push_file(arguments[1], "image", Path(arguments[2]).read_bytes())
        return 0
    parser = Arguments(__doc__)
    parser.add("--nodes", 8, 2)
    parser.add_argument("--mbit", type=int, default=100, help="the rate of each link")
    parser.add("--mib", 64, 4, "the size of the image")
    parser.add_argument("--folder", default="/dev/shm" if Path("/dev/shm").is_dir() else None)
    options = parser.given(arguments)
    programs = ("ip", "docker-registry", "mksquashfs", "sshfs", "gcc")
    path = f"{os.environ.get('PATH', '')}:/usr/bin:/usr/sbin"
    missing = [each for each in programs if shutil.which(each, path=path) is None]
    lacks = f"needs {', '.join(missing)}" if missing else ""
    if without_root("to make hosts") or lacking(lacks or installed()):
        return NOT_MEASURED
    with tempfile.TemporaryDirectory(prefix="outrider-apptainer-", dir=options.folder) as name:
        folder = Path(name)
        folder.chmod(0o755)
        key = folder / "key"
        key.write_text("k" * 32)
        key.chmod(0o600)
        image = sif_of(folder, options.mib << 20)
        with Hosts(options.nodes + 1, options.mbit * 1_000_000) as hosts:
            storage = {"filesystem": {"rootdirectory": str(folder / "registry")}}
            config = {"version": "0.1", "storage": storage, "http": {"addr": f"{hosts.address(0)}:{PORT}"}}
            (folder / "registry.json").write_text(json.dumps(config))
            argv = ["docker-registry", "serve", str(folder / "registry.json")]
            started = [logged(hosts, 0, argv, folder / "registry.log")]
            nodes = [Node(hosts, number, folder, key) for number in range(1, options.nodes + 1)]
            started += [node.process for node in nodes]
            try:
                for node in nodes:
                    until("daemons serve", node.is_up)
                return judged(options, is_good=measure(options, folder, hosts, nodes, image))
            finally:
                for process in started:
                    process.terminate()
                    process.wait(TIMEOUT_S)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
