"""Jobs that people sit before, and those with a terminal: hooks prepare them, and no queue is in error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from subprocess import CompletedProcess

import pytest

from testbed.batchcluster import HEAD
from tests.daemons.gridengine.hooks.site import DIGEST, Site, site

READS = ("sh", "-c", "'echo has $OUTRIDER_IMAGE; sha256sum <$OUTRIDER_IMAGE'")
SESSIONS = 10
TRIES = 3
# As the submit filter makes it.
HELD = ("-now", "n", "-h", "-v", "OUTRIDER_TICKET=none")


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    with site(2) as made:
        yield made


@pytest.fixture
def found(shared: Site) -> Iterator[Site]:
    yield shared
    shared.cluster.run(HEAD, ["qdel", "-u", "*"], check=False)
    shared.cluster.wait_idle()
    shared.check_clean()


def qrsh(found: Site, *words: str, most_s: int = 30) -> CompletedProcess[str]:
    """A session whose user does not hang up, which would end one with a terminal."""
    present = 'exec qrsh "$@" < <(exec sleep 30 2>/dev/null)'
    limit = ["timeout", "--kill-after=1", str(most_s)]
    return found.cluster.run(
        HEAD, [*limit, "bash", "-c", present, "bash", *words], user=found.user, check=False, timeout_s=40
    )


def at_once(*calls: Callable[[], CompletedProcess[str]]) -> list[CompletedProcess[str]]:
    with ThreadPoolExecutor(len(calls)) as pool:
        return [each.result() for each in [pool.submit(call) for call in calls]]


def test_ten_sessions_at_once_and_one_that_is_interrupted_harm_no_queue(found: Site) -> None:
    """Of any program as a prolog, half were ended by the shepherd before they had begun."""
    sessions = [lambda: qrsh(found, "-now", "n", "hostname")] * (SESSIONS - 1)
    interrupted = ["timeout", "--signal=INT", "--kill-after=2", "3", "qrsh", "-now", "n", "sleep", "60"]

    def interrupt() -> CompletedProcess[str]:
        return found.cluster.run(HEAD, interrupted, user=found.user, check=False, timeout_s=40)

    def has_run(done: CompletedProcess[str]) -> bool:
        return done.returncode == 0 and done.stdout in ("n1\n", "n2\n")

    for _ in range(TRIES):
        *done, cut = at_once(*sessions, interrupt)
        # On a machine that is busy enough clients lose their sessions' status, hooks or not.
        if [has_run(each) for each in done].count(True) >= len(done) - 1:
            break

    assert [has_run(each) for each in done].count(True) >= len(done) - 1, done
    assert cut.returncode != 0
    found.cluster.queue_states()


@pytest.mark.parametrize("terminal", [(), ("-pty", "y"), ("-pty", "n")], ids=["default", "pty", "no pty"])
def test_session_has_its_image(found: Site, terminal: tuple[str, ...]) -> None:
    """Held, and led to its image, as the submit filter and the service do."""
    for _ in range(TRIES):
        with ThreadPoolExecutor(1) as pool:
            begun = pool.submit(qrsh, found, *HELD, *terminal, *READS)
            found.cluster.wait_for("the session to be held", lambda: bool(waiting(found)))
            job = waiting(found)
            found.pin(job)
            found.let_go(job)
            done = begun.result()
        found.unpin(job)
        # A client that has waited in vain on a busy machine gives up; nothing of ours was begun then.
        if "could not be scheduled" not in done.stderr:
            break
    lines = done.stdout.split()

    assert done.returncode == 0, (done, found.cluster.logs())
    assert (lines[0], lines[1][0], lines[2]) == ("has", "/", DIGEST)


def test_session_without_its_image_fails_alone(found: Site) -> None:
    with ThreadPoolExecutor(1) as pool:
        # Its client waits forever, as that of any session whose job is in error.
        begun = pool.submit(qrsh, found, *HELD, *READS, most_s=10)
        found.cluster.wait_for("the session to be held", lambda: bool(waiting(found)))
        job = waiting(found)
        found.let_go(job)
        found.refused(job)
        reason = found.reason(job)
        found.cluster.run(HEAD, ["qdel", job])
        done = begun.result()

    assert "outrider: the image is not ready on node" in reason
    assert "has /" not in done.stdout
    found.cluster.queue_states()


def test_batch_jobs_with_a_terminal_harm_no_queue(found: Site) -> None:
    """Any user can ask for one, and no submit filter sees it."""
    options = ("-pty", "y", "-cwd", "-j", "y", "-o", "tty.$JOB_ID")
    # What a job prints as it ends a busy shepherd does not pass on from its terminal.
    jobs = [found.cluster.qsub("#!/bin/sh\ntty && echo ran\nsleep 1\n", *options) for _ in range(4)]
    found.ended(*jobs)
    home = found.cluster.people.of(found.user).home
    printed = [found.cluster.run(HEAD, ["cat", f"{home}/tty.{job}"]).stdout for job in jobs]

    assert [each.endswith(("ran\r\n", "ran\n")) for each in printed] == [True] * len(jobs)
    found.cluster.queue_states()


def test_job_without_a_terminal_has_its_shepherds_configuration_untouched(found: Site) -> None:
    job = found.cluster.qsub(
        '#!/bin/sh\ngrep -x "admin_user=.*" "$SGE_JOB_SPOOL_DIR/config"\n', "-j", "y", "-o", "plain.$JOB_ID"
    )
    found.ended(job)
    home = found.cluster.people.of(found.user).home

    assert found.cluster.run(HEAD, ["cat", f"{home}/plain.{job}"]).stdout == "admin_user=sgeadmin\n"


def waiting(found: Site) -> str:
    """The job that is held."""
    shown = found.cluster.run(HEAD, ["qstat", "-u", found.user, "-s", "h"]).stdout.splitlines()[2:]
    return shown[0].split()[0] if shown else ""
