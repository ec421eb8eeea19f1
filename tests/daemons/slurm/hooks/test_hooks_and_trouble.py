"""The node's hooks when things go wrong: never a status that drains a node, always a word for the user."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from tests.daemons.node.daemons import CLOCK, eventually, needs_root
from tests.daemons.slurm.hooks.node import (
    Node,
    going,
    mode_of,
    node,
    processes_of,
    stopped,
    ticket,
)
from tests.daemons.slurm.hooks.site import CONTENT, DIGEST, UID


@pytest.fixture
def bare() -> Iterator[Node]:
    """A node without a daemon."""
    needs_root()
    with node() as found:
        yield found


@pytest.fixture(scope="module")
def one() -> Iterator[Node]:
    needs_root()
    with node() as found:
        yield found


@pytest.fixture
def served(one: Node) -> Node:
    """One with a daemon, which is started again when a test has ended it."""
    one.restore()
    return one


def asking_of(node: Node) -> list[int]:
    """The processes of the prolog's part that asks, each the first of its group."""
    return processes_like(node.hooks["Prolog"], "apart")


def processes_like(*words: object) -> list[int]:
    """Those that were begun with these words side by side."""
    mark = "\0".join(map(str, words)).encode()
    found = [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark in text_of(path)]
    return [int(path.parent.name) for path in found]


def text_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def check_fails_the_job_alone(node: Node, words: str) -> None:
    """The task prolog tells the user, and after the epilog nothing is left."""
    task = node.task()
    epilog = node.run("Epilog")

    assert task.returncode == 3, task.stdout
    assert task.stdout.startswith("print outrider: ")
    assert task.stdout.count("\n") == 1
    assert words in task.stdout
    assert (epilog.returncode, node.files()) == (0, [])


def test_instance_is_made_told_and_taken_away(served: Node) -> None:
    prolog = served.run("Prolog")
    told = served.told / "jobs" / "17"
    task, path = served.task(), told.read_text().strip()
    content, owner, held = Path(path).read_bytes(), mode_of(told), served.instances()
    epilog = served.run("Epilog")

    assert (prolog.returncode, prolog.stdout, prolog.stderr) == (0, "", "")
    assert (task.returncode, task.stdout) == (0, f"export OUTRIDER_IMAGE={path}\n")
    assert content == CONTENT
    assert owner == (0o644, 0)
    assert held == ["job-17"]
    assert (epilog.returncode, served.files(), served.instances()) == (0, [], [])


def test_hooks_start_nothing_for_jobs_of_others(bare: Node) -> None:
    if shutil.which("strace") is None:
        if os.environ.get("CI"):
            pytest.fail("strace is missing in CI: install it")
        pytest.skip("strace is not installed")
    mine = {"SLURM_JOB_COMMENT": "my own words"}

    assert processes_of(bare, "Prolog", **mine) == []
    assert processes_of(bare, "Epilog", **mine) == []
    assert processes_of(bare, "TaskProlog", **mine) == []
    assert processes_of(bare, "PrologSlurmctld", **mine) == []


def test_job_of_others_leaves_no_trace(served: Node) -> None:
    prolog = served.run("Prolog", SLURM_JOB_COMMENT="")
    task = served.task()

    assert (prolog.returncode, task.returncode, task.stdout) == (0, 0, "")
    assert not (served.told / "jobs").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("/usr/bin/python3", "/usr/bin/no-python", "lacks a program"),
        ("hook.py claim", "no-hook.py claim", "can't open file"),
        ("timeout --foreground -k", "no-timeout -k", "lacks a program"),
        ("--timeout 30", "--nonsense", "has no option"),
    ],
)
def test_node_that_lacks_something_says_so(served: Node, old: str, new: str, words: str) -> None:
    served.patch("Prolog", old, new)
    prolog = served.run("Prolog")

    assert prolog.returncode == 0
    check_fails_the_job_alone(served, words)


def test_daemon_that_is_restarted_is_waited_for(served: Node) -> None:
    assert served.daemon is not None
    served.daemon.process.kill()
    served.daemon.process.wait()
    with ThreadPoolExecutor() as pool:
        prolog = pool.submit(served.run, "Prolog")
        eventually("it asks", lambda: bool(asking_of(served)))
        served.serve()
        done = prolog.result()
    task = served.task()

    assert done.returncode == 0
    assert task.returncode == 0, task.stdout
    assert task.stdout.startswith("export OUTRIDER_IMAGE=/")
    served.run("Epilog")


def test_node_without_a_daemon_says_so(bare: Node) -> None:
    bare.patch("Prolog", "--timeout 30", "--timeout 1")
    prolog = bare.run("Prolog")
    failed = bare.told / "failed" / "17"

    assert prolog.returncode == 0
    # What is wrong with an image is nobody else's business.
    assert mode_of(failed) == (0o600, UID)
    check_fails_the_job_alone(bare, "no daemon answers at")


def test_daemon_that_hangs_is_not_waited_for_long(served: Node) -> None:
    assert served.daemon is not None
    served.patch("Prolog", "--timeout 30", "--timeout 1")
    served.patch("Epilog", "--timeout 15", "--timeout 1")
    stopped(served.daemon)
    begin_s = CLOCK.monotonic_s()
    prolog = served.run("Prolog")
    took_s = CLOCK.monotonic_s() - begin_s

    assert prolog.returncode == 0
    assert took_s < 20
    check_fails_the_job_alone(served, "no daemon answers at")
    going(served.daemon)


def test_hook_that_hangs_is_ended(served: Node) -> None:
    (served.folder / "lib" / "hook.py").write_text("while True: pass\n")
    served.patch("Prolog", "-k 2 1800", "-k 2 0.3")
    prolog = served.run("Prolog")

    assert prolog.returncode == 0
    assert "nothing was answered in time" in served.task().stdout


def test_hook_that_is_killed_fails_the_job(served: Node) -> None:
    (served.folder / "lib" / "hook.py").write_text("import os; os.kill(os.getpid(), 9)\n")
    prolog = served.run("Prolog")

    assert prolog.returncode == 0
    assert served.task().returncode == 3


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        (f"outrider-ticket={ticket(b'o' * 32)}", "was not signed"),
        (f"outrider-ticket={ticket(digest='0' * 64)}", "is not on this node"),
        (f"outrider-ticket={ticket()} and more", "cannot be read"),
        ("outrider-ticket=", "needs a value"),
        ("outrider-ticket=none", "somebody let the job start"),
        ("outrider-ticket=--help", "cannot be read"),
        ("outrider-ticket=$(touch /tmp/hn-owned) `id`; rm -rf /", "cannot be read"),
        ('outrider-ticket="}{"\\', "cannot be read"),
        ("outrider-ticket=\n1.2.3", "printable characters"),
        ("outrider-ticket=" + "9" * 1000, "cannot be read"),
    ],
)
def test_comment_is_data_and_nothing_else(served: Node, comment: str, words: str) -> None:
    prolog = served.run("Prolog", SLURM_JOB_COMMENT=comment)

    assert prolog.returncode == 0
    assert not Path("/tmp/hn-owned").exists()
    assert served.instances() == []
    check_fails_the_job_alone(served, words)


def test_job_that_waits_for_its_ticket_does_not_begin_in_a_reservation_without_image(served: Node) -> None:
    comment = "mine outrider-ticket=none"
    prolog = served.run("Prolog", SLURM_JOB_COMMENT=comment, SLURM_JOB_RESERVATION="other")

    assert prolog.returncode == 0
    check_fails_the_job_alone(served, "no image is held on this node for reservation other")


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_JOB_ID": "../../../etc/17"},
        {"SLURM_JOB_ID": "17 18"},
        {"SLURM_JOB_ID": ""},
        {"SLURM_JOB_ID": "12345678901"},
        {"SLURM_JOB_UID": "root"},
        {"SLURM_JOB_UID": ""},
        {"SLURM_JOB_RESTART_COUNT": "1; reboot"},
    ],
)
def test_what_is_no_number_is_left_alone(served: Node, changes: dict[str, str]) -> None:
    prolog, epilog = served.run("Prolog", **changes), served.run("Epilog", **changes)

    assert (prolog.returncode, epilog.returncode) == (0, 0)
    assert (served.files(), served.instances()) == ([], [])


def test_full_disk_fails_the_job_and_leaves_nothing(served: Node) -> None:
    full = (
        "mkdir -p /run/outrider/jobs /run/outrider/failed; "
        "mount -t tmpfs -o size=4k tmpfs /run/outrider/jobs; echo x >/run/outrider/jobs/fill; "
        "mount -t tmpfs -o size=4k tmpfs /run/outrider/failed; echo x >/run/outrider/failed/fill"
    )
    task, epilog = served.hooks["TaskProlog"], served.hooks["Epilog"]
    look = f"{task}; echo $?; {epilog}; ls /run/outrider/jobs /run/outrider/failed"
    prolog = served.run("Prolog", full, look)

    assert prolog.returncode == 0
    said = prolog.stdout.splitlines()
    assert said[0].startswith("print outrider: ")
    assert said[1] == "3"
    assert [line for line in said[2:] if line and not line.endswith(":")] == ["fill", "fill"]
    assert served.instances() == []


def test_killed_prolog_lets_no_task_begin_and_the_epilog_cleans_up(served: Node) -> None:
    assert served.daemon is not None
    stopped(served.daemon)
    served.patch("TaskProlog", "turns=310", "turns=3")
    prolog = served.begin("Prolog")
    eventually("the prolog asks", lambda: bool(asking_of(served)))
    prolog.wait()
    for pid in asking_of(served):
        os.killpg(pid, signal.SIGKILL)
    going(served.daemon)
    task = served.task()
    epilog = served.run("Epilog")

    assert task.returncode == 3
    assert "has not finished" in task.stdout
    assert (epilog.returncode, served.files(), served.instances()) == (0, [], [])


def test_prolog_does_not_wait_and_the_task_does(served: Node) -> None:
    assert served.daemon is not None
    stopped(served.daemon)
    prolog = served.begin("Prolog")
    status = prolog.wait(60)
    # As slurmd does when a prolog has ended.
    with suppress(ProcessLookupError):
        os.killpg(prolog.pid, signal.SIGKILL)
    before = served.files()
    with ThreadPoolExecutor(1) as threads:
        task = threads.submit(served.task)
        eventually("the task's prolog waits", lambda: bool(processes_like(served.hooks["TaskProlog"])))
        is_early = task.done()
        going(served.daemon)
        said = task.result()

    assert status == 0
    assert before == ["jobs/17", "jobs/17.new-0"]
    assert not is_early
    assert (said.returncode, said.stdout[:22]) == (0, "export OUTRIDER_IMAGE=")


def test_task_waits_as_long_as_bytes_are_copied(served: Node) -> None:
    # One look is all that it has, but for a word about bytes.
    served.patch("TaskProlog", "turns=310 before=", "turns=1 before=")
    jobs = served.told / "jobs"
    jobs.mkdir(exist_ok=True)
    (jobs / "17").touch()
    (jobs / "17.new-0").write_text("5 of 9 MiB are copied\n")
    with ThreadPoolExecutor(1) as threads:
        task = threads.submit(served.task)
        eventually("the task's prolog waits", lambda: bool(processes_like(served.hooks["TaskProlog"])))
        (jobs / "17.new-0").write_text("/pool/disk\n")
        (jobs / "17.new-0").rename(jobs / "17")
        said = task.result()
    waiting = served.told / "jobs" / "17.new-0"
    (jobs / "17").write_text("")
    waiting.touch()
    silent = served.task()

    assert (said.returncode, said.stdout) == (0, "export OUTRIDER_IMAGE=/pool/disk\n")
    assert (silent.returncode, "has not finished" in silent.stdout) == (3, True)


def test_late_answer_to_an_earlier_start_is_not_this_ones(served: Node) -> None:
    assert served.daemon is not None
    stopped(served.daemon)
    earlier = served.begin("Prolog")
    eventually("the earlier prolog asks", lambda: bool(asking_of(served)))
    late = asking_of(served)
    for pid in late:
        os.kill(pid, signal.SIGSTOP)
    going(served.daemon)
    later = served.run("Prolog", SLURM_JOB_RESTART_COUNT="1")
    path = (served.told / "jobs" / "17").read_text()
    for pid in late:
        os.kill(pid, signal.SIGCONT)
    eventually("the earlier prolog has its answer", lambda: not asking_of(served))

    assert (earlier.wait(60), later.returncode) == (0, 0)
    assert (served.told / "jobs" / "17").read_text() == path
    assert Path(path.strip()).read_bytes() == CONTENT
    assert served.files() == ["jobs/17"]


def test_job_that_ends_before_its_prolog_keeps_nothing(served: Node) -> None:
    assert served.daemon is not None
    served.patch("Epilog", "--timeout 15", "--timeout 1")
    stopped(served.daemon)
    prolog = served.begin("Prolog")
    eventually("the prolog asks", lambda: bool(asking_of(served)))
    epilog = served.run("Epilog")
    going(served.daemon)
    eventually("the prolog has given back what it got", lambda: not asking_of(served))

    assert epilog.returncode == 0
    assert prolog.wait(60) == 0
    assert (served.files(), served.instances()) == ([], [])


def test_word_of_an_earlier_start_is_taken_back(served: Node) -> None:
    wrong = f"outrider-ticket={ticket(b'o' * 32)}"
    served.run("Prolog", SLURM_JOB_COMMENT=wrong)
    failed = served.task()
    served.run("Prolog", SLURM_JOB_RESTART_COUNT="1")
    task = served.task()

    assert failed.returncode == 3
    assert task.returncode == 0
    assert served.files() == ["jobs/17"]


def test_second_start_without_an_epilog_has_a_fresh_copy(served: Node) -> None:
    served.run("Prolog")
    first = Path((served.told / "jobs" / "17").read_text().strip())
    first.write_bytes(b"changed")
    served.run("Prolog", SLURM_JOB_RESTART_COUNT="1")
    second = Path((served.told / "jobs" / "17").read_text().strip())

    assert second.read_bytes() == CONTENT
    assert served.instances() == ["job-17"]


@pytest.mark.parametrize("times", [1, 2])
def test_epilog_may_come_without_a_prolog_and_again(served: Node, times: int) -> None:
    served.run("Prolog")
    done = [served.run("Epilog") for _ in range(times)]
    never = served.run("Epilog", SLURM_JOB_ID="18")
    empty = served.run("Epilog", **dict.fromkeys(("SLURM_JOB_ID", "SLURM_JOB_UID", "SLURM_JOB_COMMENT"), ""))

    assert {each.returncode for each in (*done, never, empty)} == {0}
    assert (served.files(), served.instances()) == ([], [])


def test_epilog_without_a_daemon_ends_well(served: Node) -> None:
    served.run("Prolog")
    served.end()
    epilog = served.run("Epilog")

    assert (epilog.returncode, served.files()) == (0, [])


def test_mounts_that_root_made_for_a_daemon_are_undone_by_root(bare: Node) -> None:
    said = bare.folder / "said"
    program = (
        "import sys\n"
        f"open({str(said)!r}, 'a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        "sys.exit(0 if '--mounter' in sys.argv else 8)\n"
    )
    bare.patch("Prolog", "--timeout 30", "--timeout 1")
    bare.run("Prolog")
    (bare.folder / "lib" / "hook.py").write_text(program)
    epilog = bare.run("Epilog")

    assert epilog.returncode == 0
    asked = said.read_text().splitlines()
    assert [each.split()[:3] for each in asked] == [["release", "--owner", "job-17"]] * 2
    assert ["--mounter" in each for each in asked] == [False, True]


def test_reservation_of_others_is_none_of_our_business(served: Node) -> None:
    theirs = {"SLURM_JOB_COMMENT": "", "SLURM_JOB_RESERVATION": "maintenance"}
    prolog = served.run("Prolog", **theirs)
    task = served.task()
    served.end()
    without = served.run("Prolog", **theirs)

    assert (prolog.returncode, without.returncode, task.returncode, task.stdout) == (0, 0, 0, "")
    assert served.files() == []


def test_reservation_of_ours_stands_for_a_ticket(served: Node) -> None:
    assert served.daemon is not None
    until_s = CLOCK.now_s() + 600
    served.daemon.ask("pin", name=DIGEST, owner="reservation:render-1", until_s=until_s)
    served.run("Prolog", SLURM_JOB_COMMENT="", SLURM_JOB_RESERVATION="render-1")
    task = served.task()

    assert task.stdout.startswith("export OUTRIDER_IMAGE=/")
    assert served.instances() == ["job-17"]


def test_folders_of_words_are_roots(served: Node) -> None:
    served.run("Prolog")

    assert [mode_of(served.told / name) for name in ("jobs", "failed")] == [(0o755, 0)] * 2
