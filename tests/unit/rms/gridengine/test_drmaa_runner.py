"""What is asked of DRMAA, what stays with the commands, and what a session's end means."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence

import pytest

from outrider.core.model import Resources
from outrider.rms.base import Submission
from outrider.rms.commands import Account, Output
from outrider.rms.gridengine import GridEngineSettings, submitting
from outrider.rms.gridengine.drmaa_runner import DrmaaRunner, request_of

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


def runner(program: str) -> DrmaaRunner:
    def start(argv: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, bufsize=0)

    return DrmaaRunner(by_command, start=start)


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
def test_what_drmaa_has_no_words_for_stays_with_the_commands(argv: Sequence[str]) -> None:
    made = runner(DYING)

    assert request_of(argv) is None
    assert made(argv, environment={}, timeout_s=1).text == b"by command"


def test_session_is_kept_and_its_answers_are_those_of_a_command() -> None:
    made = runner(ANSWERING)
    found = [made(["qsub", "-N", each, "sleep"], environment={}, timeout_s=20) for each in ("a", "b")]
    made.close()

    assert found == [Output(0, b"-N a\n", ""), Output(0, b"-N b\n", "")]


def test_complaint_is_a_commands_failure() -> None:
    made = runner(COMPLAINING)
    found = made(["qdel", "9"], environment={}, timeout_s=20)
    made.close()

    assert (found.code, "does not exist" in found.complaint) == (1, True)


def test_session_that_dies_leaves_open_whether_it_was_done_and_the_next_is_another() -> None:
    made = runner(DYING)

    for _ in range(2):
        with pytest.raises(TimeoutError):
            made(["qdel", "9"], environment={}, timeout_s=20)


def test_library_that_does_not_load_is_named_with_its_remedy() -> None:
    assert "install gridengine-drmaa1.0" in runner(UNLOADABLE).check({})
