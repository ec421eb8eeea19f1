"""Workspaces in files: what is understood, and every fault with its place."""

from __future__ import annotations

from calendar import timegm
from pathlib import Path
from time import process_time

import pytest

from cachemgr.pool.records import FORMATS
from outrider.metadata.errors import FaultyFileError
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import WorkspaceFile, parse_workspace, read_workspace
from outrider.metadata.yamlfile import MOST_PROBLEMS

SHORT = """\
version: 1
metadata:
  name: web
  image: {uri: web.qcow2}
"""
BEST_EFFORT = SHORT + "deployment:\n  nodes: 2\n  duration: 1h\n"


def parse(text: str, circumstances: Circumstances, **options: str | None) -> WorkspaceFile:
    return parse_workspace(text.encode(), circumstances, file="ws.yaml", options=options)


def faults(text: str, circumstances: Circumstances, **options: str | None) -> list[str]:
    with pytest.raises(FaultyFileError) as caught:
        parse(text, circumstances, **options)

    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]
    return [str(problem) for problem in caught.value.problems]


def test_metadata_are_understood(workspace_text: str, circumstances: Circumstances) -> None:
    metadata = parse(workspace_text, circumstances).metadata

    assert metadata.name == "osg"
    assert metadata.image.uri == "https://images.example.org/osg-worker.qcow2"
    assert metadata.image.size_bytes == 600_000_000
    assert metadata.image.format == "qcow2"
    assert metadata.image.private
    assert metadata.most_instances == 101
    head, worker = metadata.roles
    assert head.hosts == ("osg-head",)
    assert head.user_data == "#cloud-config\npackages: [condor]\n"
    assert worker.hosts[99] == "osg-w100"
    assert worker.addresses[99] == "10.1.1.100"
    assert worker.files[0].mode == "0600"


def test_deployment_is_understood(workspace_text: str, circumstances: Circumstances) -> None:
    deployment = parse(workspace_text, circumstances).deployment

    assert deployment is not None
    assert deployment.instances == 100
    assert (deployment.cpus, deployment.memory_mib, deployment.gpus) == (2, 4096, 1)
    assert deployment.duration_s == 9000
    # Berlin is an hour ahead of UTC in November.
    assert deployment.start_s == timegm((2026, 11, 22, 15, 0, 0))
    assert deployment.finish_by_s == timegm((2026, 11, 23, 11, 0, 0))
    assert not deployment.is_best_effort


def test_metadata_alone_are_enough(circumstances: Circumstances) -> None:
    assert parse(SHORT, circumstances).deployment is None


def test_deployment_without_times_is_best_effort(circumstances: Circumstances) -> None:
    deployment = parse(BEST_EFFORT, circumstances).deployment

    assert deployment is not None
    assert deployment.is_best_effort
    assert (deployment.cpus, deployment.memory_mib, deployment.instances_per_node) == (1, None, 1)


def test_options_make_a_deployment_of_metadata_alone(circumstances: Circumstances) -> None:
    deployment = parse(
        SHORT, circumstances, nodes="4", duration="90", memory="2GiB", preemptible="false"
    ).deployment

    assert deployment is not None
    assert (deployment.nodes, deployment.duration_s, deployment.memory_mib) == (4, 5400, 2048)
    assert deployment.preemptible is False


def test_options_replace_keys_of_the_file(workspace_text: str, circumstances: Circumstances) -> None:
    deployment = parse(workspace_text, circumstances, nodes="3", start=None, finish_by=None).deployment

    assert deployment is not None
    assert deployment.nodes == 3
    assert deployment.cpus == 2
    assert deployment.is_best_effort


def test_option_replaces_a_value_that_is_wrong_in_the_file(circumstances: Circumstances) -> None:
    text = BEST_EFFORT.replace("1h", "")

    assert faults(text, circumstances) == [
        "ws.yaml:7:12: deployment.duration: is empty: give it a value, or leave it out"
    ]
    assert parse(text, circumstances, duration="2h").deployment is not None


def test_fault_of_an_option_names_the_option(circumstances: Circumstances) -> None:
    found = faults(BEST_EFFORT, circumstances, instances_per_node="two", gpu="1")

    assert found == [
        "--gpu: there is no such key; did you mean gpus?",
        '--instances-per-node: "two" is not a whole number',
    ]


def test_missing_keys_of_a_deployment_by_options_are_named(circumstances: Circumstances) -> None:
    assert faults(SHORT, circumstances, nodes="4") == [
        "ws.yaml:1:1: deployment.duration: is missing: for how long; a bare number counts minutes"
    ]


def test_all_faults_of_a_file_are_told_at_once(circumstances: Circumstances) -> None:
    text = """\
version: 2
metadata:
  nam: web
  image:
    uri: https://me:secret@example.org/web.qcow2
    digest: sha256:abc
    size: 5XB
    format: vmdk
    private: yes
  roles:
    - name: head
      hosts: h[1-3
      addresses: 10.0.0.300
      files: {path: /etc/motd}
      user_data: 3
deployment:
  nodes: four
  cpus: 0
  memory: 8G
  gpus: true
  start: 25:00
  finish_by:
  durration: 2h
"""

    found = faults(text, circumstances)

    expected = [
        ("ws.yaml:1:10: version: ", "2 is not allowed here: write 1"),
        ("ws.yaml:3:3: metadata.nam: ", "did you mean name?"),
        ("ws.yaml:5:10: metadata.image.uri: ", "has a user or a password"),
        ("ws.yaml:6:13: metadata.image.digest: ", "sha256: and 64 hexadecimal digits"),
        ("ws.yaml:7:11: metadata.image.size: ", '"5XB" is not a size'),
        ("ws.yaml:8:13: metadata.image.format: ", "write 'qcow2', 'raw'"),
        ("ws.yaml:9:14: metadata.image.private: ", '"yes" is not true or false'),
        ("ws.yaml:12:14: metadata.roles[0].hosts: ", "a bracket is not closed"),
        ("ws.yaml:13:18: metadata.roles[0].addresses: ", '"10.0.0.300" is not an address'),
        ("ws.yaml:14:14: metadata.roles[0].files: ", "is not a list"),
        ("ws.yaml:15:18: metadata.roles[0].user_data: ", "3 is not a text: put it in quotes"),
        ("ws.yaml:17:10: deployment.nodes: ", '"four" is not a whole number'),
        ("ws.yaml:18:9: deployment.cpus: ", "0 is too small: 1 or more"),
        ("ws.yaml:19:11: deployment.memory: ", '"8G" has no full unit'),
        ("ws.yaml:20:9: deployment.gpus: ", "true is not a whole number"),
        ("ws.yaml:21:10: deployment.start: ", "hour 25 is not between 0 and 23"),
        ("ws.yaml:22:13: deployment.finish_by: ", "is empty"),
        ("ws.yaml:23:3: deployment.durration: ", "did you mean duration?"),
    ]
    assert len(found) == len(expected)
    for line, (place, words) in zip(found, expected, strict=True):
        assert line.startswith(place)
        assert words in line


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("version: 1\n", "", "1:1: version: is missing: which version of this form it is"),
        ("  name: osg\n", "", "3:3: metadata.name: is missing: what the workspace is called"),
        ("name: osg", "name: 123", "metadata.name: 123 is not a text: put it in quotes"),
        ("name: osg", "name: ../osg", 'metadata.name: "../osg" is not a name'),
        ("name: osg", "name: -rf", "is not a name"),
        ("name: osg", "name: " + "x" * 64, "is not a name: use up to 63"),
        ("metadata:", "metadatas:", "2:1: metadatas: there is no such key; did you mean metadata?"),
        ("gpus: 1", "foo: 1", "deployment.foo: there is no such key; known here are nodes, "),
        ("https://images", "file://../../etc/passwd?", "has .. as a part"),
        ("https://images", "https://a/%2e%2e/b", "has .. as a part"),
        ("https://images", "-oProxyCommand=", "begins with -"),
        ("https://images", "https://token@images", "has a user or a password"),
        ("https://images", "https://h/x; rm -rf ~", '" " cannot stand in a URI: write it as %20'),
        ("https://images", "https://h/$(id)'", "cannot stand in a URI"),
        ("https://images", "HTTPS://h/", '"HTTPS" is not a scheme'),
        ("osg-w[001-100]", "osg_w[001-100]", '"osg_w001" is not the name of a host'),
        ("osg-w[001-100]", "osg-w[001-099]", "100 addresses for 99 hosts: give one for each"),
        ("osg-w[001-100]", "osg-w[001-099],osg-head", "roles[1].hosts: osg-head is a host of a role above"),
        ("10.1.1.[1-100]", "10.1.1.[2-100],10.1.0.1", "roles[1].addresses: 10.1.0.1 is given"),
        ("- name: worker", "- name: head", "roles[1].name: head is the name of a role above"),
        ("osg-w[001-100]", "osg-w[1-99999]", "stands for 99999 names: at most 10000"),
        ("/etc/condor/config.d/head", "etc/motd", "is not a file inside an instance"),
        ("/etc/condor/config.d/head", "/etc/../motd", "has an empty, . or .. part"),
        ("/etc/condor/config.d/head", "/etc/", "is not a file inside an instance"),
        ('mode: "0600"', "mode: 600", "600 is not a text"),
        ('mode: "0600"', 'mode: "4755"', "is not the mode of a file"),
        ("      files:\n", "      files:\n        - {path: /etc/condor/config.d/head, content: x}\n",
         "files[0].path: /etc/condor/config.d/head is written more than once"),
        ("nodes: 50", "nodes: 51", "deployment.nodes: 102 instances are wanted, but the roles of"),
        ("nodes: 50", "nodes: 10001", "10001 is too large: 10000 or less"),
        ("nodes: 50", "nodes: 1.5", '"1.5" is not a whole number'),
        ("nodes: 50", "nodes: [1]", "a list is not a whole number"),
        ("nodes: 50", "nodes: 99999999999999999999", "is not a whole number"),
        ("duration: 2h30m", "duration: 3 parsecs", '"parsecs" in "3 parsecs" is not a unit of time'),
        ("duration: 2h30m", "duration: {h: 2}", "a mapping is not an amount"),
        ("duration: 2h30m", "duration: 20h1m", "finish_by: 20h1m from 2026-11-22T16:00:00+01:00 on do"),
        ("  gpus: 1", "  open_from: 16:00", "deployment.start: open_from says when it may start"),
        ("  gpus: 1", "  ready_within: 60s", "deployment.ready_within: is for what waits for an event"),
        ("start: tomorrow 16:00", "start: 2027-03-28T02:30", "does not happen because clocks are changed"),
    ],
)  # fmt: skip
def test_fault_is_named_with_what_is_allowed(
    before: str, after: str, expected: str, workspace_text: str, circumstances: Circumstances
) -> None:
    assert before in workspace_text
    found = faults(workspace_text.replace(before, after, 1), circumstances)

    assert len(found) == 1
    assert expected in found[0]
    assert found[0].startswith("ws.yaml:")


def test_line_end_in_a_uri_is_refused(circumstances: Circumstances) -> None:
    text = SHORT.replace("web.qcow2", '"https://h/x\\r\\nHost: evil"')

    assert (
        'metadata.image.uri: "\\r" cannot stand in a URI: write it as %0D' in faults(text, circumstances)[0]
    )


def test_deadline_that_just_fits_is_accepted(workspace_text: str, circumstances: Circumstances) -> None:
    # From Sunday 16:00 to Monday 12:00 there are 20 hours.
    assert parse(workspace_text, circumstances, duration="20h").deployment is not None


def test_deadline_that_is_too_near_is_refused_without_a_start_too(circumstances: Circumstances) -> None:
    text = BEST_EFFORT + "  finish_by: now+30minutes\n"

    assert (
        "1h from 2026-11-21T18:00:00+01:00 on do not end by 2026-11-21T18:30:00"
        in faults(text, circumstances)[0]
    )


def test_too_many_instances_are_refused_in_sum(circumstances: Circumstances) -> None:
    text = BEST_EFFORT.replace("nodes: 2", "nodes: 1000\n  instances_per_node: 11")

    assert "11000 instances are too many: at most 10000" in faults(text, circumstances)[0]


@pytest.mark.parametrize("text", ["[]", "just words", "42", "[[[]]]"])
def test_file_that_is_no_mapping_is_refused(text: str, circumstances: Circumstances) -> None:
    assert "is not a mapping" in faults(text, circumstances)[0]


@pytest.mark.parametrize(
    "more",
    [
        "".join(f"{'nodes' * 4}{number}: 1\n" for number in range(8000)),
        "  roles:\n" + "".join(f"    - {{name: r{number}, hosts: 3}}\n" for number in range(5000)),
        "  roles:\n" + "".join(f"    - {{name: r{n}, hosts: 'h{n}[1-10000]'}}\n" for n in range(64)),
        "  roles:\n    - {name: a, hosts: '" + "a[1]" * 16_000 + "'}\n",
        "deployment: {nodes: 1, duration: 1, start: '" + " " * 200_000 + "1'}\n",
        "deployment: {nodes: 1, duration: '" + "1 " * 100_000 + "'}\n",
    ],
    ids=["keys", "items", "hosts", "brackets", "blanks", "digits"],
)
def test_no_workspace_takes_long(more: str, circumstances: Circumstances) -> None:
    began = process_time()
    found = faults(SHORT + more, circumstances)

    assert process_time() - began < 5
    assert 0 < len(found) <= MOST_PROBLEMS


def test_file_is_read_from_its_path(
    tmp_path: Path, workspace_text: str, circumstances: Circumstances
) -> None:
    path = tmp_path / "ws.yaml"
    path.write_text(workspace_text)

    assert read_workspace(path, circumstances) == parse(workspace_text, circumstances)
    with pytest.raises(OSError, match="No such file"):
        read_workspace(tmp_path / "none.yaml", circumstances)


def test_model_cannot_be_changed(workspace_text: str, circumstances: Circumstances) -> None:
    workspace = parse(workspace_text, circumstances)

    with pytest.raises(ValueError, match="frozen"):
        workspace.metadata.name = "other"


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_of_image_that_nodes_know_is_known(form: str, circumstances: Circumstances) -> None:
    text = SHORT.replace("web.qcow2", f"web, format: {form}")

    assert parse(text, circumstances).metadata.image.format == form
