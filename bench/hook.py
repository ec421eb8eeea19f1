"""How long a job's prolog waits: from the start of the hook's process to a ready instance.

A daemon serves a pool on a loop-mounted file system with an image of 2 GiB; the hook is
started again and again, each time for another job. Beside it, in the same run and in turn
with it, a bare `python3 -I -S -c pass`, which no hook in Python can beat, and the whole of Slurm's
prolog and epilog as scripts, with a ticket and without. At last the same scripts with a file that is no
disk image, on ext4, which shares no blocks: copied while the job waits, and made before it. Needs root, to
mount.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.frame import NOT_MEASURED, Arguments, judged, lacking, without_root
from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import NoDaemon
from cachemgr.base.sizes import in_words, read_size
from cachemgr.network.client import DaemonClient
from cachemgr.network.job_tickets import JobTicket, make_job_ticket
from cachemgr.pool.layout import PoolSettings
from cachemgr.pool.pool import ImagePool

ROOT = Path(__file__).resolve().parents[1]
HOOK = str(ROOT / "cachemgr" / "hook.py")
KEY = b"the key of this benchmark"
UID = 1000
WALL_BOUND_MS, CPU_BOUND_MS = 60.0, 25.0
FILE_SYSTEMS = {"xfs": ["mkfs.xfs", "-q", "-m", "reflink=1"], "ext4": ["mkfs.ext4", "-q", "-F"]}
TOOLS = ("mkfs.xfs", "mkfs.ext4", "setsid", "timeout")
CLOCK = SystemClock()
BLOCK_BYTES = 4 << 20
MOST_COPIES = 5


@dataclass
class HookTimes:
    """Milliseconds of each run."""

    wall_ms: list[float]
    cpu_ms: list[float]

    def add(self, taken: tuple[float, float]) -> None:
        self.wall_ms.append(taken[0])
        self.cpu_ms.append(taken[1])

    @property
    def median_ms(self) -> float:
        return statistics.median(self.wall_ms)


def main() -> int:
    parser = Arguments(__doc__)
    parser.add("--runs", 50, 2)
    parser.add("--size", "2GiB", "16MiB", "of the image", read_size)
    parser.add_argument("--python", default=shutil.which("python3", path="/usr/bin:/bin") or sys.executable)
    given = parser.given()
    absent = ", ".join(name for name in TOOLS if shutil.which(name) is None)
    if without_root("to mount file systems") or lacking(absent and f"needs {absent}"):
        return NOT_MEASURED
    version = subprocess.run([given.python, "--version"], capture_output=True, text=True, check=True)
    size = in_words(given.size)
    bounds = f"bounds at the median {WALL_BOUND_MS:.0f} ms wall, {CPU_BOUND_MS:.0f} ms CPU of the hook's own"
    print(f"{version.stdout.strip()}, image of {size}, {given.runs} runs; {bounds}")
    worst = 0.0
    for kind in FILE_SYSTEMS:
        with mounted(kind, given.size) as folder, served(folder) as path:
            name = added(folder, path, given.size)
            worst = max(worst, measure(kind, path, name, given.python, given.runs))
    with mounted("ext4", 2 * given.size) as folder, served(folder) as path:
        name = added(folder, path, given.size, is_disk=False)
        worst = max(worst, measure_copies(path, name, given.python, min(given.runs, MOST_COPIES)))
    return judged(given, is_good=worst <= 1)


@contextmanager
def mounted(kind: str, size_bytes: int) -> Iterator[Path]:
    """A file system of that kind in a file, with room for the image and its instances."""
    with tempfile.TemporaryDirectory(prefix="hook-") as folder:
        image, point = Path(folder) / "disk", Path(folder) / "mnt"
        point.mkdir()
        with image.open("wb") as file:
            file.truncate(size_bytes * 3 // 2 + (1 << 30))
        subprocess.run([*FILE_SYSTEMS[kind], str(image)], check=True, timeout=60)
        subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True, timeout=60)
        try:
            yield point
        finally:
            subprocess.run(["umount", str(point)], check=True, timeout=60)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """A daemon for a pool in that folder; the path of its socket."""
    pool, path = folder / "pool", str(folder.parent / "s")
    ImagePool.create(RealDisk(), str(pool), PoolSettings(limit_bytes=1 << 40, policy="lfu"))
    conf = folder.parent / "conf"
    key = folder.parent / "key"
    key.touch(0o600)
    key.write_bytes(KEY)
    conf.write_text(f"[cachemgr]\npool = {pool}\nsocket = {path}\nlog_level = warning\nrelay_key = {key}\n")
    daemon = subprocess.Popen(
        [sys.executable, "-m", "cachemgr.daemon", "--config", str(conf)], env={"PYTHONPATH": str(ROOT)}
    )
    try:
        until_s = CLOCK.monotonic_s() + 20
        while True:
            try:
                DaemonClient(path).close()
                break
            except NoDaemon:
                if CLOCK.monotonic_s() > until_s:
                    raise
                CLOCK.sleep(0.05)
        yield path
    finally:
        daemon.terminate()
        daemon.wait(20)


def added(folder: Path, path: str, size_bytes: int, *, is_disk: bool = True) -> str:
    """Put an image of real bytes, with a partition table or as a mere file, into the pool; its digest."""
    source = folder.parent / "image"
    digest = hashlib.sha256()
    head = bytes(510) + b"\x55\xaa"
    with source.open("wb") as file:
        for at in range(0, size_bytes, BLOCK_BYTES):
            block = os.urandom(4096) * (BLOCK_BYTES // 4096)
            block = (head + block[512:] if at == 0 and is_disk else block)[: size_bytes - at]
            digest.update(block)
            file.write(block)
    with DaemonClient(path) as client:
        client.ask("add", {"uri": str(source), "digest": digest.hexdigest()}, on_progress=lambda told: None)
    source.unlink()
    return digest.hexdigest()


def measure(kind: str, path: str, name: str, python: str, runs: int) -> float:
    """The larger of the two ratios to their bounds."""
    hook, bare = HookTimes([], []), HookTimes([], [])
    scripts = Scripts(Path(path).parent, path, name, python)
    method = ""
    with DaemonClient(path) as client:
        for number in range(runs + 3):
            owner = f"job:{number}"
            until = str(CLOCK.now_s() + 600)
            job = ["--owner", owner, "--image", name, "--uid", "1000", "--until", until]
            times, answer = run([python, "-I", "-S", HOOK, "prepare", "--socket", path, *job, "--json"])
            method = str(json.loads(answer)["result"]["method"])
            plain, _ = run([python, "-I", "-S", "-c", "pass"])
            client.ask("release", {"owner": owner})
            # The first ones warm the caches of both.
            if number >= 3:
                hook.add(times)
                bare.add(plain)
                scripts.run(number)
    wall, cpu = statistics.median(hook.wall_ms), statistics.median(hook.cpu_ms)
    bare_wall, bare_cpu = statistics.median(bare.wall_ms), statistics.median(bare.cpu_ms)
    slowest = sorted(hook.wall_ms)[int(len(hook.wall_ms) * 0.95)]
    print(
        f"{kind:5} {method:8} wall {wall:5.1f} ms = {wall / WALL_BOUND_MS:.2f} of its bound "
        f"(95th of 100: {slowest:.1f})   CPU {cpu:5.1f} ms = {cpu / CPU_BOUND_MS:.2f} of its bound   "
        f"bare python: wall {bare_wall:.1f}, CPU {bare_cpu:.1f}",
        flush=True,
    )
    print(f"{'':5} slurm    {scripts}", flush=True)
    return max(wall / WALL_BOUND_MS, cpu / CPU_BOUND_MS, scripts.both_median_ms / WALL_BOUND_MS)


def measure_copies(path: str, name: str, python: str, runs: int) -> float:
    """How long a job waits for a full copy that is made then, and for one that was made before."""
    scripts = [Scripts(Path(path).parent, path, name, python) for _ in range(2)]
    made_ms = []
    with DaemonClient(path) as client:
        for number in range(runs):
            scripts[0].run(2 * number)
            began_s = CLOCK.monotonic_s()
            wanted = {
                "name": name,
                "owner": f"reservation:job-{2 * number + 1}",
                "until_s": CLOCK.now_s() + 600,
            }
            while client.ask("copy", wanted)["state"] != "ready":
                CLOCK.sleep(0.01)
            made_ms.append((CLOCK.monotonic_s() - began_s) * 1000)
            scripts[1].run(2 * number + 1)
    while_waiting, before = (each.both_median_ms for each in scripts)
    print(
        f"ext4  file     prolog and task prolog {while_waiting:.0f} ms wall with a copy made in the job's "
        f"time, {before:.1f} = {before / WALL_BOUND_MS:.2f} of their bound with one made before, "
        f"which took {statistics.median(made_ms):.0f} ms   {runs} runs",
        flush=True,
    )
    return before / WALL_BOUND_MS


SCRIPTS = {
    "prolog": "prolog/slurm-prolog",
    "task-prolog": "prolog/slurm-task-prolog",
    "epilog": "epilog/slurm-epilog",
}


class Scripts:
    """Slurm's hooks as whole scripts, with folders of the benchmark's own in place of the node's."""

    def __init__(self, folder: Path, socket: str, digest: str, python: str) -> None:
        self._digest = digest
        self._folder = folder / "outrider"
        self._paths = {}
        for name, source in SCRIPTS.items():
            text = (ROOT / source).read_text()
            for old, new in (
                ("run=/run/outrider", f"run={self._folder}"),
                ("$lib/hook.py claim", f"{HOOK} claim --socket {socket}"),
                ("$lib/hook.py release", f"{HOOK} release --socket {socket}"),
                ("/usr/bin/python3", python),
            ):
                assert name != "prolog" or old in text
                text = text.replace(old, new)
            self._paths[name] = folder / name
            self._paths[name].write_text(text)
            self._paths[name].chmod(0o755)
        self.prolog, self.epilog, self.others = HookTimes([], []), HookTimes([], []), HookTimes([], [])
        self.both_ms: list[float] = []

    def run(self, number: int) -> None:
        """One job of ours, and one that has nothing to do with us."""
        ticket = JobTicket(str(number), UID, self._digest, CLOCK.now_s() + 600)
        ours = {"SLURM_JOB_ID": str(number), "SLURM_JOB_UID": str(UID), "SLURM_JOB_RESTART_COUNT": "0"}
        comment = {"SLURM_JOB_COMMENT": f"outrider-ticket={make_job_ticket(KEY, ticket)}"}
        self.others.add(run([str(self._paths["prolog"])], ours)[0])
        began_s = CLOCK.monotonic_s()
        self.prolog.add(run([str(self._paths["prolog"])], {**ours, **comment})[0])
        # The part of the prolog that stays apart still asks; the task prolog waits for its word.
        _, said = run([str(self._paths["task-prolog"])], ours)
        self.both_ms.append((CLOCK.monotonic_s() - began_s) * 1000)
        if not said.startswith(b"export OUTRIDER_IMAGE=/"):
            raise SystemExit(f"the prolog has made no instance: {said.decode()}")
        self.epilog.add(run([str(self._paths["epilog"])], {**ours, **comment})[0])

    @property
    def both_median_ms(self) -> float:
        return statistics.median(self.both_ms)

    def __str__(self) -> str:
        return (
            f"prolog and task prolog {self.both_median_ms:5.1f} ms wall = "
            f"{self.both_median_ms / WALL_BOUND_MS:.2f} of their bound, the prolog alone "
            f"{self.prolog.median_ms:.1f}, of a job without an image {self.others.median_ms:.1f}   "
            f"epilog {self.epilog.median_ms:.1f}"
        )


def run(
    command: list[str], environment: Mapping[str, str] | None = None
) -> tuple[tuple[float, float], bytes]:
    """Wall and CPU milliseconds of a process, and what it printed."""
    reader, writer = os.pipe()
    begin_s = CLOCK.monotonic_s()
    child = os.posix_spawn(
        command[0], command, environment or {}, file_actions=[(os.POSIX_SPAWN_DUP2, writer, 1)], setsigdef=[]
    )
    _, status, usage = os.wait4(child, 0)
    wall_s = CLOCK.monotonic_s() - begin_s
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        answer = pipe.read()
    if status != 0:
        raise SystemExit(f"{command} failed")
    return (wall_s * 1000, (usage.ru_utime + usage.ru_stime) * 1000), answer


if __name__ == "__main__":
    raise SystemExit(main())
