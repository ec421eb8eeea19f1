"""A lease of unlike instances: all roles begin together, each with its own image and size, or none does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path

import pytest

from outrider.core.model import Resources
from outrider.metadata.errors import FaultyFileError
from outrider.metadata.notation.hostlists import expand
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import parse_workspace
from outrider.service.answers.decision import Decision
from outrider.service.answers.leases import LeaseDetails
from outrider.service.answers.reply import Trouble
from outrider.service.ports import FoundImage
from outrider.service.requests import Cancel, Modify, Reserve, ShowLease
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import ALICE, BOB, RATE, Sandbox, digest_of, reserve, show

SETTINGS = Settings(link_rate_bytes_per_s=RATE, reserve_s=60, look_every_s=5, parts=("cpus",))
CPUS = 8
FILE = """
version: 1
metadata:
  name: mpi
  image: {{uri: "https://images.example.org/head"}}
  roles:
    - {{name: worker, hosts: "w[1-2]", cpus: {worker}, image: {{uri: "https://images.example.org/worker"}}}}
    - {{name: head, hosts: h1, cpus: {head}}}
deployment: {{nodes: {nodes}, duration: 1h, {when}}}
"""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Sandbox]:
    made = Sandbox(tmp_path, nodes=3, cpus=CPUS, settings=SETTINGS)
    made.sleep(320)
    yield made
    made.close()


def wanted(
    site: Sandbox, *, head: int = CPUS, worker: int = 2, nodes: int = 3, when: str = "start: now+600s"
) -> Reserve:
    text = FILE.format(head=head, worker=worker, nodes=nodes, when=when)
    file = parse_workspace(text.encode(), Circumstances(now_s=site.now_s, zone=UTC), file="ws.yaml")
    images = (FoundImage(size_bytes=3 * RATE, digest=digest_of("worker")), None)
    return Reserve(
        workspace=file,
        image=FoundImage(size_bytes=10 * RATE, digest=digest_of("head")),
        role_images=images,
    )


def asked(site: Sandbox, request: Reserve) -> Decision:
    answer = site.ask(request)
    assert isinstance(answer, Decision), answer
    return answer


def test_each_role_has_its_nodes_its_size_and_its_image_at_the_same_start(site: Sandbox) -> None:
    answer = asked(site, wanted(site))
    parts = {each.role: each for each in answer.occurrences}
    site.sleep(590)

    assert answer.result == "accepted"
    assert set(parts) == {"head", "worker"}
    assert {each.start_s for each in parts.values()} == {answer.start_s}
    assert len(expand(parts["head"].nodes)) == 1
    assert len(expand(parts["worker"].nodes)) == 2
    assert not set(expand(parts["head"].nodes)) & set(expand(parts["worker"].nodes))
    for role, image, cpus in (("head", "head", CPUS), ("worker", "worker", 2)):
        shown = show(site, parts[role].name)
        assert shown.reservation.state == "ready"
        assert shown.reservation.image.digest == digest_of(image)
        for node in expand(parts[role].nodes):
            assert digest_of(image) in site.pools[node].images
        (seen,) = [each for each in site.rms.look().reservations if each.name == parts[role].name]
        assert seen.size == Resources.of(cpus=cpus)
    lease = site.ask(ShowLease(name=answer.name))
    assert isinstance(lease, LeaseDetails)
    assert (lease.lease.kind, len(lease.reservations)) == ("roles", 2)


def test_none_is_accepted_if_one_is_not_and_nothing_is_left_of_the_others(site: Sandbox) -> None:
    taken = reserve(site, BOB, nodes=3, cpus=1, start="now+600s")

    answer = asked(site, wanted(site))

    assert answer.result == "refused"
    assert answer.reason.startswith("role head: ")
    assert [each.name for each in site.rms.look().reservations] == [taken.name]
    assert asked(site, wanted(site, head=CPUS - 1)).result == "accepted"


def test_a_plan_books_nothing_and_all_are_cancelled_together(site: Sandbox) -> None:
    plan = asked(site, replace(wanted(site), is_plan=True))
    before = site.rms.look().reservations
    name = asked(site, wanted(site)).name
    site.sleep(5)
    booked = site.rms.look().reservations
    site.restart()
    times = site.ask(Modify(name=f"{name}.head", duration_s=60))
    site.ask(Cancel(name=name), ALICE)
    site.sleep(5)

    assert (plan.result, plan.name, before) == ("accepted", "", ())
    assert len(booked) == 2
    assert isinstance(times, Trouble)
    assert f"one of the roles of {name}" in times.message
    assert site.rms.look().reservations == ()


@pytest.mark.parametrize(
    ("when", "nodes", "says"),
    [
        ("start: now+600s", 2, "ask for 3 nodes"),
        ("finish_by: now+2hours", 3, "begin together"),
        ("start: now+600s, preemptible: true", 3, "begin together"),
        ("start: now+600s, instances_per_node: 2", 3, "6 instances are wanted"),
    ],
)
def test_what_roles_cannot_be_is_refused_when_it_is_read(
    site: Sandbox, when: str, nodes: int, says: str
) -> None:
    with pytest.raises(FaultyFileError) as caught:
        wanted(site, when=when, nodes=nodes)

    assert says in str(caught.value)
