"""A site's own program: what it is asked, what its answers mean, and what bounds it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import pytest

from outrider.core.model import Image, Resources, Workspace
from outrider.metadata.decision import Allowed, PolicyRefusal, Requester
from outrider.metadata.external import (
    MOST_OUTPUT_BYTES,
    ProgramError,
    ProgramResult,
    Run,
    ask,
    program_runner,
)
from outrider.metadata.policies import ExternalSection, Policies, parse_policies

ADA = Requester(user="ada", groups=("staff",), account="physics")
REQUEST = Workspace(
    name="web",
    instances=10,
    resources=Resources.of(cpus=1),
    start_s=2000,
    duration_s=3600,
    image=Image(uri="web.qcow2", size_bytes=1000),
)
Program = Callable[[str], str]


def answering(exit_code: int, stdout: bytes = b"", stderr: bytes = b"") -> Run:
    def run(arguments: Sequence[str], question: bytes, timeout_s: int) -> ProgramResult:
        return ProgramResult(exit_code=exit_code, stdout=stdout, stderr=stderr)

    return run


def failing(arguments: Sequence[str], question: bytes, timeout_s: int) -> ProgramResult:
    raise ProgramError(f"{arguments[0]} cannot be started: no such file")


def external(when_it_fails: str = "refuse") -> ExternalSection:
    return ExternalSection.model_validate(
        {"command": ["/bin/ask", "--site", "x"], "timeout": "5s", "when_it_fails": when_it_fails}
    )


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Writes a shell script that can be run."""

    def make(body: str) -> str:
        path = tmp_path / "ask"
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


@pytest.fixture
def policies(policies_text: str) -> Policies:
    return parse_policies(policies_text.encode(), file="p.yaml")


def test_exit_0_allows() -> None:
    assert ask(external(), REQUEST, ADA, answering(0, b"whatever"), now_s=1000) == Allowed(rule="external")


def test_exit_1_with_a_reason_refuses_on_one_line() -> None:
    answer = ask(
        external(), REQUEST, ADA, answering(1, b'{"reason": "licences\\nare \\u001b[31mused up"}'), now_s=1000
    )

    assert answer == PolicyRefusal(
        rule="external", sentence="the site's own policy: licences are �[31mused up"
    )


def test_reason_is_cut_to_a_bounded_length() -> None:
    reason = json.dumps({"reason": "x" * 5000}).encode()
    answer = ask(external(), REQUEST, ADA, answering(1, reason), now_s=1000)

    assert isinstance(answer, PolicyRefusal)
    assert len(answer.sentence) < 600


@pytest.mark.parametrize(
    "run",
    [
        answering(1),
        answering(1, b"", b"Traceback (most recent call last):\nKeyError: 'user'\n"),
        answering(1, b"no"),
        answering(1, b"[]"),
        answering(1, b'{"reason": 3}'),
        answering(1, b'{"reason": " "}'),
        answering(1, b"[" * 10_000),
        answering(1, b"\xff"),
        answering(2, b'{"reason": "no"}'),
        answering(-9, b'{"reason": "no"}'),
        answering(127, b'{"reason": "no"}'),
        failing,
    ],
)
def test_anything_else_is_a_failure_that_the_policies_decide_about(run: Run) -> None:
    refused = ask(external(), REQUEST, ADA, run, now_s=1000)
    allowed = ask(external("allow"), REQUEST, ADA, run, now_s=1000)

    assert isinstance(refused, PolicyRefusal)
    assert "gave no answer" in refused.sentence
    assert "tell the administrators" in refused.sentence
    assert isinstance(allowed, Allowed)
    assert allowed.remark
    assert refused.remark == allowed.remark


def test_failure_quotes_what_the_program_said_last() -> None:
    answer = ask(
        external(), REQUEST, ADA, answering(1, b"", b"Traceback:\n  x\nKeyError: 'user'\n"), now_s=1000
    )

    assert isinstance(answer, PolicyRefusal)
    assert "exit 1, \"KeyError: 'user'\"" in answer.sentence


def test_program_gets_arguments_and_the_request_as_json() -> None:
    seen: list[tuple[Sequence[str], bytes, int]] = []

    def run(arguments: Sequence[str], question: bytes, timeout_s: int) -> ProgramResult:
        seen.append((arguments, question, timeout_s))
        return ProgramResult(exit_code=0, stdout=b"", stderr=b"")

    ask(external(), REQUEST, ADA, run, now_s=1000)

    arguments, question, timeout_s = seen[0]
    assert list(arguments) == ["/bin/ask", "--site", "x"]
    assert timeout_s == 5
    assert json.loads(question) == {
        "version": 1,
        "now_s": 1000,
        "who": {"user": "ada", "groups": ["staff"], "account": "physics"},
        "workspace": "web",
        "nodes": 10,
        "start_s": 2000,
        "duration_s": 3600,
        "finish_by_s": None,
        "image_uri": "web.qcow2",
        "image_digest": "",
        "image_size_bytes": 1000,
    }


def test_process_is_run_with_its_question_and_a_bare_environment(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "token")
    path = program('cat; echo "[$SECRET] $1 $(pwd)" >&2; exit 1')

    finished = program_runner(perf_counter)([path, "a b; id"], b"question\n", 30)

    assert finished == ProgramResult(exit_code=1, stdout=b"question\n", stderr=b"[] a b; id /\n")


def test_program_that_ignores_its_question_is_no_fault(program: Program) -> None:
    finished = program_runner(perf_counter)([program("exit 0")], b"x" * 1_000_000, 30)

    assert finished.exit_code == 0


def test_missing_program_is_said() -> None:
    with pytest.raises(ProgramError, match="/nonexistent/ask cannot be started: No such file"):
        program_runner(perf_counter)(["/nonexistent/ask"], b"", 30)


def test_program_that_writes_without_end_is_stopped(program: Program) -> None:
    with pytest.raises(ProgramError, match=f"wrote more than {MOST_OUTPUT_BYTES} bytes"):
        program_runner(perf_counter)([program("yes")], b"", 30)


def ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def wait_for_the_end(number: Path) -> None:
    pid = int(number.read_text())
    started = perf_counter()
    while not ended(pid):
        assert perf_counter() - started < 30, f"process {pid} is still there"


def test_slow_program_is_killed_with_its_children(program: Program, tmp_path: Path) -> None:
    # Its time is over as soon as it has a child.
    number = tmp_path / "child"
    path = program(f"sleep 300 & echo $! > {number}.part; mv {number}.part {number}; echo ready; wait")

    with pytest.raises(ProgramError, match="did not close its output in time"):
        program_runner(lambda: 100.0 if number.exists() else 0.0)([path], b"", 30)

    wait_for_the_end(number)


def test_program_that_closes_its_output_and_stays_is_killed(program: Program, tmp_path: Path) -> None:
    number = tmp_path / "itself"
    path = program(f"echo $$ > {number}.part; mv {number}.part {number}; exec >&- 2>&-; exec sleep 300")

    with pytest.raises(ProgramError, match=r"did not (end within 30 s|close its output in time)"):
        program_runner(lambda: 100.0 if number.exists() else 0.0)([path], b"", 30)

    wait_for_the_end(number)
