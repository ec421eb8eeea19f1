"""Processes that are services at once: forked from one that has imported everything already.

    python3 preloaded.py

reads lines. `start LOG OPTION…` forks a process that goes on as `outriderd OPTION…` with its
stderr at the end of LOG, and answers its number; `reap PID` waits for its end and answers its
exit code, negative for a signal. What such a service lacks is only the start of Python and the
imports, most of the time that a start takes; killing it there is left to services begun from nothing.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib import import_module

from outrider.service.daemon.main import main
from testbed.preloaded import LATE


def serve(log: str, *options: str) -> int:
    """In the forked process, from here on a service of its own."""
    os.setsid()
    os.chdir(os.path.dirname(log))
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    os.close(nothing)
    stderr = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(stderr, 2)
    os.close(stderr)
    return main(options)


def start(log: str, *options: str) -> int:
    pid = os.fork()
    if pid == 0:
        code = 70
        try:
            code = serve(log, *options)
        finally:
            sys.stderr.flush()
            os._exit(code)
    return pid


def answer(line: str) -> int:
    verb, *rest = line.split()
    if verb == "start":
        return start(*rest)
    _, status = os.waitpid(int(rest[0]), 0)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    for name in LATE:
        import_module(name)
    gc.freeze()
    for line in sys.stdin:
        sys.stdout.write(f"{answer(line)}\n")
        sys.stdout.flush()
