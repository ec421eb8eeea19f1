"""outriderd on a host at once: forked from a process that has imported everything, which enters the host.

What such a service lacks is only the start of Python and the imports, two seconds of a processor and most of
what a start costs. Services that are started as sites start them are left to tests of that. As a program,
`python3 preloaded.py outrider.service` reads lines of JSON, each with the words of one `begin`, and answers
nothing, or what went wrong.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import subprocess
import sys
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.service.daemon.main import main

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn

# What `main` imports once it has understood its options, and what is imported when it is first needed.
LATE = (
    "outrider.service.daemon.capabilities",
    "outrider.service.daemon.configuration.files",
    "outrider.service.daemon.life",
    "outrider.service.daemon.world.backends",
    "outrider.store.postgresql",
    "pydantic.v1",
    "uvicorn.lifespan.on",
    "uvicorn.loops.asyncio",
    "uvicorn.protocols.http.h11_impl",
)
REPOSITORY = Path(__file__).resolve().parents[1]
# Last, what would hide the others from whoever has entered it.
SPACES = ("uts", "ipc", "net", "pid", "mnt")
FOLDERS = ("/run/testbed", "/run/outrider", "/var/log/testbed")
END_S = 60
MOST_FILES = 256


class PreloadedService:
    """The process that services are forked from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "outrider.service"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "LC_ALL": "C.UTF-8"},
            text=True,
        )

    def begin(self, first: int, name: str, options: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start one on the host of that first process, under a name as `Cluster.start` does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        told = {"first": first, "name": name, "options": options, "environment": environment}
        self._process.stdin.write(f"{json.dumps(told)}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if answer != "\n":
            raise RuntimeError(f"{name} cannot be forked: {answer.strip() or 'its parent has ended'}")

    def close(self) -> None:
        for each in (self._process.stdin, self._process.stdout):
            assert each is not None
            each.close()
        self._process.wait(END_S)


@cache
def preloaded() -> PreloadedService:
    """One for all sites of this process."""
    found = PreloadedService()
    atexit.register(found.close)
    return found


def begin(first: int, name: str, options: list[str], environment: dict[str, str]) -> str:
    """Nothing, when it goes on and its number is where others look for it."""
    heard, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(heard)
            _enter(first)
            # Only its children are in the host's space of processes.
            if os.fork() == 0:
                _serve(told, name, options, environment)
        except BaseException as error:  # noqa: BLE001
            os.write(told, repr(error).encode())
        os._exit(0)
    os.close(told)
    os.waitpid(pid, 0)
    with os.fdopen(heard, errors="replace") as answer:
        said = answer.read()
    return "" if said == "begun" else f"{said} "


def _enter(first: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    opened = [os.open(f"/proc/{first}/ns/{space}", os.O_RDONLY) for space in SPACES]
    for each in opened:
        if library.setns(each, 0) != 0:
            raise OSError(ctypes.get_errno(), f"the host of process {first} cannot be entered")
        os.close(each)


def _serve(told: int, name: str, options: list[str], environment: dict[str, str]) -> NoReturn:
    code = 70
    try:
        os.setsid()
        os.umask(0o022)
        for folder in FOLDERS:
            os.makedirs(folder, exist_ok=True)
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = os.open(f"/var/log/testbed/{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for number, source in enumerate((nothing, log, log)):
            os.dup2(source, number)
        Path(f"/run/testbed/{name}.pid").write_text(f"{os.getpid()}\n")
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(environment["HOME"])
        os.write(told, b"begun")
        os.closerange(3, MOST_FILES)
        code = main(options)
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for each in LATE:
        import_module(each)
    gc.freeze()
    for line in sys.stdin:
        sys.stdout.write(f"{begin(**json.loads(line))}\n")
        sys.stdout.flush()
