"""Submission and control by DRMAA, where its library loads: a runner in the place of qsub, qdel, qmod -sj.

Whatever else is asked, and what DRMAA has no words for, goes to the commands.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from outrider.rms.commands import Account, Output, Runner

LIBRARY = "/usr/lib/gridengine-drmaa/lib/libdrmaa.so.1.0"
# Its allocator wants more of a thread's own memory than a library that is loaded late is given.
TUNABLES = "glibc.rtld.optional_static_tls=16384"
SESSION = Path(__file__).with_name("drmaa_session.py")
MOST_SESSIONS = 8
MOST_LINE_BYTES = 1 << 20
START_S = 20.0
# How many words follow each option that submitting.py writes.
WORDS = {
    "-terse": 0,
    "-w": 1,
    "-r": 1,
    "-N": 1,
    "-b": 1,
    "-ar": 1,
    "-q": 1,
    "-ac": 1,
    "-l": 1,
    "-ckpt": 1,
    "-pe": 2,
}
UNSAID = ("-terse",)

Start = Callable[[Sequence[str], Mapping[str, str]], "subprocess.Popen[bytes]"]
"""Begins a process with pipes for its input and output."""


def start_process(argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=pipe, stdout=pipe, env=dict(environment), cwd="/", bufsize=0)


class DrmaaRunner:
    """Runs commands, and those that DRMAA knows by a session of the user who asks."""

    def __init__(
        self,
        run: Runner,
        *,
        start: Start = start_process,
        python: str = sys.executable,
        library: str = LIBRARY,
    ) -> None:
        self._run = run
        self._start = start
        self._python = python
        self._library = library
        self._sessions: OrderedDict[tuple[int, int], DrmaaProcess] = OrderedDict()
        self._guard = threading.Lock()

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        request = request_of(argv)
        if request is None:
            return self._run(argv, environment=environment, timeout_s=timeout_s, text=text, account=account)
        with self._guard:
            answer = self._session(environment, account).ask(request, timeout_s)
        if "error" in answer:
            return Output(1, b"", answer["error"])
        return Output(0, (answer.get("said", "") + "\n").encode(), "")

    def check(self, environment: Mapping[str, str]) -> str:
        """Why there is no session, or nothing if there is one."""
        try:
            with self._guard:
                self._session(environment, None)
        except OSError as error:
            return str(error)
        return ""

    def close(self) -> None:
        with self._guard:
            while self._sessions:
                self._sessions.popitem()[1].close()

    def _session(self, environment: Mapping[str, str], account: Account | None) -> DrmaaProcess:
        uid, gid = (os.geteuid(), os.getegid()) if account is None else (account.uid, account.gid)
        found = self._sessions.get((uid, gid))
        if found is None or not found.is_alive:
            while len(self._sessions) >= MOST_SESSIONS:
                self._sessions.popitem(last=False)[1].close()
            groups = ",".join(map(str, () if account is None else account.groups))
            argv = [self._python, "-I", str(SESSION), str(uid), str(gid), groups]
            more = {"DRMAA_LIBRARY_PATH": self._library, "GLIBC_TUNABLES": TUNABLES}
            found = self._sessions[uid, gid] = DrmaaProcess(self._start(argv, {**environment, **more}))
            found.greet()
        self._sessions.move_to_end((uid, gid))
        return found


class DrmaaProcess:
    """A session's process, spoken to in lines."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def greet(self) -> None:
        """Waits for the session. Raises OSError with the library's words if there is none."""
        said = self._read(START_S)
        if "error" in said:
            self.close()
            raise OSError(
                f"DRMAA does not load: {said['error']}: install gridengine-drmaa1.0 and, in a clone of "
                "Outrider, pip install '.[gridengine]'"
            )

    def ask(self, request: Mapping[str, object], timeout_s: float) -> dict[str, str]:
        """Its answer. Raises TimeoutError if there is none: nobody knows whether it was done."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
        except OSError as error:
            self.close()
            raise TimeoutError("the DRMAA session has ended") from error
        return self._read(timeout_s)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self, timeout_s: float) -> dict[str, str]:
        assert self._process.stdout is not None
        data = b""
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
            more = os.read(self._process.stdout.fileno(), 65536) if ready else b""
            data += more
            if not more or len(data) > MOST_LINE_BYTES:
                self.close()
                raise TimeoutError("the DRMAA session does not answer, and was ended")
        found: dict[str, str] = json.loads(data)
        return found


def request_of(argv: Sequence[str]) -> dict[str, object] | None:
    """What a command asks of DRMAA; nothing, if only the command can do it."""
    if argv[0] == "qdel" and len(argv) == 2:
        return {"control": argv[1], "action": "TERMINATE"}
    if argv[0] == "qmod" and argv[1:-1] == ["-sj"] and len(argv) == 3:
        return {"control": argv[2], "action": "SUSPEND"}
    return _submission(argv[1:]) if argv[0] == "qsub" else None


def _submission(words: Sequence[str]) -> dict[str, object] | None:
    native: list[str] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        more = WORDS.get(words[at])
        if more is None:
            return None
        if words[at] not in UNSAID:
            native += words[at : at + 1 + more]
        at += 1 + more
    # It takes the command for the first word of the rest, and quotes as a shell does.
    if at >= len(words) or any(set(word) & set("\"'\\\n") for word in native):
        return None
    text = " ".join(f'"{word}"' if " " in word else word for word in native)
    return {"submit": words[at], "arguments": list(words[at + 1 :]), "native": text}
