"""What is asked of DRMAA, what stays with the commands, and what a session's end means."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest

from outrider.core.model import Resources
from outrider.rms.base import Submission
from outrider.rms.commands import Account, Output
from outrider.rms.gridengine import GridEngineSettings, drmaa_runner, submitting
from outrider.rms.gridengine.drmaa_runner import MOST_SESSIONS, DrmaaRunner, request_of

SETTINGS = GridEngineSettings(account="outrider", environments=((2, "two"),), checkpoint="save")
# Sessions that answer, complain, or are gone.
ANSWERING = """import json, sys
print(json.dumps({"said": "ready"}), flush=True)
for line in sys.stdin:
    print(json.dumps({"said": json.loads(line)["native"]}), flush=True)
"""
COMPLAINING = """import json, sys
print(json.dumps({"said": "ready"}), flush=True)
for line in sys.stdin:
    print(json.dumps({"error": "InvalidJobException: code 18: no does not exist"}), flush=True)
"""
DYING = """import json
print(json.dumps({"said": "ready"}), flush=True)
input()
"""
UNLOADABLE = """import json
print(json.dumps({"error": "ImportError: libdrmaa"}), flush=True)
"""


def submission(metadata: str | None) -> Submission:
    return Submission(
        user="alice",
        uid=61001,
        argv=("sleep", "1 2", "it's"),
        nodes_wanted=2,
        resources=Resources.of(cpus=2),
        limit_s=60,
        metadata=metadata,
        tag="t-1",
    )


def by_command(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    text: bytes = b"",
    account: Account | None = None,
) -> Output:
    return Output(0, b"by command", "")


class Clock:
    """Is told what time it is."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def monotonic_s(self) -> float:
        return self.at_s


class Sessions:
    """A runner whose sessions are this program."""

    def __init__(self, program: str) -> None:
        self.clock, self.told, self.begun = Clock(), list[str](), list[subprocess.Popen[bytes]]()
        self._program = program
        self.run = DrmaaRunner(
            by_command, "/lib.so", clock=self.clock, told=self.told.append, start=self._start
        )

    def _start(self, argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        assert environment["DRMAA_LIBRARY_PATH"] == "/lib.so"
        pipe = subprocess.PIPE
        words = [sys.executable, "-c", self._program]
        self.begun.append(subprocess.Popen(words, stdin=pipe, stdout=pipe, bufsize=0))
        return self.begun[-1]


@pytest.fixture
def sessions() -> Iterator[Callable[[str], Sessions]]:
    made: list[Sessions] = []

    def make(program: str) -> Sessions:
        made.append(Sessions(program))
        return made[-1]

    yield make
    for each in made:
        each.run.close()


def user(uid: int) -> Account:
    return Account(user=f"u{uid}", uid=uid, gid=uid)


def test_all_that_is_written_for_qsub_is_said_to_drmaa() -> None:
    argv = submitting.arguments(submission("image: http://h/a b"), SETTINGS, 60, ["-ar", "7", "-q", "ar.q"])
    request = request_of(argv)

    assert request is not None
    assert (request["submit"], request["arguments"]) == ("sleep", ["1 2", "it's"])
    native = str(request["native"])
    assert "-terse" not in native
    assert native.startswith("-w e -r y -N outrider -b y -pe two 4 -ar 7 -q ar.q -l h_rt=60,")
    assert native.endswith("-ac OUTRIDER_TAG=t-1")


@pytest.mark.parametrize(
    "argv",
    [
        ("qsub", "-b", "y", "-ac", "OUTRIDER=it's", "sleep"),
        ("qsub", "-sync", "y", "sleep"),
        ("qsub", "-b", "y"),
        ("qdel", "-f", "7"),
        ("qmod", "-cj", "7"),
        ("qalter", "-h", "s", "7"),
    ],
)
def test_what_drmaa_has_no_words_for_stays_with_the_commands(
    sessions: Callable[[str], Sessions], argv: Sequence[str]
) -> None:
    made = sessions(DYING)

    assert request_of(argv) is None
    assert made.run(argv, environment={}, timeout_s=1).text == b"by command"
    assert made.begun == []


def test_session_is_kept_while_it_is_used_and_its_answers_are_those_of_a_command(
    sessions: Callable[[str], Sessions],
) -> None:
    made = sessions(ANSWERING)
    found = []
    for later_s in (0, 9, 9, 10):
        made.clock.at_s += later_s
        found.append(made.run(["qsub", "-N", f"j{later_s}", "sleep"], environment={}, timeout_s=20))

    assert [each.text for each in found] == [b"-N j0\n", b"-N j9\n", b"-N j9\n", b"-N j10\n"]
    # One that has rested for long may have outlived its qmaster.
    assert [each.poll() is None for each in made.begun] == [False, True]


def test_complaint_is_a_commands_failure(sessions: Callable[[str], Sessions]) -> None:
    found = sessions(COMPLAINING).run(["qdel", "9"], environment={}, timeout_s=20)

    assert (found.code, "does not exist" in found.complaint) == (1, True)


def test_session_that_dies_leaves_open_whether_it_was_done_and_the_next_is_another(
    sessions: Callable[[str], Sessions],
) -> None:
    made = sessions(DYING)

    for _ in range(2):
        with pytest.raises(TimeoutError):
            made.run(["qdel", "9"], environment={}, timeout_s=20)
    assert len(made.begun) == 2


@pytest.mark.parametrize("program", [UNLOADABLE, "", "input()"])
def test_without_a_session_the_commands_do_it_and_another_one_is_tried_a_minute_later(
    sessions: Callable[[str], Sessions], program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drmaa_runner, "START_S", 1.0)
    made = sessions(program)

    for later_s in (0, 59, 1):
        made.clock.at_s += later_s
        assert made.run(["qdel", "9"], environment={}, timeout_s=20) == Output(0, b"by command", "")
    assert len(made.begun) == 2
    assert all("DRMAA" in words for words in made.told)
    assert len(made.told) == 2


def test_library_that_does_not_load_is_named_with_its_remedy(sessions: Callable[[str], Sessions]) -> None:
    made = sessions(UNLOADABLE)

    assert not made.run.has_session({})
    assert ["ImportError: libdrmaa: see whether sge_qmaster runs" in words for words in made.told] == [True]


def test_nobody_waits_for_the_session_of_a_user_who_has_stopped_it(
    sessions: Callable[[str], Sessions],
) -> None:
    made = sessions(ANSWERING)
    made.run(["qsub", "sleep"], environment={}, timeout_s=20, account=user(1))
    made.begun[0].send_signal(signal.SIGSTOP)
    failed = threading.Event()

    def ask_in_vain() -> None:
        # More than a pipe holds.
        with pytest.raises(TimeoutError):
            made.run(["qsub", "sleep", "x" * 200_000], environment={}, timeout_s=2, account=user(1))
        failed.set()

    other = threading.Thread(target=ask_in_vain)
    other.start()
    found = [made.run(["qsub", "sleep"], environment={}, timeout_s=20, account=user(2)) for _ in range(3)]
    was_first = not failed.is_set()
    other.join()

    assert [each.code for each in found] == [0, 0, 0]
    assert was_first
    assert failed.is_set()
    assert made.begun[0].poll() == -signal.SIGKILL


def test_sessions_that_nobody_uses_end_when_there_are_too_many(sessions: Callable[[str], Sessions]) -> None:
    made = sessions(ANSWERING)
    for uid in range(1, MOST_SESSIONS + 3):
        made.run(["qsub", "sleep"], environment={}, timeout_s=20, account=user(uid))

    assert [each.poll() is None for each in made.begun] == [False] * 2 + [True] * MOST_SESSIONS
