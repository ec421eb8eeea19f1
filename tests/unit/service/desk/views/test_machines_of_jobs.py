"""What is shown of a job's machines: by their roles, and by what the nodes of the job say of its user's."""

from __future__ import annotations

import pytest

from outrider.core.model import Resources
from outrider.metadata.joblines import parse_job_lines
from outrider.rms.base import JobState, RmsJob
from outrider.service.desk.jobs.job import JobEntry, Stage
from outrider.service.desk.nodes.state import NodeStatus
from outrider.service.desk.views.machines import machines_of
from outrider.service.ports import MachineInstance

ROLES = "image: a\nrun: vm\nrole: head\nrole: worker count=2\n"


def entry(text: str, nodes: tuple[str, ...], stage: Stage = Stage.RUNNING) -> JobEntry:
    job = RmsJob(
        key="17",
        state=JobState.RUNNING,
        submitted_s=0,
        user="ada",
        uid=1000,
        nodes=nodes,
        nodes_wanted=3,
        resources=Resources.of(cpus=1),
        limit_s=60,
    )
    return JobEntry(job=job, since_s=0, stage=stage, lines=parse_job_lines(text))


def says(node: str, number: int, name: str, state: str, uid: int = 1000, owner: str = "job-17") -> NodeStatus:
    instance = MachineInstance(
        owner=owner, uid=uid, number=number, name=name, state=state, address=f"10.211.0.{number}"
    )
    return NodeStatus(name=node, instances=(instance,))


def test_each_machine_is_shown_with_its_node_address_and_state() -> None:
    statuses = {"n1": says("n1", 1, "head", "waits"), "n3": says("n3", 3, "worker2", "runs")}

    found = machines_of(entry(ROLES, ("n1", "n2", "n3")), statuses)

    assert [(each.name, each.node, each.address, each.state) for each in found] == [
        ("head", "n1", "10.211.0.1", "waits"),
        ("worker1", "", "", "begins"),
        ("worker2", "n3", "10.211.0.3", "runs"),
    ]


@pytest.mark.parametrize(
    "status",
    [
        says("n1", 1, "vm1", "runs", uid=1001),
        says("n1", 1, "vm1", "runs", owner="job-18"),
        says("n2", 1, "vm1", "runs"),
        says("n1", 2, "vm1", "runs"),
    ],
    ids=["another user's folder", "another job", "a node that is not the job's", "another number"],
)
def test_words_about_others_are_not_taken_for_this_jobs(status: NodeStatus) -> None:
    (found,) = machines_of(entry("image: a\nrun: vm\n", ("n1",)), {status.name: status})

    assert (found.name, found.node, found.address, found.state) == ("vm1", "", "", "begins")


def test_jobs_without_machines_and_those_that_wait_have_none() -> None:
    assert machines_of(entry("image: a\n", ("n1",)), {}) == ()
    assert machines_of(entry(ROLES, ("n1",), Stage.STAGED), {}) == ()
