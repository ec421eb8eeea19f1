"""The hooks in a real Grid Engine: jobs get their images or are told why not; no queue is in error, ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from testbed.batchcluster import HEAD
from testbed.gridenginesite import HOOKS
from tests.daemons.gridengine.hooks.site import DIGEST, READS, Site, site
from tests.daemons.gridengine.hooks.test_guard import HOSTILE

ON_N1 = ("-l", "h=n1")
WAITS = "while [ ! -e go-on ]; do sleep 0.1; done\n"
PLAIN = 'echo "image=$OUTRIDER_IMAGE"; export -p | grep -c -i outrider\n'


@pytest.fixture(scope="module")
def shared() -> Iterator[Site]:
    with site(3) as made:
        yield made


@pytest.fixture
def found(shared: Site) -> Iterator[Site]:
    shared.cluster.run(HEAD, ["sh", "-c", "rm -f go-on out.*"], user=shared.user)
    yield shared
    shared.cluster.run(HEAD, ["qdel", "-u", "*"], check=False)
    shared.cluster.wait_idle()
    shared.check_clean()


def test_jobs_have_what_they_were_promised_and_others_have_nothing(found: Site) -> None:
    ticket = found.submit(READS, *ON_N1)
    pinned = found.held(READS, *ON_N1)
    found.pin(pinned, "n1")
    found.let_go(pinned, OUTRIDER_TICKET="none")
    told = found.held(READS, *ON_N1)
    found.cluster.run(HEAD, ["qalter", "-ac", f"OUTRIDER_TICKET={found.ticket(told)}", told])
    found.let_go(told, OUTRIDER_TICKET="none")
    plain = found.held(PLAIN, *ON_N1)
    found.let_go(plain)
    found.ended(ticket, pinned, told, plain)
    found.unpin(pinned, "n1")
    said = [found.output(job).splitlines() for job in (ticket, pinned, told)]

    assert [lines[0].startswith("has /") for lines in said] == [True] * 3, said
    assert [lines[1].split()[0] for lines in said] == [DIGEST] * 3
    assert found.output(plain) == "image=\n0\n"


def test_tasks_of_an_array_on_one_node_have_a_copy_each(found: Site) -> None:
    job = found.held(READS + WAITS, "-t", "1-2", *ON_N1)
    found.let_go(job, OUTRIDER_TICKET=found.ticket("-"))
    found.cluster.wait_for("both to run", lambda: found.owners("n1") == [f"job-{job}.1", f"job-{job}.2"])
    found.cluster.run(HEAD, ["touch", "go-on"], user=found.user)
    found.ended(job)
    said = [found.output(job, task).splitlines() for task in "12"]

    assert [lines[1].split()[0] for lines in said] == [DIGEST] * 2
    assert said[0][0] != said[1][0]


def test_what_was_forged_or_is_not_allowed_fails_its_job_alone(found: Site) -> None:
    other = found.cluster.people.of("bob").uid
    wrong: dict[str, Callable[[str], str]] = {
        "cannot be read": lambda job: "1.2.3",
        "was not signed": lambda job: found.ticket(job)[:-8] + "0" * 8,
        "has the ticket of job 1": lambda job: found.ticket("1"),
        "is for uid": lambda job: found.ticket(job, uid=other),
        "has expired": lambda job: found.ticket(job, expires_s=1_700_000_000),
        "no image is held on this node": lambda job: "none",
    }
    jobs = {}
    for words, made in wrong.items():
        job = found.held(READS, *ON_N1)
        found.let_go(job, OUTRIDER_TICKET=made(job))
        jobs[job] = words
    found.refused(*jobs)
    reasons = {job: found.reason(job) for job in jobs}
    outputs = {job: found.output(job) for job in jobs}
    found.check_clean()

    for job, words in jobs.items():
        assert reasons[job].startswith("outrider: the image is not ready on node n1: "), reasons[job]
        assert words in reasons[job]
        assert outputs[job] == reasons[job] + "\n"


def test_environment_of_a_job_disables_no_queue(found: Site) -> None:
    # One that makes a job's own shell take all memory is tried with the guard alone.
    apart = {name: HOSTILE[name] for name in ("OPTIND", "GLIBC_TUNABLES")}
    others = {name: text for name, text in HOSTILE.items() if text.isprintable() and name.isidentifier()}
    others = {name: text for name, text in others.items() if name not in (*apart, "MALLOC_TOP_PAD_")}
    others |= {"V0": "x" * 100_000, "SGE_ROOT": "/tmp/hostile", "SGE_JOB_SPOOL_DIR": "/tmp/hostile"}
    jobs = []
    for variables in (*({name: text} for name, text in apart.items()), others):
        job = found.held("exit 0", *ON_N1)
        found.let_go(job, **variables, OUTRIDER_TICKET=found.ticket(job))
        jobs.append(job)
    # Some of them end a job's own shell, which is its user's affair.
    found.ended(*jobs)
    found.check_clean()
    failures = [end["failed"].split()[0] for job in jobs for end in found.cluster.accounts(job)]

    assert failures == ["0"] * len(jobs)


def test_job_waits_in_the_queue_for_its_image_and_starts_again_where_it_was(found: Site) -> None:
    found.evict("n1")
    once = '[ "$RESTARTED" = 0 ] || exit 0; exit 99'
    job = found.submit(READS + WAITS + once, *ON_N1)
    found.cluster.wait_for("it to be sent back", lambda: "R" in found.cluster.job_state(job))
    said = found.output(job)
    found.check_clean()
    found.bring("n1")
    found.cluster.wait_for("it to run", lambda: found.owners("n1") == [f"job-{job}"])
    found.cluster.wait_for("its path", lambda: "has /" in found.output(job))
    found.cluster.run(HEAD, ["touch", "go-on"], user=found.user)
    found.ended(job)
    digests = [line.split()[0] for line in found.output(job).splitlines() if line.endswith("  -")]

    assert "is not on this node; the job goes back to the queue" in said
    # It has changed its first copy, and was given a fresh one.
    assert set(digests) == {DIGEST}


def test_parallel_job_has_its_image_on_all_of_its_nodes(found: Site) -> None:
    tells = 'for node in $(cut -d" " -f1 "$PE_HOSTFILE"); do\n'
    tells += 'qrsh -inherit -nostdin "$node" sh -c \'hostname; echo "has $OUTRIDER_IMAGE"\'; done\n'
    job = found.submit(tells + WAITS, "-pe", "make", "12")
    found.cluster.wait_for(
        "instances everywhere",
        lambda: all(found.owners(node) == [f"job-{job}"] for node in found.cluster.nodes),
        logs=lambda: found.cluster.logs() + found.output(job),
    )
    found.cluster.run(HEAD, ["touch", "go-on"], user=found.user)
    found.ended(job)
    lines = found.output(job).splitlines()

    assert sorted(line for line in lines if line.startswith("n")) == ["n1", "n2", "n3"], lines
    assert [line.startswith("has /") for line in lines if line.startswith("has")] == [True] * 3


def test_parallel_job_waits_until_all_nodes_have_its_image(found: Site) -> None:
    found.evict("n3")
    # Not with control_slaves, after which Grid Engine starts no job again where it had slaves.
    job = found.submit("echo ran", "-pe", "each4", "12")
    found.cluster.wait_for("it to be sent back", lambda: "R" in found.cluster.job_state(job))
    found.check_clean()
    found.bring("n3")
    found.ended(job)

    assert "ran" in found.output(job)


@pytest.mark.repeats(
    "tests/daemons/gridengine/hooks/test_hooks_in_gridengine.py::test_hook_that_is_killed_fails_the_job_alone"
)
def test_node_without_a_daemon_fails_the_job_alone(found: Site) -> None:
    found.cluster.kill("n2", "cachemgr")
    alone = found.submit("echo ran", "-l", "h=n2")
    parallel = found.submit("echo ran", "-pe", "make", "12")
    found.refused(alone, parallel)
    reasons = [found.reason(alone), found.reason(parallel)]
    found.start_node("n2")

    assert "no daemon answers at" in reasons[0]
    assert "no daemon answers at" in reasons[1]


def test_hook_that_is_killed_fails_the_job_alone(found: Site) -> None:
    ends = ["pkill", "-KILL", "-f", f"{HOOKS}/prolog[.]sh"]
    found.cluster.kill("n1", "cachemgr", "STOP")
    try:
        job = found.submit("echo ran", *ON_N1)
        found.cluster.wait_for(
            "its prolog", lambda: found.cluster.run("n1", ends, check=False).returncode == 0
        )
    finally:
        found.cluster.kill("n1", "cachemgr", "CONT")
    found.refused(job)

    assert "its own script has failed" in found.output(job)


def test_deleted_job_keeps_nothing(found: Site) -> None:
    job = found.submit(WAITS, "-pe", "make", "12")
    found.cluster.wait_for("its instances", lambda: found.owners("n3") == [f"job-{job}"])
    found.cluster.run(HEAD, ["qdel", job], user=found.user)
    found.cluster.wait_for("its end", lambda: found.cluster.job_state(job) == "finished")
    found.check_clean()

    assert found.left() == []
