"""Haizea's lease workload files."""

import os
import re
from pathlib import Path
from threading import Thread

import pytest

from outrider.core.besteffort.suspension import SuspensionRules
from outrider.core.model import Image, Resources
from outrider.sim.setup import Setup
from outrider.sim.workload.formats.haizea import read_haizea
from outrider.sim.workload.trace import TraceSubmission, WorkloadError
from outrider.sim.world import Simulation
from tests.repository import ROOT

LEASES = ROOT / "tests" / "data" / "leases.lwf"


@pytest.fixture
def leases() -> dict[str, TraceSubmission]:
    return {one.workspace.name: one for one in read_haizea(LEASES).submissions}


def changed(folder: Path, old: str, new: str) -> Path:
    text = LEASES.read_text()
    assert old in text
    path = folder / "leases.lwf"
    path.write_text(text.replace(old, new, 1))
    return path


def test_site_becomes_nodes_with_instances_added_up() -> None:
    nodes = read_haizea(LEASES).nodes

    assert [node.name for node in nodes] == ["n1", "n2", "n3", "n4"]
    assert nodes[0].capacity == Resources.of(CPU=200, Memory=2048)
    assert nodes[3].capacity == Resources.of(CPU=100, Memory=1024)


def test_empty_start_is_best_effort_with_image_user_and_real_duration(
    leases: dict[str, TraceSubmission],
) -> None:
    one = leases["1"]

    assert one.workspace.is_best_effort
    assert one.workspace.is_preemptible
    assert one.workspace.instances == 4
    assert one.workspace.resources == Resources.of(CPU=100, Memory=512)
    assert one.workspace.image == Image(uri="analysis.img", size_bytes=600_000_000)
    assert (one.workspace.duration_s, one.run_s, one.user) == (3600, 2700, "7")


def test_exact_start_counts_days_and_hours(leases: dict[str, TraceSubmission]) -> None:
    one = leases["2"]

    assert (one.at_s, one.workspace.start_s, one.run_s) == (600, 86400 + 9000, 1800)
    assert not one.workspace.is_preemptible


def test_now_starts_at_its_arrival_rounded_up(leases: dict[str, TraceSubmission]) -> None:
    one = leases["3"]

    assert (one.at_s, one.workspace.start_s, one.workspace.image) == (1201, 1201, None)


def test_what_starts_now_may_wait_for_its_image_for_as_long_as_the_file_says(tmp_path: Path) -> None:
    plain = read_haizea(LEASES).submissions
    longer = read_haizea(changed(tmp_path, "<now/>", '<now within="00:05:00"/>')).submissions

    assert [one.workspace.is_immediate for one in plain].count(True) == 1
    assert [one.workspace.ready_within_s for one in plain if one.workspace.is_immediate] == [None]
    assert [one.workspace.ready_within_s for one in longer if one.workspace.is_immediate] == [300]


def test_memory_of_leases_is_what_suspending_them_writes(tmp_path: Path) -> None:
    text = (
        '<lease-workload name="t"><site><nodes><node-set numnodes="1"><res type="CPU" amount="100"/>'
        '<res type="Memory" amount="1024"/></node-set></nodes></site><lease-requests>'
        + _request("00:00:00", "1", "<start/>", "<none/>")
        + _request("00:00:10", "2", '<start><exact time="00:10:00"/></start>', "<none/>")
        + "</lease-requests></lease-workload>"
    )
    path = tmp_path / "suspended.lwf"
    path.write_text(text)
    rules = SuspensionRules(disk_bytes_per_s=10 << 20)
    trace = read_haizea(path)

    (done,) = Simulation(Setup(suspension=rules), trace.nodes, trace).run().done

    # 1024 MiB at 10 MiB/s take 103 s; the reservation lasts from 600 to 2400.
    assert [(each.start_s, each.end_s, each.resume_s, each.suspend_s) for each in done.segments] == [
        (0, 600, 0, 103),
        (2400, 2400 + 103 + 1800 - 497, 103, 0),
    ]


def test_a_lease_that_starts_now_gets_an_image_that_is_nowhere_yet(tmp_path: Path) -> None:
    text = (
        '<lease-workload name="t"><site><nodes><node-set numnodes="1"><res type="CPU" amount="100"/>'
        '<res type="Memory" amount="1024"/></node-set></nodes></site><lease-requests>'
        + _request("00:00:10", "1", "<start><now/></start>", '<disk-image id="a" size="125"/>')
        + "</lease-requests></lease-workload>"
    )
    path = tmp_path / "now.lwf"
    path.write_text(text)
    trace = read_haizea(path)

    outcome = Simulation(Setup(), trace.nodes, trace).run()

    assert outcome.refused == []
    assert [(kept.start_s, kept.end_s) for kept in outcome.kept] == [(20, 1820)]


def _request(arrival: str, name: str, start: str, software: str) -> str:
    return (
        f'<lease-request arrival="{arrival}"><lease id="{name}" preemptible="true"><nodes>'
        '<node-set numnodes="1"><res type="CPU" amount="100"/><res type="Memory" amount="1024"/></node-set>'
        f'</nodes>{start}<duration time="00:30:00"/><software>{software}</software></lease></lease-request>'
    )


def test_deadline_lease_may_start_later(leases: dict[str, TraceSubmission]) -> None:
    one = leases["4"]

    assert (one.workspace.start_s, one.workspace.finish_by_s) == (3600, 10800)


def test_deadline_without_start_counts_from_the_arrival(tmp_path: Path) -> None:
    path = changed(tmp_path, "<start/>", '<start/><deadline time="02:00:00"/>')

    workspace = read_haizea(path).submissions[0].workspace

    assert (workspace.start_s, workspace.finish_by_s) == (0, 7200)


def test_real_duration_is_cut_at_what_was_asked_for(tmp_path: Path) -> None:
    path = changed(tmp_path, "00:45:00.00", "09:00:00.00")

    assert read_haizea(path).submissions[0].run_s == 3600


def test_workload_without_a_site_has_no_nodes(tmp_path: Path) -> None:
    path = tmp_path / "leases.lwf"
    path.write_text(re.sub(r"<site>.*</site>", "", LEASES.read_text(), flags=re.DOTALL))

    trace = read_haizea(path)

    assert (trace.name, trace.nodes, len(trace.submissions)) == ("leases", (), 4)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('numnodes="4"', 'numnodes="four"', r"line 22: numnodes='four' in <node-set>"),
        ('numnodes="3"', 'numnodes="3000000"', r"line 7: more than 1000000 nodes"),
        ("<start/>", "<start><after/></start>", r"line 27: <after> in <start>"),
        ("<start/>", "", r"line 20: <lease> needs a <start>"),
        ('time="01:00:00.00"', 'time="1 hour"', r"line 28: time='1 hour' in <duration>"),
        (' preemptible="true"', "", r"line 20: <lease> needs preemptible="),
        ('"true"', '"maybe"', r"line 20: preemptible is 'maybe'"),
        ('time="03:00:00.00"', 'time="01:10:00.00"', r"line 49: .*do not end by 4200"),
        ('size="600"', 'size="0"', r"line 29: .*0 bytes"),
        ("<none/>", "<docker/>", r"\.lwf, line 45: <software> without"),
        ("</site>", "", r"line 58: mismatched tag"),
        ("<lease-workload", "<workload", r"line \d+: mismatched tag"),
    ],
)
def test_mistake_is_named_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        read_haizea(changed(tmp_path, old, new))
    assert str(caught.value).count("leases.lwf") == 1


def test_reservation_of_two_kinds_of_nodes_has_two_roles(tmp_path: Path) -> None:
    first = '<nodes><node-set numnodes="2"><res type="CPU" amount="100"/></node-set>'
    second = '<node-set numnodes="1"><res type="CPU" amount="50"/></node-set>'
    again = '<node-set numnodes="3"><res type="CPU" amount="100"/></node-set>'
    exact = "</nodes>\n        <start><exact"
    trace = read_haizea(changed(tmp_path, f"{first}{exact}", f"{first}{second}{again}{exact}"))

    lease = next(each for each in trace.submissions if each.workspace.name == "2")
    assert (lease.workspace.instances, lease.workspace.resources) == (5, Resources.of(CPU=100))
    [role] = lease.roles
    assert (role.name, role.instances, role.resources) == ("2.2", 1, Resources.of(CPU=50))
    assert (role.start_s, role.image) == (lease.workspace.start_s, lease.workspace.image)


def test_best_effort_of_two_kinds_of_nodes_is_refused(tmp_path: Path) -> None:
    second = '<node-set numnodes="1"><res type="CPU" amount="50"/></node-set></nodes>'
    path = changed(tmp_path, "</nodes>\n        <start/>", f"{second}\n        <start/>")

    with pytest.raises(WorkloadError, match="line 20: nodes of 2 kinds"):
        read_haizea(path)


def test_document_type_is_refused_before_any_entity_expands(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;">]>\n<lease-workload '
    path = changed(tmp_path, "<lease-workload ", bomb)

    with pytest.raises(WorkloadError, match="line 2: a document type"):
        read_haizea(path)


@pytest.mark.parametrize(
    ("end", "message"), [("", "line 1: no element found"), ("</a>" * 100_000, "line 1: <a> where")]
)
def test_endless_nesting_is_refused(tmp_path: Path, end: str, message: str) -> None:
    path = tmp_path / "deep.xml"
    path.write_text("<a>" * 100_000 + end)

    with pytest.raises(WorkloadError, match=message):
        read_haizea(path)


def test_mistake_in_what_can_be_read_once_only_is_named_without_its_line(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = Thread(target=path.write_text, args=[LEASES.read_text().replace("lease-workload", "other")])
    writer.start()

    with pytest.raises(WorkloadError, match="pipe: <other> where"):
        read_haizea(path)
    writer.join()


def test_example_of_the_documentation_is_read(tmp_path: Path) -> None:
    blocks = re.findall(r"```xml\n(.*?)```", (ROOT / "docs" / "reference/formats.md").read_text(), re.DOTALL)
    path = tmp_path / "example.xml"
    path.write_text(blocks[0])

    trace = read_haizea(path)

    (only,) = trace.submissions
    assert (trace.name, len(trace.nodes), only.at_s, only.run_s) == (
        "example",
        4,
        600,
        1200,
    )
    assert (only.workspace.start_s, only.workspace.finish_by_s) == (3600, 10800)
