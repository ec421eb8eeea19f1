"""Commands are run as argument lists, as the right user, and their complaints become the right error."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from outrider.core.model import Resources
from outrider.rms.base import Refused, RmsError, Submission, Unavailable, Unknown
from outrider.rms.commands import SLOW_S, Account, CommandLine, Output, run_process
from outrider.rms.slurm.commands import DIALECT, SlurmCommands, version_in
from outrider.rms.slurm.handing import arguments, record_for, script_of
from outrider.rms.slurm.jobs import SlurmJob, job_in
from outrider.rms.slurm.placing import Places, led
from outrider.rms.slurm.records import JobRecord, NodeWish
from outrider.rms.slurm.reservations import checked

AWAY = (
    "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    "scontrol: error: slurm_receive_msg: Zero Bytes were transmitted or received",
    "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
    "slurm_load_jobs error: Slurm backup controller in standby mode",
    "error: If munged is up, restart with --num-threads=10\nerror: Munge encode failed: Failed to connect",
)
MISSING = (
    "Invalid job id specified for job 77777",
    "Error creating the reservation: Invalid node name specified",
    "sbatch: error: Batch job submission failed: Requested reservation is invalid",
)
NO = (
    "Error creating the reservation: Requested reservation overlaps with another reservation",
    "Access denied to requested reservation for job 5",
    "Job is no longer pending execution for job 14",
    "something that nobody has seen yet",
    "",
)
SUBMISSION = Submission(
    user="alice",
    uid=61001,
    argv=("/opt/a b/run", "it's", '$HOME `id` "x"\n#SBATCH --uid=0'),
    nodes_wanted=2,
    resources=Resources.of(cpus=4, memory_mib=100, gpus=1),
    limit_s=61,
)


@dataclass
class Recorder:
    """A runner that remembers what it was asked for."""

    output: Output = field(default_factory=lambda: Output(0, b"", ""))
    seen: list[tuple[tuple[str, ...], Mapping[str, str], Account | None]] = field(default_factory=list)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        self.seen.append((tuple(argv), environment, account))
        return self.output


@pytest.mark.parametrize("complaint", AWAY)
def test_complaint_of_a_controller_that_is_away_says_ask_again(complaint: str) -> None:
    assert type(DIALECT.trouble(("scontrol",), complaint)) is Unavailable


@pytest.mark.parametrize("complaint", MISSING)
def test_complaint_of_something_missing_is_unknown(complaint: str) -> None:
    assert type(DIALECT.trouble(("scontrol",), complaint)) is Unknown


@pytest.mark.parametrize("complaint", NO)
def test_any_other_complaint_is_a_refusal_in_slurms_own_words(complaint: str) -> None:
    error = DIALECT.trouble(("scontrol", "update"), complaint)

    assert type(error) is Refused
    assert complaint in str(error)
    assert str(error).startswith("scontrol says: ")


def test_command_that_hangs_is_killed_and_unavailable() -> None:
    commands = SlurmCommands(run_process, timeout_s=0.2)

    with pytest.raises(Unavailable, match="did not answer"):
        commands.ask(sys.executable, "-c", "import time; time.sleep(600)")


def test_command_that_is_not_installed_is_named_with_a_remedy() -> None:
    with pytest.raises(RmsError, match="no no-such-command: install"):
        SlurmCommands(run_process).ask("no-such-command")


def test_commands_have_their_own_environment_and_nothing_of_ours() -> None:
    os.environ["OUTRIDER_SECRET"] = "x"
    try:
        printed = SlurmCommands(run_process, configuration="/c/slurm.conf", path="/usr/bin:/bin").ask("env")
    finally:
        del os.environ["OUTRIDER_SECRET"]

    assert sorted(printed.decode().split()) == [
        "LC_ALL=C",
        "PATH=/usr/bin:/bin",
        "SLURM_CONF=/c/slurm.conf",
        "SLURM_TIME_FORMAT=%s",
    ]


def test_user_whose_command_keeps_others_waiting_is_refused_for_some_minutes() -> None:
    class Clock:
        at_s = 5.0

        def monotonic_s(self) -> float:
            return self.at_s

    def stopped(argv: Sequence[str], *, account: Account, **more: object) -> Output:
        seen.append(account.user)
        if account.user == "mallory":
            raise TimeoutError
        return Output(0, b"1\n", "")

    seen: list[str] = []
    clock = Clock()
    commands = CommandLine(stopped, DIALECT, shared={}, own={}, clock=clock)  # type: ignore[arg-type]
    ada, mallory = (Account(user=user, uid=uid, gid=1) for user, uid in (("ada", 1), ("mallory", 2)))
    for _ in range(3):
        with pytest.raises(Refused, match="sbatch of mallory has not ended within 5 s"):
            commands.ask_as(mallory, "sbatch", timeout_s=5)
        commands.ask_as(ada, "sbatch", timeout_s=5)
    # Where nobody else waits it is run as ever.
    with pytest.raises(Unavailable):
        commands.ask_as(mallory, "sbatch")
    clock.at_s += SLOW_S
    with pytest.raises(Refused):
        commands.ask_as(mallory, "sbatch", timeout_s=5)

    assert seen == ["mallory", "ada", "ada", "ada", "mallory", "mallory"]


def test_user_is_not_given_the_services_environment_and_root_becomes_that_user() -> None:
    account = Account(user="alice", uid=61001, gid=61001, home="/srv/alice")
    recorder = Recorder()
    SlurmCommands(recorder).ask_as(account, "sbatch", text="x")
    SlurmCommands(recorder, own_uid=61001).ask_as(account, "sbatch", text="x")

    with pytest.raises(Refused, match="root"):
        SlurmCommands(recorder, own_uid=64030).ask_as(account, "sbatch", text="x")
    assert [seen[2] for seen in recorder.seen] == [account, None]
    assert set(recorder.seen[0][1]) == {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG"}


def test_argument_with_a_zero_byte_reaches_no_command() -> None:
    recorder = Recorder()

    with pytest.raises(Refused):
        SlurmCommands(recorder).ask("scontrol", "update", "Comment=a\0b")
    assert recorder.seen == []


def test_script_runs_exactly_the_command_and_has_no_line_for_sbatch() -> None:
    script = script_of(replace(SUBMISSION, argv=("printf", "%s|", *SUBMISSION.argv)))
    printed = subprocess.run(["sh"], input=script, capture_output=True, text=True, timeout=240, check=True)
    first, command = script.split("\n", 1)

    assert printed.stdout == "".join(f"{each}|" for each in SUBMISSION.argv)
    assert (first, command.startswith("exec ")) == ("#!/bin/sh", True)
    assert shlex.split(command)[1:] == ["printf", "%s|", *SUBMISSION.argv]


def test_arguments_of_sbatch_say_what_was_wanted() -> None:
    found = arguments(SUBMISSION, None, 1000, "/srv/alice")

    assert found == [
        "sbatch", "--parsable", "--requeue", "--chdir=/srv/alice", "--job-name=run", "--nodes=2-2",
        "--ntasks-per-node=1", "--cpus-per-task=4", "--mem=100M", "--gres=gpu:1", "--time=2",
    ]  # fmt: skip


def test_metadata_let_a_job_wait_unless_it_has_a_reservation() -> None:
    best_effort = replace(SUBMISSION, metadata="image: a")
    reserved = replace(best_effort, reservation="render-1")
    waits, starts = record_for(best_effort), record_for(reserved)

    assert (waits is not None and waits.is_held, starts is not None and starts.is_held) == (True, False)
    assert "--begin=uts31537000" in arguments(best_effort, waits, 1000, "/")
    assert not any(each.startswith("--begin") for each in arguments(reserved, starts, 1000, "/"))


@pytest.mark.parametrize(
    "submission",
    [
        replace(SUBMISSION, resources=Resources.of(cpus=1, licences=2)),
        replace(SUBMISSION, limit_s=0),
        replace(SUBMISSION, metadata="".join(chr(300 + number * 7919 % 40_000) for number in range(2000))),
    ],
    ids=("resource", "limit", "metadata"),
)
def test_submission_that_cannot_be_expressed_is_refused(submission: Submission) -> None:
    with pytest.raises(Refused):
        arguments(submission, record_for(submission), 1000, "/")


@pytest.mark.parametrize("name", ["", "a b", "a=b", "-a", "a,b", "a\nb", "x" * 300, "a/b"])
def test_reservation_name_that_could_be_anything_else_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        checked(name)


@pytest.mark.parametrize("words", [b"", b"slurm", b"slurm 21.08.5", b"slurm-wlm 2.5"])
def test_slurm_that_is_too_old_or_no_slurm_is_refused(words: bytes) -> None:
    with pytest.raises(RmsError):
        version_in(words)


def test_job_is_led_by_the_shorter_of_two_ways_and_keeps_its_users_wishes() -> None:
    read = waiting(node_count=2, max_nodes=2)
    wish = replace(read, wish=NodeWish(required="n2", excluded="n9"))

    assert led(read, ("n1", "n2"), ("n1", "n2", "n3")) == NodeWish(required="n[1-2]")
    assert led(read, ("n1", "n2", "n3"), ("n1", "n2", "n3", "n4", "n5")) == NodeWish(excluded="n[4-5]")
    assert led(wish, ("n2", "n3"), ("n1", "n2", "n3")) == NodeWish(required="n[2-3]", excluded="n9")
    assert led(wish, (), ("n1",)) == wish.wish
    with pytest.raises(Refused, match="has to run on n2"):
        led(wish, ("n1", "n3"), ("n1", "n2", "n3"))
    with pytest.raises(Refused, match="wants 2 nodes"):
        led(read, ("n1",), ("n1", "n2", "n3"))
    assert Places(()).eligible(read) == ()


def waiting(**fields: object) -> SlurmJob:
    """A job that waits."""
    row = {"job_id": 7, "job_state": "PENDING", "user_id": 5, "user_name": "a", "submit_time": 1, **fields}
    job = job_in(row, 100)
    assert job is not None
    assert job.record == JobRecord()
    return job
