"""The embedded batch system with real processes, in clock time that a test lets pass."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from outrider.core.model import Resources
from outrider.rms.base import (
    JobState,
    NodeState,
    Refused,
    RmsJob,
    RmsNode,
    RmsReservation,
    Submission,
    Unavailable,
)
from outrider.rms.embedded import EmbeddedHooks, EmbeddedSystem, ProcessLauncher
from outrider.rms.embedded.journal import JournalError
from outrider.rms.embedded.launching import Command
from outrider.rms.twin import NotReady
from tests.contract.embedded_harness import Quiet
from tests.contract.twin_harness import SetClock
from tests.daemons.node.daemons import eventually, needs_root

CAPACITY = Resources.of(cpus=4)
NODES = tuple(RmsNode(name=f"n{number}", capacity=CAPACITY) for number in (1, 2))
Start = Callable[..., EmbeddedSystem]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that users can enter, since jobs are not root's."""
    path = Path(tempfile.mkdtemp(prefix="embedded-"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def launcher(folder: Path) -> ProcessLauncher:
    return ProcessLauncher(folder / "jobs")


@pytest.fixture
def start(folder: Path, clock: SetClock, launcher: ProcessLauncher) -> Iterator[Start]:
    started: list[EmbeddedSystem] = []

    def begin(
        hooks: EmbeddedHooks | None = None, nodes: tuple[RmsNode, ...] = NODES, path: Path | None = None
    ) -> EmbeddedSystem:
        if started:
            # The service before is gone, and its commands are nobody's.
            started[-1].stop()
        found = EmbeddedSystem(
            nodes, path or folder / "journal", clock=clock, launcher=launcher, log=Quiet(), hooks=hooks
        )
        started.append(found)
        return found

    yield begin
    if started:
        started[-1].stop(ends_jobs=True)


def submission(
    *argv: str, limit_s: int | None = 3600, nodes_wanted: int = 1, reservation: str | None = None
) -> Submission:
    return Submission(
        user="root",
        uid=os.geteuid(),
        argv=argv,
        nodes_wanted=nodes_wanted,
        resources=CAPACITY,
        limit_s=limit_s,
        reservation=reservation,
    )


def shell(text: str, **wanted: int) -> Submission:
    return submission("/bin/sh", "-c", text, **wanted)  # type: ignore[arg-type]


def found(system: EmbeddedSystem, key: str) -> RmsJob | None:
    return next((job for job in system.look().jobs if job.key == key), None)


def state(system: EmbeddedSystem, key: str) -> JobState:
    job = found(system, key)
    return JobState.ENDED if job is None else job.state


def pass_time(system: EmbeddedSystem, clock: SetClock, seconds: int = 1) -> None:
    for _ in range(seconds):
        clock.sleep(1)
        system.tick()


def run(system: EmbeddedSystem, clock: SetClock, wanted: Submission) -> str:
    """A job that has begun."""
    key = system.submit(wanted)
    pass_time(system, clock)
    assert state(system, key) is JobState.RUNNING
    return key


def await_end(system: EmbeddedSystem, clock: SetClock, key: str) -> None:
    def has_ended() -> bool:
        pass_time(system, clock)
        return state(system, key) is JobState.ENDED

    eventually(f"job {key} has ended", has_ended)


def pid_in(path: Path) -> int:
    eventually("the job has written its number", lambda: path.exists() and path.read_text().endswith("\n"))
    return int(path.read_text())


def process_state(pid: int) -> str:
    """Its letter in /proc; nothing if it is gone, or only waits to be buried."""
    try:
        letter = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if letter in "ZX" else letter


def test_job_runs_with_what_it_is_told_and_nothing_else(
    start: Start, clock: SetClock, launcher: ProcessLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_SERVICE", "sesame")
    system = start(EmbeddedHooks(image_of=lambda job: f"/pool/{job.nodes[0]}"))
    clock_s = clock.now_s()
    system.reserve(
        RmsReservation(
            name="render-1", nodes=("n1", "n2"), start_s=clock_s, end_s=clock_s + 600, users=("root",)
        )
    )
    key = run(system, clock, submission("/usr/bin/env", nodes_wanted=2, reservation="render-1"))
    await_end(system, clock, key)
    told = dict(line.split("=", 1) for line in launcher.output_of(key).read_text().splitlines())

    assert {name: text for name, text in told.items() if name.startswith("OUTRIDER_")} == {
        "OUTRIDER_JOB": key,
        "OUTRIDER_NODES": "n1,n2",
        "OUTRIDER_RESERVATION": "render-1",
        "OUTRIDER_IMAGE": "/pool/n1",
    }
    assert set(told) - set(os.environ) <= {name for name in told if name.startswith("OUTRIDER_")} | {
        "USER",
        "LOGNAME",
        "LANG",
    }
    assert "SECRET_OF_THE_SERVICE" not in told


def test_arguments_are_no_shells_words(start: Start, clock: SetClock, launcher: ProcessLauncher) -> None:
    awkward = ("$HOME; `id`", "a  b", "", "*", "ü\n")
    system = start()
    key = run(system, clock, submission("/usr/bin/printf", "<%s>", *awkward))
    await_end(system, clock, key)

    assert launcher.output_of(key).read_text() == "".join(f"<{each}>" for each in awkward)


def test_command_that_does_not_exist_says_so_in_its_output(
    start: Start, clock: SetClock, launcher: ProcessLauncher
) -> None:
    system = start()
    key = run(system, clock, submission("/no/such/command"))
    await_end(system, clock, key)

    assert "/no/such/command cannot be run: No such file" in launcher.output_of(key).read_text()


def test_jobs_of_others_run_as_their_users(start: Start, clock: SetClock, launcher: ProcessLauncher) -> None:
    needs_root()
    system = start()
    wanted = submission("/bin/sh", "-c", "id -u; id -g; id -G; umask")
    key = system.submit(
        Submission(
            user="nobody",
            uid=65534,
            argv=wanted.argv,
            nodes_wanted=1,
            resources=CAPACITY,
            limit_s=60,
        )
    )
    await_end(system, clock, key)

    assert launcher.output_of(key).read_text().split() == ["65534", "65534", "65534", "0022"]
    assert launcher.output_of(key).stat().st_uid == 65534


def test_service_that_is_not_root_runs_no_job_of_another(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = start()
    other = os.geteuid() + 61001
    monkeypatch.setattr(os, "geteuid", lambda: other)

    with pytest.raises(Refused, match="only a service that runs as root can run jobs of others"):
        system.submit(
            Submission(
                user="root", uid=0, argv=("/bin/true",), nodes_wanted=1, resources=CAPACITY, limit_s=60
            )
        )


@pytest.mark.parametrize(
    ("argv", "why"), [((), "needs a command"), (("x" * 200_000,), "at most"), (("a\0b",), "zero byte")]
)
def test_impossible_commands_are_refused(start: Start, argv: tuple[str, ...], why: str) -> None:
    with pytest.raises(Refused, match=why):
        start().submit(submission(*argv))


def test_limit_ends_a_job_with_all_that_it_has_started(start: Start, clock: SetClock, folder: Path) -> None:
    system = start()
    path = folder / "pid"
    key = run(system, clock, shell(f"sleep 300 & echo $! > {path}; trap '' TERM; wait; sleep 300", limit_s=5))
    pid = pid_in(path)
    was = process_state(pid)
    pass_time(system, clock, 5 + 3)

    assert was != ""
    assert state(system, key) is JobState.ENDED
    eventually("what it had started is gone", lambda: process_state(pid) == "")


def test_job_is_told_before_it_is_killed(
    start: Start, clock: SetClock, launcher: ProcessLauncher, folder: Path
) -> None:
    system = start()
    text = f"trap 'echo goodbye; exit' TERM; echo $$ > {folder / 'pid'}; while :; do sleep 0.05; done"
    key = run(system, clock, shell(text))
    pid_in(folder / "pid")
    system.cancel(key, "its user wants so")
    eventually("it has said goodbye", lambda: "goodbye" in launcher.output_of(key).read_text())
    await_end(system, clock, key)

    assert state(system, key) is JobState.ENDED


def test_what_a_job_leaves_behind_ends_with_it(start: Start, clock: SetClock, folder: Path) -> None:
    system = start()
    key = run(system, clock, shell(f"sleep 300 & echo $! > {folder / 'pid'}"))
    pid = pid_in(folder / "pid")
    await_end(system, clock, key)

    eventually("the rest is gone", lambda: process_state(pid) == "")
    assert state(system, key) is JobState.ENDED


def test_suspended_job_stands_still_and_goes_on(start: Start, clock: SetClock, folder: Path) -> None:
    system = start()
    # Without a fork: a shell that is stopped in the middle of one waits for its child in state D.
    key = run(system, clock, shell(f"echo $$ > {folder / 'pid'}; exec sleep 300"))
    pid = pid_in(folder / "pid")
    system.suspend(key)
    eventually("it stands still", lambda: process_state(pid) == "T")
    suspended = state(system, key)
    other = run(system, clock, submission("/bin/sleep", "300", nodes_wanted=2))
    system.cancel(other, "it was in the way")
    pass_time(system, clock, 3)
    system.resume(key)
    pass_time(system, clock)

    assert suspended is JobState.SUSPENDED
    assert state(system, key) is JobState.RUNNING
    eventually("it goes on", lambda: process_state(pid) == "S")


def test_restarted_service_finds_its_jobs_and_ends_them_when_they_end(
    start: Start, clock: SetClock, folder: Path
) -> None:
    system = start()
    gate = folder / "gate"
    os.mkfifo(gate)
    key = run(system, clock, shell(f"echo $$ > {folder / 'pid'}; read line < {gate}"))
    waiting = system.submit(submission("/bin/sleep", "300", nodes_wanted=2))
    pid = pid_in(folder / "pid")
    again = start()
    pass_time(again, clock, 3)
    states = (state(again, key), state(again, waiting), process_state(pid))
    gate.write_text("go\n")
    await_end(again, clock, key)

    assert states == (JobState.RUNNING, JobState.PENDING, "S")
    eventually("its nodes are the next one's", lambda: state(again, waiting) is JobState.RUNNING)
    assert again.submit(submission("/bin/true")) == "3"


def test_restarted_service_kills_what_has_to_go(start: Start, clock: SetClock, folder: Path) -> None:
    system = start()
    key = run(system, clock, shell(f"echo $$ > {folder / 'pid'}; sleep 300"))
    pid = pid_in(folder / "pid")
    again = start()
    again.cancel(key, "its user wants so")
    pass_time(again, clock, 3)

    assert state(again, key) is JobState.ENDED
    eventually("it is gone", lambda: process_state(pid) == "")


def test_job_whose_command_ended_while_the_service_was_away_has_ended(
    start: Start, clock: SetClock, folder: Path
) -> None:
    system = start()
    key = run(
        system, clock, shell(f"sleep 300 & echo $! > {folder / 'rest'}; echo $$ > {folder / 'pid'}; wait")
    )
    pid, rest = pid_in(folder / "pid"), pid_in(folder / "rest")
    system.tick()
    system.stop()
    os.kill(pid, 9)
    eventually("it is gone", lambda: process_state(pid) == "")
    was = process_state(rest)
    again = start()
    pass_time(again, clock, 3)

    assert was != ""
    assert state(again, key) is JobState.ENDED
    eventually("so is what it had started", lambda: process_state(rest) == "")
    assert "gone when the service came back" in (again.outside.why_ended(key) or "")


def test_later_process_of_the_same_number_is_not_taken_for_the_job(launcher: ProcessLauncher) -> None:
    handle = launcher.launch(Command(job="1", uid=os.geteuid(), argv=("/bin/sleep", "300"), variables={}))
    try:
        pid, ticks, boot = handle.identity.split(" ")

        assert launcher.adopt(handle.identity) is not None
        assert launcher.adopt(f"{pid} {int(ticks) - 1} {boot}") is None
        assert launcher.adopt(f"{pid} {ticks} another-boot") is None
        assert launcher.adopt("nonsense") is None
    finally:
        handle.kill()
    assert handle.is_over()


def test_command_that_was_launched_and_not_let_go_never_runs(launcher: ProcessLauncher, folder: Path) -> None:
    done = folder / "done"
    handle = launcher.launch(Command(job="1", uid=os.geteuid(), argv=("/bin/touch", str(done)), variables={}))
    handle.leave()
    eventually("it has ended", lambda: launcher.adopt(handle.identity) is None)

    assert not done.exists()


def test_job_that_cannot_be_written_down_is_not_begun(start: Start, clock: SetClock, folder: Path) -> None:
    state_folder = folder / "state"
    state_folder.mkdir()
    system = start(path=state_folder / "journal")
    key = system.submit(submission("/bin/touch", str(folder / "done")))
    shutil.rmtree(state_folder)

    with pytest.raises(Unavailable, match="cannot write"):
        pass_time(system, clock)
    with pytest.raises(Unavailable, match="cannot write"):
        system.look()
    assert not (folder / "done").exists()
    state_folder.mkdir()
    await_end(system, clock, key)
    assert (folder / "done").exists()


def test_node_that_is_not_ready_gets_no_command(start: Start, clock: SetClock, folder: Path) -> None:
    told: list[str] = []

    def prolog(job: RmsJob, node: str) -> NotReady | None:
        told.append(f"prolog {node}")
        return NotReady("the image is not here") if node == "n2" else None

    system = start(EmbeddedHooks(prolog=prolog, epilog=lambda job, node: told.append(f"epilog {node}")))
    key = system.submit(submission("/bin/touch", str(folder / "done"), nodes_wanted=2))
    pass_time(system, clock, 3)

    assert state(system, key) is JobState.HELD
    assert system.outside.shown(key) == "the image is not here"
    assert told == ["prolog n1", "prolog n2", "epilog n1", "epilog n2"]
    assert not (folder / "done").exists()


def test_epilog_finds_no_process_of_the_job(start: Start, clock: SetClock, folder: Path) -> None:
    seen: list[str] = []
    path = folder / "pid"
    system = start(EmbeddedHooks(epilog=lambda job, node: seen.append(process_state(int(path.read_text())))))
    key = run(system, clock, shell(f"trap '' TERM; echo $$ > {path}; while :; do sleep 0.05; done"))
    pid_in(path)
    system.cancel(key, "its user wants so")
    pass_time(system, clock, 3)

    assert seen == [""]


def test_drained_node_stays_so_over_a_restart(start: Start) -> None:
    system = start()
    system.outside.drain("n2")
    system.tick()

    assert [node.state for node in start().look().nodes] == [NodeState.UP, NodeState.DRAINED]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"version":2}', '{"version":1}', '{"version":1,"last_number":0,"nodes":[],"jobs":[]}'],
)
def test_damaged_journal_is_never_taken_for_an_empty_one(start: Start, folder: Path, text: str) -> None:
    (folder / "journal").write_text(text)

    with pytest.raises(JournalError, match="move"):
        start()
    assert (folder / "journal").read_text() == text


def test_node_that_is_not_configured_any_more_is_named(start: Start, clock: SetClock) -> None:
    system = start()
    run(system, clock, submission("/bin/sleep", "300", nodes_wanted=2))

    with pytest.raises(JournalError, match="n2, of which the configuration says nothing"):
        start(nodes=NODES[:1])
    start()


def test_time_passes_by_itself_once_started(folder: Path, launcher: ProcessLauncher) -> None:
    system = EmbeddedSystem(NODES, folder / "journal", clock=SystemClock(), launcher=launcher, log=Quiet())
    system.start()
    try:
        key = system.submit(submission("/bin/touch", str(folder / "done")))
        eventually("it has run", (folder / "done").exists)
        eventually("it has ended", lambda: state(system, key) is JobState.ENDED)
    finally:
        system.stop(ends_jobs=True)

    assert system.outside.why_ended(key) == "done"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_signal_reaches_the_command_and_a_requeued_one_begins_anew(
    folder: Path, start: Start, clock: SetClock, *, is_restarted: bool
) -> None:
    system = start()
    told, begun = folder / "told", folder / "begun"
    text = f"trap 'echo told >>{told}' USR1; echo $$ >>{begun}; while :; do sleep 0.1; done"
    key = run(system, clock, shell(text))
    pid_in(begun)
    if is_restarted:
        system = start()
    before = found(system, key)
    assert before is not None
    assert before.start_s is not None

    system.signal(key, "USR1", before.start_s)
    eventually("the job was told", told.exists)
    system.requeue(key, before.start_s, "it makes way")
    pass_time(system, clock, 5)
    waiting = state(system, key)
    system.release(key)
    pass_time(system, clock, 3)
    eventually("it has begun anew", lambda: len(begun.read_text().split()) == 2)

    assert waiting is JobState.HELD
    assert told.read_text() == "told\n"
    assert state(system, key) is JobState.RUNNING
