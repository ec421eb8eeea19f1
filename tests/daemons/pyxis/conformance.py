"""Whether an importer keeps the contract that pyxis publishes for its `importer=` option.

    conformance.py [--uid N] IMPORTER IMAGE UNKNOWN_IMAGE

Runs the importer as pyxis does and prints a line a claim; the exit status is 0 if all hold. The
contract is that of pyxis' importers/README.md and of its importer.c (read at the commits 304bf83
and 26fa047 of github.com/NVIDIA/pyxis): two verbs, run as the job's user, with standard input empty,
one line of standard output read and the rest cut off, standard error shown only upon failure,
`release` called after every `get`, failed or not, and once more at the step's end.

Works with any importer; the standard library alone.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

TIMEOUT_S = 60
MAGIC = b"hsqs"


@dataclass(frozen=True, kw_only=True)
class Called:
    """What pyxis sees of a call."""

    status: int
    line: str
    rest: str
    log: str


@dataclass(frozen=True, kw_only=True)
class Caller:
    """Pyxis in a step's daemon: whose job it is, and where its runtime folder lies."""

    importer: str
    uid: int
    runtime: str
    job: int = 4711
    step: str | None = "0"

    def environment(self) -> dict[str, str]:
        """What is left of the job's environment, and what pyxis adds."""
        found = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/nonexistent",
            "PYTHONPATH": "/nonexistent",
            "SLURM_JOB_ID": str(self.job),
            "SLURM_JOB_UID": str(self.uid),
            "PYXIS_RUNTIME_PATH": self.runtime,
            "PYXIS_VERSION": "0.23.0",
        }
        return found if self.step is None else {**found, "SLURM_STEP_ID": self.step}

    def start(self, *words: str, log: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        ids: dict[str, object] = {}
        if os.geteuid() == 0:
            ids = {"user": self.uid, "group": self.uid, "extra_groups": []}
        process: subprocess.Popen[bytes] = subprocess.Popen(
            [self.importer, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env=self.environment(),
            cwd="/",
            **ids,  # type: ignore[call-overload]
        )
        return process

    def call(self, *words: str, reads_on: bool = True) -> Called:
        """Run it. Pyxis takes the first line and closes its end; `reads_on` looks at the rest as well."""
        with tempfile.TemporaryFile() as log:
            process = self.start(*words, log=log.fileno())
            pipe = process.stdout
            assert pipe is not None
            line = pipe.readline()
            rest = pipe.read() if reads_on else b""
            pipe.close()
            try:
                status = process.wait(TIMEOUT_S)
            finally:
                process.kill()
                process.wait()
            log.seek(0)
            texts = (each.decode(errors="replace") for each in (line, rest, log.read()))
        return Called(status=status, line=next(texts), rest=next(texts), log=next(texts))

    def get(self, image: str) -> Called:
        return self.call("get", image)

    def release(self) -> Called:
        return self.call("release")


def head_of(caller: Caller, path: str) -> str:
    """The first bytes of a file as the job's user reads them."""
    words = ["/usr/bin/head", "-c", str(len(MAGIC)), "--", path]
    ids: dict[str, object] = {}
    if os.geteuid() == 0:
        ids = {"user": caller.uid, "group": caller.uid, "extra_groups": []}
    found = subprocess.run(words, capture_output=True, timeout=TIMEOUT_S, **ids)  # type: ignore[call-overload]
    return str(found.stdout.decode(errors="replace"))


def claims(caller: Caller, image: str, unknown: str) -> dict[str, Callable[[], object]]:
    """Each claim with what must be true of it, in the order in which they are tried."""
    other = Caller(importer=caller.importer, uid=caller.uid, runtime=caller.runtime, step="1")
    batch = Caller(importer=caller.importer, uid=caller.uid, runtime=caller.runtime, step=None)

    def is_squashfs(called: Called) -> bool:
        path = called.line.rstrip("\n")
        is_line = called.status == 0 and called.line == f"{path}\n" and path.startswith("/")
        return is_line and head_of(caller, path) == MAGIC.decode()

    def killed() -> bool:
        process = caller.start("get", image)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=TIMEOUT_S)
        return caller.release().status == 0 and is_squashfs(caller.get(image))

    def held_by_another() -> bool:
        mine, others = caller.get(image), other.get(image)
        released = caller.release().status == 0 and is_squashfs(others)
        return is_squashfs(mine) and released and other.release().status == 0

    return {
        "release before any get succeeds": lambda: caller.release().status == 0,
        "get prints the absolute path of a squashfs file that the user can read": lambda: is_squashfs(
            caller.get(image)
        ),
        "get prints nothing but the path": lambda: caller.get(image).rest == "",
        "get may be called again for the same step": lambda: is_squashfs(caller.get(image)),
        "get survives a reader that stops after one line": lambda: (
            caller.call("get", image, reads_on=False).status == 0
        ),
        "release succeeds": lambda: caller.release().status == 0,
        "release succeeds when called again": lambda: caller.release().status == 0,
        "get works after a release": lambda: is_squashfs(caller.get(image)),
        "release of one step leaves another step its file": held_by_another,
        "get of an unknown image fails, with words on standard error alone": lambda: is_refusal(
            caller.get(unknown)
        ),
        "release after a failed get succeeds": lambda: caller.release().status == 0,
        "get works after one that was killed": killed,
        "a batch script, whose step has no number, is served": lambda: is_squashfs(batch.get(image)),
        "and can give back": lambda: batch.release().status == 0 and caller.release().status == 0,
        "an unknown verb fails": lambda: caller.call("fetch", image).status != 0,
        "get without an image fails": lambda: caller.call("get").status != 0,
    }


def is_refusal(called: Called) -> bool:
    return called.status != 0 and called.line == "" and called.log.strip() != ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Try an importer of pyxis against the published contract.")
    parser.add_argument("importer")
    parser.add_argument("image", help="an image that it can bring, as pyxis would say it")
    parser.add_argument("unknown", help="one that it cannot")
    parser.add_argument("--uid", type=int, default=os.geteuid() or 65534, help="whose job it is, for root")
    parser.add_argument("--runtime", help="pyxis' runtime_path (default: a temporary folder)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="pyxis-") as folder:
        runtime = options.runtime or folder
        os.chmod(folder, 0o755)
        own = f"{runtime}/{options.uid}"
        if not os.path.isdir(own):
            os.mkdir(own, 0o700)
            os.chown(own, options.uid, options.uid if os.geteuid() == 0 else -1)
        caller = Caller(importer=options.importer, uid=options.uid, runtime=runtime)
        failed = 0
        for claim, holds in claims(caller, options.image, options.unknown).items():
            is_so = bool(holds())
            failed += not is_so
            sys.stdout.write(f"{'ok    ' if is_so else 'FAILED'} {claim}\n")
    sys.stdout.write(f"{failed} failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
