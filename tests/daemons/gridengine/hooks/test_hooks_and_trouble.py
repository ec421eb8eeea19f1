"""The node's hooks when things go wrong: 0, 99 or 100 whatever happens, and always a word for the user."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from outrider.service.nodes.agent import tell_daemon
from outrider.service.ports import Release, TellNode
from tests.daemons.gridengine.hooks.node import Node, node, ticket
from tests.daemons.node.daemons import CLOCK, eventually, needs_root
from tests.daemons.slurm.hooks.site import CONTENT, DIGEST, UID

LATER, FAILED = 99, 100


@pytest.fixture(scope="module")
def one() -> Iterator[Node]:
    needs_root()
    with node() as found:
        yield found


@pytest.fixture
def served(one: Node) -> Node:
    one.restore()
    return one


@pytest.fixture
def bare(one: Node) -> Node:
    """Without a daemon."""
    one.restore()
    one.end()
    return one


def check_fails_the_job_alone(node: Node, said: str, words: str) -> None:
    """The user is told in one sentence, and after the epilog nothing is left."""
    epilog = node.run("epilog")

    assert said.startswith("outrider: ")
    assert said.count("\n") == 1
    assert words in said
    assert (epilog.returncode, epilog.stdout, epilog.stderr, node.files()) == (0, "", "", [])


def test_instance_is_made_told_and_taken_away(served: Node) -> None:
    prolog = served.run("prolog")
    path = served.path_told()
    started = served.start()
    content, held = Path(path).read_bytes(), served.owners()
    epilog = served.run("epilog")

    assert (prolog.returncode, prolog.stdout, prolog.stderr) == (0, "", "")
    assert (started.stdout, started.stderr) == (f"image={path}\n", "")
    assert content == CONTENT
    assert held == ["job-17"]
    assert (epilog.returncode, served.files(), served.owners()) == (0, [], [])


def test_job_of_others_leaves_no_trace(served: Node) -> None:
    prolog = served.run("prolog", OUTRIDER_TICKET="")
    begun = served.run("pe-start", OUTRIDER_TICKET="")
    started = served.start()
    epilog = served.run("epilog")

    assert [each.returncode for each in (prolog, begun, started, epilog)] == [0, 0, 0, 0]
    assert started.stdout == "image=\n"
    assert not (served.told / "jobs").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("/usr/bin/python3", "/usr/bin/no-python", "lacks a program"),
        ("hook.py", "no-hook.py", "can't open file"),
        ("timeout --foreground -k", "no-timeout -k", "lacks a program"),
        ("--timeout 30", "--nonsense", "has no option"),
        ("#!/bin/sh", "#!/bin/no-shell", "its own script has failed"),
        ("umask 022", "kill -9 $$", "its own script has failed"),
        ("umask 022", "exit 7", "its own script has failed"),
        ("umask 022", "if then", "its own script has failed"),
    ],
)
def test_node_that_lacks_something_says_so(served: Node, old: str, new: str, words: str) -> None:
    served.patch("prolog", old, new)
    prolog = served.run("prolog")

    assert prolog.returncode == FAILED
    check_fails_the_job_alone(served, prolog.stdout, words)


def test_node_without_its_scripts_fails_the_job_alone(served: Node) -> None:
    for script in served.scripts.values():
        script.unlink()
    done = [served.run(hook) for hook in ("prolog", "pe-start", "epilog")]

    assert [each.returncode for each in done] == [FAILED, FAILED, 0]
    assert "its own script has failed" in done[0].stdout


def test_node_without_a_daemon_says_so(bare: Node) -> None:
    bare.patch("prolog", "--timeout 30", "--timeout 1")
    prolog = bare.run("prolog")

    assert prolog.returncode == FAILED
    check_fails_the_job_alone(bare, prolog.stdout, "no daemon answers at")


def test_daemon_that_hangs_is_not_waited_for_long(served: Node) -> None:
    served.patch("prolog", "--timeout 30", "--timeout 1")
    served.patch("epilog", "--timeout 15", "--timeout 1")
    served.pause()
    begin_s = CLOCK.monotonic_s()
    prolog = served.run("prolog")
    took_s = CLOCK.monotonic_s() - begin_s

    assert prolog.returncode == FAILED
    assert took_s < 20
    check_fails_the_job_alone(served, prolog.stdout, "no daemon answers at")
    served.go_on()


def test_helper_that_hangs_or_is_killed_is_ended(served: Node) -> None:
    (served.lib / "hook.py").write_text("while True: pass\n")
    served.patch("prolog", "-k 2 110", "-k 2 0.3")
    hung = served.run("prolog")
    (served.lib / "hook.py").write_text("import os; os.kill(os.getpid(), 9)\n")
    killed = served.run("prolog")

    assert (hung.returncode, killed.returncode) == (FAILED, FAILED)
    assert "nothing was answered in time" in hung.stdout


def test_script_that_hangs_is_ended_by_its_guard() -> None:
    needs_root()
    with node(limit_s=1) as found:
        found.patch("prolog", "umask 022", "sleep 60")
        found.patch("epilog", "#!/bin/sh", "#!/bin/sleep 60")
        prolog, epilog = found.run("prolog"), found.run("epilog")

    assert (prolog.returncode, epilog.returncode) == (FAILED, 0)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (ticket(b"o" * 32), "was not signed"),
        (ticket(job="18"), "job 17 has the ticket of job 18"),
        (ticket(uid=UID - 1), "is for uid"),
        (ticket(expires_s=1_700_000_000), "has expired"),
        (ticket() + " and more", "cannot be read"),
        ("none", "no image is held on this node for job 17"),
        ("--help", "cannot be read"),
        ("$(touch /tmp/gh-owned) `id`; rm -rf /", "cannot be read"),
        ("\n1.2.3", "printable characters"),
        ("9" * 100_000, "cannot be read"),
    ],
)
def test_ticket_is_data_and_nothing_else(served: Node, text: str, words: str) -> None:
    prolog = served.run("prolog", OUTRIDER_TICKET=text)

    assert prolog.returncode == FAILED
    assert not Path("/tmp/gh-owned").exists()
    assert served.owners() == []
    check_fails_the_job_alone(served, prolog.stdout, words)


def test_image_that_is_not_here_sends_the_job_back(served: Node) -> None:
    prolog = served.run("prolog", OUTRIDER_TICKET=ticket(digest="0" * 64))

    assert prolog.returncode == LATER
    check_fails_the_job_alone(served, prolog.stdout, "is not on this node; the job goes back to the queue")


def test_pin_of_the_service_is_enough(served: Node) -> None:
    served.ask("pin", name=DIGEST, owner="reservation:job-17", until_s=CLOCK.now_s() + 600)
    prolog = served.run("prolog", OUTRIDER_TICKET="none")

    assert prolog.returncode == 0
    assert served.owners() == ["job-17"]


def test_job_of_the_queue_of_reservations_is_ours_without_a_ticket(served: Node) -> None:
    words = ("17", "0", "nobody", "n1", "reserved")
    refused = served.run("prolog", *words, OUTRIDER_TICKET="")
    served.ask("pin", name=DIGEST, owner="reservation:job-17", until_s=CLOCK.now_s() + 600)
    prolog = served.run("prolog", *words, OUTRIDER_TICKET="")
    started = served.start()

    assert refused.returncode == FAILED
    assert "no image is held on this node for job 17" in refused.stdout
    assert (prolog.returncode, started.stdout) == (0, f"image={served.path_told()}\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ("../../../etc/17", "0", "nobody", "n1"),
        ("17 18", "0", "nobody", "n1"),
        ("", "0", "nobody", "n1"),
        ("12345678901234", "0", "nobody", "n1"),
        ("17", "../1", "nobody", "n1"),
        ("17", "0", "", "n1"),
        ("17", "0", "no\nbody", "n1"),
        ("17", "0", "--socket=/tmp/x", "n1"),
        ("17",),
    ],
)
def test_arguments_that_make_no_sense_name_no_file(served: Node, arguments: tuple[str, ...]) -> None:
    prolog = served.run("prolog", *arguments)
    epilog = served.run("epilog", *arguments)

    assert (prolog.returncode, epilog.returncode) == (FAILED, 0)
    assert (served.files(), served.owners()) == ([], [])


def test_full_disk_fails_the_job_and_leaves_nothing(served: Node) -> None:
    full = "cd /run/outrider; mkdir -p jobs; mount -t tmpfs -o size=4k tmpfs jobs; echo x >jobs/fill"
    epilog = served.lib / "gridengine" / "epilog"
    prolog = served.run("prolog", before=full, after=f"{epilog} 17 0; ls /run/outrider/jobs")

    assert prolog.returncode == FAILED
    assert "the disk of /run/outrider is full" in prolog.stdout
    assert prolog.stdout.splitlines()[1:] == ["fill"]
    assert served.owners() == []


def test_full_table_of_files_fails_the_job(served: Node) -> None:
    full = "cd /run/outrider; mkdir -p jobs; mount -t tmpfs -o nr_inodes=2 tmpfs jobs; touch jobs/fill"
    prolog = served.run("prolog", before=full)

    assert prolog.returncode == FAILED
    assert "the disk of /run/outrider is full" in prolog.stdout
    assert served.owners() == []


def test_links_in_folders_of_the_hooks_lead_nowhere(served: Node) -> None:
    prey = served.folder / "prey"
    prey.write_text("mine\n")
    for kind in ("jobs", "nodes"):
        (served.told / kind).mkdir()
        (served.told / kind / "17").symlink_to(prey)
    prolog = served.run("prolog")
    told = served.told / "jobs" / "17"
    is_link = told.is_symlink()
    epilog = served.run("epilog")

    assert (prolog.returncode, epilog.returncode, is_link) == (0, 0, False)
    assert prey.read_text() == "mine\n"


def test_killed_prolog_is_cleaned_up_by_the_epilog(served: Node) -> None:
    served.pause()
    prolog = served.begin("prolog")
    eventually("the prolog asks", lambda: (served.told / "jobs" / "17").exists())
    os.killpg(prolog.pid, signal.SIGKILL)
    prolog.wait()
    served.go_on()
    started, epilog = served.start(), served.run("epilog")

    assert started.returncode == FAILED
    assert "outrider: the image is not ready" in started.stderr
    assert epilog.returncode == 0
    eventually("nothing is left", lambda: not served.files() and not served.owners())


def test_job_that_ends_before_its_prolog_keeps_nothing(served: Node) -> None:
    served.patch("epilog", "--timeout 15", "--timeout 1")
    served.pause()
    prolog = served.begin("prolog")
    eventually("the prolog asks", lambda: (served.told / "jobs" / "17").exists())
    epilog = served.run("epilog")
    served.go_on()

    assert epilog.returncode == 0
    assert prolog.wait(60) == 0
    assert (served.files(), served.owners()) == ([], [])


def test_second_start_without_an_epilog_has_a_fresh_copy(served: Node) -> None:
    served.run("prolog")
    first = Path(served.path_told())
    first.write_bytes(b"changed")
    served.run("prolog")
    second = Path(served.path_told())

    assert second.read_bytes() == CONTENT
    assert not first.exists()
    assert served.owners() == ["job-17"]


def test_tasks_of_an_array_are_kept_apart(served: Node) -> None:
    any_task = ticket(job="-")
    done = [served.run("prolog", "17", task, "nobody", "n1", OUTRIDER_TICKET=any_task) for task in "12"]
    first, second = served.path_told("17.1"), served.path_told("17.2")
    started = served.start(SGE_TASK_ID="2")
    served.run("epilog", "17", "1")
    held = served.owners()
    served.run("epilog", "17", "2")

    assert [each.returncode for each in done] == [0, 0]
    assert first != second
    assert started.stdout == f"image={second}\n"
    assert held == ["job-17.2"]
    assert (served.files(), served.owners()) == ([], [])


@pytest.mark.parametrize("times", [1, 2])
def test_epilog_may_come_without_a_prolog_and_again(served: Node, times: int) -> None:
    served.run("prolog")
    done = [served.run("epilog") for _ in range(times)]
    never, empty = served.run("epilog", "18", "0"), served.run_in("epilog", {})

    assert {each.returncode for each in (*done, never, empty)} == {0}
    assert (served.files(), served.owners()) == ([], [])


def test_service_ends_what_an_epilog_never_released(served: Node) -> None:
    served.run("prolog", "17", "3", "nobody", "n1", OUTRIDER_TICKET=ticket(job="-"))
    wanted = TellNode(node="n1", wants_images=True)
    with served.client() as client:
        found = tell_daemon(client, wanted, clock=CLOCK)
        tell_daemon(client, TellNode(node="n1", orders=(Release(owner="job-17.3"),)), clock=CLOCK)
    left = served.files()
    served.run("prolog")
    served.run("epilog")

    assert found.jobs == ("job-17.3",)
    assert left == ["jobs/17.3"]
    # The next epilog takes away what told of it.
    assert (served.files(), served.owners()) == ([], [])


def test_user_cannot_have_another_jobs_instance_told(served: Node) -> None:
    served.run("prolog")
    started = served.start(JOB_ID="../../../../tmp/x", OUTRIDER_TICKET="none")
    other = served.start(JOB_ID="18", OUTRIDER_TICKET="none")

    assert started.stdout == "image=\n"
    assert (other.returncode, other.stdout) == (FAILED, "")
    assert "nobody has prepared it" in other.stderr
