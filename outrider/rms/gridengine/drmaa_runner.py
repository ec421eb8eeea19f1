"""Submission and control by DRMAA, where its library loads: a runner in the place of qsub, qdel, qmod -sj.

Whatever else is asked, and what DRMAA has no words for, goes to the commands; so does everything while there
is no session. A session is a process of the user in whose name it asks: nobody waits for another user's.
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

from cachemgr.base.clock import MonotonicClock
from outrider.rms.commands import Account, Output, Runner
from outrider.rms.gridengine.mending import Told, nobody

# Its allocator wants more of a thread's own memory than a library that is loaded late is given.
TUNABLES = "glibc.rtld.optional_static_tls=16384"
SESSION = Path(__file__).with_name("drmaa_session.py")
MOST_SESSIONS = 8
MOST_LINE_BYTES = 1 << 20
START_S = 20.0
IDLE_S = 10.0
"""A session that rested for so long is not used again: one that has outlived its qmaster may not answer
the next request, and nobody sees which. Another one begins in a twentieth of a second."""
AGAIN_S = 60.0
"""So long after a session could not begin no other one is tried."""
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
    # What the library complains of, it says in its answers, too.
    return subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=dict(environment),
        cwd="/",
        bufsize=0,
    )


class DrmaaRunner:
    """Runs commands, and those that DRMAA knows by a session of the user who asks."""

    def __init__(
        self,
        run: Runner,
        library: str,
        *,
        clock: MonotonicClock,
        told: Told = nobody,
        start: Start = start_process,
        python: str = sys.executable,
    ) -> None:
        """`told` hears why there is no session."""
        self._run = run
        self._library = library
        self._clock = clock
        self._told = told
        self._start = start
        self._python = python
        self._sessions: OrderedDict[_Key, _UserSession] = OrderedDict()
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
        if request is not None:
            session = self._session(account)
            with session.turn:
                process = self._process(session, environment)
                if process is not None:
                    answer = process.ask(request, timeout_s)
                    session.used_s = self._clock.monotonic_s()
                    return _output(answer)
        return self._run(argv, environment=environment, timeout_s=timeout_s, text=text, account=account)

    def has_session(self, environment: Mapping[str, str]) -> bool:
        """Whether there is one for the user of this process; if not, `told` has heard why."""
        session = self._session(None)
        with session.turn:
            return self._process(session, environment) is not None

    def close(self) -> None:
        with self._guard:
            sessions, self._sessions = self._sessions, OrderedDict()
        for session in sessions.values():
            with session.turn:
                session.end()

    def _session(self, account: Account | None) -> _UserSession:
        """The user's, with or without a process. Others that nobody uses end, if they are too many."""
        groups = () if account is None else account.groups
        uid, gid = (os.geteuid(), os.getegid()) if account is None else (account.uid, account.gid)
        key = uid, gid, groups
        with self._guard:
            found = self._sessions.setdefault(key, _UserSession(key))
            self._sessions.move_to_end(key)
            for other in list(self._sessions)[:-MOST_SESSIONS]:
                session = self._sessions[other]
                if session.turn.acquire(blocking=False):
                    del self._sessions[other]
                    session.end()
                    session.turn.release()
        return found

    def _process(self, session: _UserSession, environment: Mapping[str, str]) -> DrmaaProcess | None:
        """Its process, which is begun if there is none; None if it does not begin."""
        process, now_s = session.process, self._clock.monotonic_s()
        if process is not None and process.is_alive:
            if now_s - session.used_s < IDLE_S:
                return process
            process.close()
        if session.failed_s is not None and now_s - session.failed_s < AGAIN_S:
            return None
        uid, gid, groups = session.key
        argv = [self._python, "-I", str(SESSION), str(uid), str(gid), ",".join(map(str, groups))]
        more = {"DRMAA_LIBRARY_PATH": self._library, "GLIBC_TUNABLES": TUNABLES}
        try:
            process = DrmaaProcess(self._start(argv, {**environment, **more}))
            process.greet()
        except OSError as error:
            session.failed_s, session.process = now_s, None
            self._told(str(error))
            return None
        session.process, session.used_s = process, now_s
        return process


_Key = tuple[int, int, tuple[int, ...]]
"""The user, the group, and all groups with whose rights a session asks."""


class _UserSession:
    """One user's process, for one who asks at a time."""

    def __init__(self, key: _Key) -> None:
        self.key = key
        self.turn = threading.Lock()
        self.process: DrmaaProcess | None = None
        self.used_s = 0.0
        self.failed_s: float | None = None
        """When none could be begun."""

    def end(self) -> None:
        if self.process is not None:
            self.process.close()


def _output(answer: Mapping[str, str]) -> Output:
    """What a command would have printed."""
    if "error" in answer:
        return Output(1, b"", answer["error"])
    return Output(0, (answer.get("said", "") + "\n").encode(), "")


class DrmaaProcess:
    """A session's process, spoken to in lines."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._requests, self._answers = process.stdin.fileno(), process.stdout.fileno()
        # Its user can stop it, and then it reads nothing.
        os.set_blocking(self._requests, False)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def greet(self) -> None:
        """Waits for the session. Raises OSError with the library's words if there is none."""
        said = self._read(START_S)
        if "error" in said:
            self.close()
            raise OSError(
                f"DRMAA does not load: {said['error']}: see whether sge_qmaster runs, and whether "
                "backend.gridengine.drmaa is its library"
            )

    def ask(self, request: Mapping[str, object], timeout_s: float) -> dict[str, str]:
        """Its answer. Raises TimeoutError if there is none: nobody knows whether it was done."""
        left = memoryview(json.dumps(request).encode() + b"\n")
        while left:
            _, can_write, _ = select.select([], [self._requests], [], timeout_s)
            try:
                written = os.write(self._requests, left) if can_write else 0
            except OSError:
                written = 0
            if not written:
                raise self._end("takes no request")
            left = left[written:]
        return self._read(timeout_s)

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self, timeout_s: float) -> dict[str, str]:
        data = b""
        while not data.endswith(b"\n"):
            ready, _, _ = select.select([self._answers], [], [], timeout_s)
            more = os.read(self._answers, 65536) if ready else b""
            data += more
            if not more or len(data) > MOST_LINE_BYTES:
                raise self._end("does not answer")
        found: dict[str, str] = json.loads(data)
        return found

    def _end(self, what: str) -> TimeoutError:
        self.close()
        return TimeoutError(f"the DRMAA session {what}, and was ended")


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
