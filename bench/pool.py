"""The node's pool: a local ingest against cp and sha256sum, and 100,000 images in one pool.

Prints times as ratios to a bound or a baseline of the same run: an ingest of a local file to
`cp` and `sha256sum` run one after the other; looking an image up to 1 ms; the first answer
after a start, with an index and without one, to 2 s.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import Arguments
from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import NoDaemon
from cachemgr.base.hashing import ThreadedHasher
from cachemgr.network.client import DaemonClient
from cachemgr.pool import pins, room
from cachemgr.pool.index import SqliteIndex
from cachemgr.pool.ingest import BLOCK_BYTES, Ingest
from cachemgr.pool.layout import PoolSettings
from cachemgr.pool.pool import ImagePool, Want
from cachemgr.pool.records import PUBLIC, Alias, PoolImage, encode, file_name

LOOKUP_BOUND_S = 0.001
START_BOUND_S = 2.0


def opened(root: Path, limit_bytes: int) -> ImagePool:
    disk = RealDisk()
    ImagePool.create(disk, str(root), PoolSettings(limit_bytes=limit_bytes, policy="lfu"))
    return ImagePool(disk, str(root), SystemClock(), SqliteIndex(f"{root}/index.sqlite"))


def ingested(pool: ImagePool, source: Path, *, shares_blocks: bool) -> float:
    """Seconds to bring a local file in, and out again unmeasured."""
    begun_s = perf_counter()
    found = pool.want(Want(uri=str(source), size_bytes=source.stat().st_size))
    assert isinstance(found, Ingest)
    writer = found.writer(ThreadedHasher())
    assert writer is not None
    if shares_blocks:
        writer.adopt(str(source))
    else:
        with source.open("rb", buffering=0) as file:
            while block := file.read(BLOCK_BYTES):
                writer.write(block)
    image = writer.commit()
    took_s = perf_counter() - begun_s
    with pool.changing("emptying"):
        room.evict(pool, image.digest)
    return took_s


def plainly(source: Path, folder: Path, *, is_synced: bool) -> float:
    """Seconds for cp, then sha256sum of the copy; with the copy synced as an ingest's is."""
    target = folder / "copy"
    with suppress(FileNotFoundError):
        target.unlink()
    begun_s = perf_counter()
    subprocess.run(["cp", "--reflink=never", source, target], check=True)
    if is_synced:
        subprocess.run(["sync", target], check=True)
    subprocess.run(["sha256sum", target], check=True, stdout=subprocess.DEVNULL)
    took_s = perf_counter() - begun_s
    target.unlink()
    return took_s


def compare_ingest(folder: Path, size_bytes: int, rounds: int) -> None:
    source = folder / "source"
    with source.open("wb") as file:
        for _ in range(size_bytes >> 20):
            file.write(os.urandom(1 << 20))
    subprocess.run(["sync", source], check=True)
    pool = opened(folder / "pool", 2 * size_bytes)
    ours, plain, synced, shared = [], [], [], []
    is_sharing = True
    for _ in range(rounds):
        ours.append(ingested(pool, source, shares_blocks=False))
        plain.append(plainly(source, folder, is_synced=False))
        synced.append(plainly(source, folder, is_synced=True))
        if is_sharing:
            try:
                shared.append(ingested(pool, source, shares_blocks=True))
            except Exception as error:  # noqa: BLE001
                print(f"  blocks cannot be shared here: {error}")
                is_sharing = False
                pool.close()
                shutil.rmtree(folder / "pool")
                pool = opened(folder / "pool", 2 * size_bytes)
    pool.close()
    name = f"a local file of {size_bytes >> 20} MiB"
    print(f"  ingest of {name}, synced              {median(ours):7.2f} s")
    for what, times in (("cp, sha256sum", plain), ("cp, sync, sha256sum", synced)):
        ratio = median(ours) / median(times)
        print(f"    {what:<38}{median(times):7.2f} s   ratio {ratio:.2f} (bound 1.30)")
    if shared:
        print(f"    with shared blocks                    {median(shared):7.2f} s")


def filled(root: Path, count: int) -> list[str]:
    """A pool with so many images of a few bytes, written past all syncing."""
    opened(root, 1 << 40).close()
    digests = []
    for number in range(count):
        digest = file_name(str(number))
        folder = root / "images" / digest
        folder.mkdir()
        (folder / "data").write_bytes(b"x" * (number % 100))
        image = PoolImage(
            digest=digest, size_bytes=number % 100, format="file", uri=f"http://origin/{number}",
            added_s=1_700_000_000 + number, owner_uid=0, readers=PUBLIC,
        )  # fmt: skip
        (folder / "image.json").write_bytes(encode(image))
        (folder / "uses").write_text(f"{number % 7} {1_700_000_000 + number}\n")
        alias = Alias(image.uri, digest)
        (root / "aliases" / f"{file_name(image.uri)}.json").write_bytes(encode(alias))
        digests.append(digest)
    return digests


def percentile(times: list[float], percent: int) -> float:
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


def served(folder: Path, root: Path, chosen: list[str]) -> None:
    """How soon a daemon that has just been started, with no index, finds an image; and the next ones."""
    socket, config = folder / "socket", folder / "cachemgr.conf"
    config.write_text(f"[cachemgr]\npool = {root}\nsocket = {socket}\nlog_level = error\n")
    begun_s = perf_counter()
    command = [sys.executable, "-m", "cachemgr.daemon", "--config", str(config)]
    daemon = subprocess.Popen(command)
    try:
        while True:
            try:
                client = DaemonClient(str(socket))
                break
            except NoDaemon:
                SystemClock().sleep(0.005)
        client.ask("find", {"name": chosen[0]})
        first_s = perf_counter() - begun_s
        times = []
        for digest in chosen[:2000]:
            asked_s = perf_counter()
            client.ask("find", {"name": digest})
            times.append(perf_counter() - asked_s)
        client.close()
    finally:
        daemon.terminate()
        daemon.wait()
    print(
        f"    a daemon's first answer, no index     {first_s:7.2f} s   ratio {first_s / START_BOUND_S:.2f} "
        "(bound 2 s)\n"
        f"    and the next ones over its socket, while it fills the index: median "
        f"{1e3 * median(times):.2f} ms, 99 % {1e3 * percentile(times, 99):.2f} ms"
    )


def many_images(folder: Path, count: int) -> None:
    root = folder / "many"
    digests = filled(root, count)
    random = Random(1)
    chosen = random.sample(digests, min(count, 5_000))
    begun_s = perf_counter()
    pool = opened(root, 1 << 40)
    assert pool.find(chosen[0]) is not None
    first_s = perf_counter() - begun_s
    print(
        f"  {count} images, no index: first look-up after {1000 * first_s:.1f} ms, "
        f"ratio {first_s / START_BOUND_S:.4f} (bound 2 s)"
    )
    by_digest, by_name = [], []
    for digest in chosen:
        begun_s = perf_counter()
        image = pool.find(digest)
        by_digest.append(perf_counter() - begun_s)
        assert image is not None
        begun_s = perf_counter()
        assert pool.find(image.uri) is not None
        by_name.append(perf_counter() - begun_s)
    for what, times in (("digest", by_digest), ("name", by_name)):
        p99_s = percentile(times, 99)
        print(
            f"    look-up by {what:<7} median {1e6 * median(times):6.0f} us, 99 % {1e6 * p99_s:6.0f} us, "
            f"ratio {p99_s / LOOKUP_BOUND_S:.2f} (bound 1 ms)"
        )
    pool.close()
    served(folder, root, chosen)
    pool = opened(root, 1 << 40)
    begun_s = perf_counter()
    with pool.changing("filling the index"):
        used_bytes = pool.index.used_bytes()
    print(f"    filling the index from the folders    {perf_counter() - begun_s:7.2f} s")
    pool.close()
    begun_s = perf_counter()
    pool = opened(root, 1 << 40)
    with pool.changing("reading the index"):
        assert pool.index.used_bytes() == used_bytes
    print(f"    starting with that index              {perf_counter() - begun_s:7.3f} s")
    begun_s = perf_counter()
    with pool.changing("choosing"):
        room.choose(pool, 10_000)
    print(f"    choosing what to evict                {perf_counter() - begun_s:7.2f} s")
    assert not pins.read_pins(pool.disk, pool.layout.image(digests[0]))
    pool.close()


def main(argv: list[str] | None = None) -> int:
    parser = Arguments(__doc__)
    parser.add_argument("--folder", type=Path, help="where to work: a file system of your choice")
    parser.add("--size-mib", 1024, 16)
    parser.add("--rounds", 3, 1)
    parser.add("--images", 100_000, 500)
    options = parser.given(argv)
    folder = Path(tempfile.mkdtemp(prefix="outrider-bench-", dir=options.folder))
    try:
        compare_ingest(folder, options.size_mib << 20, options.rounds)
        many_images(folder, options.images)
    finally:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
