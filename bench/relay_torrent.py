"""The same image over BitTorrent: aria2 on every host, with a tracker of a few lines on the origin's."""

from __future__ import annotations

import hashlib
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread
from time import monotonic_ns, sleep
from urllib.parse import parse_qs, urlsplit

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from testbed.hosts import Hosts  # noqa: E402

HAS_ARIA2 = shutil.which("aria2c") is not None
PIECE_BYTES = 256 * 1024
TRACKER_PORT = 6969
PEER_PORT = 6881
MOST_S = 180
OPTIONS = (
    "--enable-dht=false --bt-enable-lpd=false --enable-peer-exchange=true --file-allocation=none "
    "--quiet=true --bt-max-peers=55 --summary-interval=0 --disk-cache=0 --no-conf=true "
    "--bt-tracker-interval=1 --bt-request-peer-speed-limit=1000M --check-integrity=false"
)


def bencoded(value: object) -> bytes:
    if isinstance(value, int):
        return b"i%de" % value
    if isinstance(value, bytes):
        return b"%d:%s" % (len(value), value)
    assert isinstance(value, dict)
    return b"d" + b"".join(bencoded(key) + bencoded(value[key]) for key in sorted(value)) + b"e"


def metafile(image: Path, tracker: str) -> bytes:
    data = image.read_bytes()
    pieces = [hashlib.sha1(data[at : at + PIECE_BYTES]).digest() for at in range(0, len(data), PIECE_BYTES)]
    info = {
        b"length": len(data),
        b"name": image.name.encode(),
        b"piece length": PIECE_BYTES,
        b"pieces": b"".join(pieces),
    }
    return bencoded({b"announce": tracker.encode(), b"info": info})


def track(listen: str) -> None:
    """Answer every announcement with all peers so far."""
    peers: dict[tuple[str, int], bytes] = {}
    with socket.create_server((listen, TRACKER_PORT), backlog=128) as server:
        print("ready", flush=True)
        while True:
            sock, (host, _) = server.accept()
            with sock:
                line = sock.recv(8192).split(b"\r\n")[0].decode("latin-1")
                port = int(parse_qs(urlsplit(line.split(" ")[1]).query)["port"][0])
                peers[host, port] = socket.inet_aton(host) + port.to_bytes(2, "big")
                body = bencoded({b"interval": 2, b"min interval": 1, b"peers": b"".join(peers.values())})
                sock.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


def torrent_finishes(
    image: Path, folder: Path, nodes: int, rate_bits_per_s: int, mtu_bytes: int
) -> list[float | None]:
    """Seconds until each node had the image; None if it did not in three minutes."""
    begin_s, finish = 0.0, [None] * nodes
    with Hosts(nodes + 1, rate_bits_per_s, mtu_bytes) as hosts:
        tracker = hosts.start(
            0, [sys.executable, __file__, "--track", hosts.address(0)], stdout=subprocess.PIPE
        )
        assert tracker.stdout is not None
        tracker.stdout.readline()
        torrent = folder / "image.torrent"
        torrent.write_bytes(metafile(image, f"http://{hosts.address(0)}:{TRACKER_PORT}/announce"))
        common = ["aria2c", *OPTIONS.split(), f"--listen-port={PEER_PORT}"]
        seed = [*common, "--seed-ratio=0", "--bt-seed-unverified=true", f"--dir={image.parent}", str(torrent)]
        processes = [tracker, hosts.start(0, seed)]
        times: list[float | None] = list(finish)
        begin_s = monotonic_ns() / 1e9
        watchers = []
        for number in range(1, nodes + 1):
            own = folder / f"torrent{number}"
            own.mkdir()
            done = own / "done"
            script = f"#!/bin/sh\n: > {done}\n"
            hook = own / "hook"
            hook.write_text(script)
            hook.chmod(0o755)
            leech = [
                *common,
                "--seed-ratio=0",
                f"--dir={own}",
                f"--on-bt-download-complete={hook}",
                str(torrent),
            ]
            processes.append(hosts.start(number, leech))
            watchers.append(Thread(target=_watch, args=(processes[-1], done, times, number - 1, begin_s)))
        for watcher in watchers:
            watcher.start()
        for watcher in watchers:
            watcher.join()
        for process in processes:
            process.kill()
            process.wait(timeout=30)
        tracker.stdout.close()
    for number in range(1, nodes + 1):
        shutil.rmtree(folder / f"torrent{number}")
    return times


def _watch(
    process: subprocess.Popen[bytes], done: Path, times: list[float | None], index: int, begin_s: float
) -> None:
    """Look for a file now and then, as long as it may come."""
    for _ in range(MOST_S * 20):
        if done.exists():
            times[index] = monotonic_ns() / 1e9 - begin_s
            return
        if process.poll() is not None:
            return
        sleep(0.05)


if __name__ == "__main__" and sys.argv[1] == "--track":
    track(sys.argv[2])
