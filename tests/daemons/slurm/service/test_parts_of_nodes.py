"""Reservations of cores on a real Slurm, unlike instances, and changes of both."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from testbed.site import OutriderSite, ServedImage, site_cluster
from testbed.slurm import HEAD
from tests.daemons.reservations import wait_reservation, workspace
from tests.daemons.slurm.service.conftest import (
    LINES,
    LINK_BYTES_PER_S,
    NODES,
    RATE_BITS_PER_S,
    SETTLE_S,
    TIMINGS,
    check_clean,
)
from tests.daemons.slurm.service.jobs import ended, in_slurm, output, script, seen, wait_for, wait_in_slurm
from tests.needs import need_slurm

MB = 1_000_000
HALF = 2
"""Of the four processors of a node."""


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest) -> Iterator[OutriderSite]:
    """Four nodes whose cores are reserved."""
    need_slurm()
    version = os.environ.get("OUTRIDER_SLURM_VERSION") or None
    failed_before = request.session.testsfailed
    with site_cluster(
        NODES, rate_bits_per_s=RATE_BITS_PER_S, version=version, slurm_conf_lines=LINES
    ) as cluster:
        made = OutriderSite(
            cluster,
            is_preloaded=True,
            link_bytes_per_s=LINK_BYTES_PER_S,
            pool="200MiB",
            settings={"timings": TIMINGS, "backend": {"kind": "slurm", "slurm": {"core_cpus": 1}}},
        )
        made.install()
        yield made
        if request.session.testsfailed == failed_before:
            check_clean(made)


@pytest.fixture(autouse=True)
def _idle(site: OutriderSite) -> None:
    """What ran in the last test is seen to be gone."""
    site.cluster.wait_idle(SETTLE_S)
    site.outrider("reconcile", user="root")


def asked(site: OutriderSite, *words: str, user: str = "ada") -> dict[str, object]:
    """What Outrider answers, yes or no."""
    done = site.outrider(*words, "--json", user=user, check=False)
    assert done.stdout, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def halves(site: OutriderSite, image: ServedImage, start: str, user: str) -> dict[str, object]:
    return asked(
        site, "reserve", "--image", image.uri, "--digest", image.digest, f"--nodes={NODES}", f"--cpus={HALF}",
        f"--start={start}", "-t40s", user=user,
    )  # fmt: skip


def test_two_users_have_halves_of_the_same_nodes_and_both_run(site: OutriderSite) -> None:
    image = workspace(site, "halves", 5 * MB)

    answers = [halves(site, image, "now+12s", user) for user in ("ada", "bob")]
    third = halves(site, image, "now+12s", "ada")
    names = [str(each["name"]) for each in answers]
    for name in names:
        wait_in_slurm(site, name, is_there=True)
    wide = (f"-N{NODES}", "--ntasks-per-node=1", f"-c{HALF}", "-t1")
    jobs = [
        site.submit(script(None, "sleep 6"), *wide, f"--reservation={name}", user=user)
        for name, user in zip(names, ("ada", "bob"), strict=True)
    ]
    beside = site.submit("#!/bin/sh\ntrue\n", "-c1", "-t1", "-wn1", user="bob")
    found = [wait_for(site, job, "RUNNING") for job in jobs]
    waiting = seen(site, beside)

    assert [each["result"] for each in answers] == ["accepted", "accepted"]
    assert {each["nodes"] for each in answers} == {f"n[1-{NODES}]"}
    assert third["result"] == "refused"
    assert third["cause"] == "slots"
    assert {each.nodes for each in found} == {f"n[1-{NODES}]"}
    assert [seen(site, job).state for job in jobs] == ["RUNNING", "RUNNING"]
    assert waiting.state == "PENDING"
    for job, name, user in zip(jobs, names, ("ada", "bob"), strict=True):
        ended(site, job)
        assert output(site, job, user=user).count("QFI") == NODES
        site.outrider("cancel", name, user=user)
        wait_in_slurm(site, name, is_there=False)
    ended(site, beside)


def test_sizes_of_one_that_waits_change_and_its_job_stays_with_it(site: OutriderSite) -> None:
    image = workspace(site, "resized", 5 * MB)
    mine = str(halves(site, image, "now+25s", "ada")["name"])
    others = str(halves(site, image, "now+25s", "bob")["name"])
    wait_in_slurm(site, mine, is_there=True)
    wait_in_slurm(site, others, is_there=True)
    job = site.submit(script(None), "-N1", "-c1", "-t1", f"--reservation={mine}")
    before = cores(site)[mine]

    larger = asked(site, "modify", mine, "--cpus=3")
    kept = cores(site)[mine]
    smaller = asked(site, "modify", mine, "--cpus=1", "--nodes=2")
    site.cluster.wait_for("its cores to be others", lambda: cores(site).get(mine) == 2, logs=site.logs)
    found = ended(site, job)

    assert (larger["result"], smaller["result"]) == ("refused", "accepted")
    assert before == kept == NODES * HALF
    assert found.state == "COMPLETED"
    assert output(site, job).count("QFI") == 1
    wait_reservation(site, mine, "active")
    for name, user in ((mine, "ada"), (others, "bob")):
        site.outrider("cancel", name, user=user)
        wait_in_slurm(site, name, is_there=False)


def test_unlike_instances_begin_together_with_their_own_images(site: OutriderSite) -> None:
    large, small = workspace(site, "large", 8 * MB), site.image("small.qcow2", 4 * MB)
    text = f"""version: 1
metadata:
  name: mpi
  image: {{uri: "{large.uri}", digest: "{large.digest}"}}
  roles:
    - {{name: head, hosts: h1, cpus: 3}}
    - {{name: worker, hosts: "w[1-2]", cpus: 1, image: {{uri: "{small.uri}", digest: "{small.digest}"}}}}
deployment: {{nodes: 3, duration: 40s, start: now+10s}}
"""
    site.cluster.write(HEAD, f"{site.home()}/mpi.yaml", text)

    answer = asked(site, "reserve", f"{site.home()}/mpi.yaml")
    name = str(answer["name"])
    head, worker = f"{name}.head", f"{name}.worker"
    wait_in_slurm(site, head, is_there=True)
    wait_in_slurm(site, worker, is_there=True)
    sizes = cores(site)
    jobs = [
        site.submit(script(large), "-N1", "-c3", "-t1", f"--reservation={head}"),
        site.submit(script(small), "-N2", "-c1", "-t1", "--ntasks-per-node=1", f"--reservation={worker}"),
    ]
    found = [ended(site, job) for job in jobs]

    assert answer["result"] == "accepted"
    assert (sizes[head], sizes[worker]) == (3, 2)
    assert [each.state for each in found] == ["COMPLETED", "COMPLETED"]
    assert [output(site, job).count("QFI") for job in jobs] == [1, 2]
    site.outrider("cancel", name)
    wait_in_slurm(site, head, is_there=False)
    wait_in_slurm(site, worker, is_there=False)


def test_one_that_has_begun_gives_back_nodes_without_its_jobs_and_gets_them_again(site: OutriderSite) -> None:
    workspace(site, "shrinks", 5 * MB)
    asked_for = (f"{site.home()}/shrinks.yaml", "--nodes=3", "--start=now+20s", "-t5m")
    answer = asked(site, "reserve", *asked_for)
    assert answer["result"] == "accepted", answer["reason"]
    name = str(answer["name"])
    wait_reservation(site, name, "active")
    job = site.submit("#!/bin/sh\nsleep 60\n", "-t2", f"--reservation={name}")
    where = wait_for(site, job, "RUNNING").nodes

    def is_one() -> bool:
        answer = asked(site, "modify", name, "--nodes=1")
        return answer.get("nodes") == where

    # The service has to have seen the job first.
    site.cluster.wait_for("two nodes to be given back", is_one, logs=site.logs)
    site.cluster.wait_for("Slurm to know", lambda: nodes(site, name) == where, logs=site.logs)

    answers = []

    def are_three() -> bool:
        answers.append(asked(site, "modify", name, "--nodes=3"))
        return answers[-1]["result"] == "accepted"

    # The service has to have seen that what was given back has the image still.
    site.cluster.wait_for("two more nodes", are_three, logs=lambda: f"{answers}\n{site.logs()}")
    more = answers[-1]
    site.cluster.wait_for("three nodes again", lambda: nodes(site, name) == more["nodes"], logs=site.logs)

    assert more["node_count"] == 3
    assert seen(site, job).state == "RUNNING"
    site.cluster.run(HEAD, ["scancel", job])
    ended(site, job)
    site.outrider("cancel", name)
    wait_in_slurm(site, name, is_there=False)


def cores(site: OutriderSite) -> dict[str, int]:
    """How many cores each reservation has in Slurm."""
    return {name: int(of(site, name, "CoreCnt")) for name in in_slurm(site)}


def nodes(site: OutriderSite, name: str) -> str:
    return of(site, name, "Nodes")


def of(site: OutriderSite, name: str, key: str) -> str:
    line = site.cluster.run(HEAD, ["scontrol", "-o", "show", "reservation", name], check=False).stdout
    found = [word.partition("=")[2] for word in line.split() if word.startswith(f"{key}=")]
    return found[0] if found else "0"
