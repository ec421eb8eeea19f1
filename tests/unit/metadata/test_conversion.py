"""What the core is handed, and what each instance is told."""

from __future__ import annotations

import pytest

from outrider.core.model import Image, Resources, Workspace
from outrider.metadata.conversion import image_of, instances_of, workspace_of
from outrider.metadata.errors import MetadataError
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import WorkspaceFile, parse_workspace

DIGEST = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
IMAGE = Image(uri="web.qcow2", size_bytes=1)


@pytest.fixture
def osg(workspace_text: str, circumstances: Circumstances) -> WorkspaceFile:
    return parse_workspace(workspace_text.encode(), circumstances, file="ws.yaml")


def web(circumstances: Circumstances, deployment: str, image: str = "uri: web.qcow2") -> WorkspaceFile:
    text = f"version: 1\nmetadata: {{name: web, image: {{{image}}}}}\n"
    if deployment:
        text += f"deployment: {{{deployment}}}\n"
    return parse_workspace(text.encode(), circumstances, file="ws.yaml")


def test_workspace_asks_the_core_for_whole_nodes(osg: WorkspaceFile, circumstances: Circumstances) -> None:
    image = image_of(osg.metadata.image)
    workspace = workspace_of(osg, image, now_s=circumstances.now_s)

    assert osg.deployment is not None
    # Two instances a node, each with 2 cpus, 4 GiB and a graphics processor.
    assert workspace == Workspace(
        name="osg",
        instances=50,
        resources=Resources.of(cpus=4, memory_mib=8192, gpus=2),
        duration_s=9000,
        image=Image(uri="https://images.example.org/osg-worker.qcow2", size_bytes=600_000_000, digest=DIGEST),
        start_s=osg.deployment.start_s,
        finish_by_s=osg.deployment.finish_by_s,
    )


def test_best_effort_has_no_start(circumstances: Circumstances) -> None:
    file = web(circumstances, "nodes: 1, duration: 1h, preemptible: false")
    workspace = workspace_of(file, IMAGE, now_s=circumstances.now_s, name="web-7")

    assert workspace.is_best_effort
    assert not workspace.is_preemptible
    assert workspace.name == "web-7"
    assert workspace.resources == Resources.of(cpus=1)


def test_deadline_alone_starts_from_now_on(circumstances: Circumstances) -> None:
    file = web(circumstances, "nodes: 1, duration: 1h, finish_by: now+3hours")
    later_s = circumstances.now_s + 60
    workspace = workspace_of(file, IMAGE, now_s=later_s)

    assert workspace.start_s == later_s
    assert workspace.finish_by_s == circumstances.now_s + 3 * 3600


def test_deadline_that_has_become_too_near_is_said(circumstances: Circumstances) -> None:
    file = web(circumstances, "nodes: 1, duration: 1h, finish_by: now+3hours")

    with pytest.raises(MetadataError, match=r"cannot end by its finish_by any more: it lacks 5 s"):
        workspace_of(file, IMAGE, now_s=circumstances.now_s + 2 * 3600 + 5)


def test_metadata_alone_cannot_be_deployed(circumstances: Circumstances) -> None:
    with pytest.raises(MetadataError, match="no deployment: add that section, or give at least --nodes"):
        workspace_of(web(circumstances, ""), IMAGE, now_s=circumstances.now_s)


def test_image_is_completed_by_what_was_found(circumstances: Circumstances) -> None:
    section = web(circumstances, "").metadata.image

    assert image_of(section, found_size_bytes=7, found_digest=DIGEST) == Image(
        uri="web.qcow2", size_bytes=7, digest=DIGEST
    )
    with pytest.raises(MetadataError, match=r"size of image web.qcow2 is not known"):
        image_of(section)


def test_image_that_is_another_by_now_is_refused(osg: WorkspaceFile) -> None:
    other = "sha256:" + "0" * 64

    with pytest.raises(MetadataError, match=f"is {other} by now, and the file wants {DIGEST}"):
        image_of(osg.metadata.image, found_digest=other, found_size_bytes=600_000_000)
    with pytest.raises(MetadataError, match="has 5 bytes, and the file says 600000000"):
        image_of(osg.metadata.image, found_size_bytes=5)


def test_instances_are_bound_in_the_order_written(osg: WorkspaceFile) -> None:
    instances = instances_of(osg)

    assert len(instances) == 100
    assert [each.number for each in instances] == list(range(100))
    assert (instances[0].role, instances[0].host, instances[0].address) == ("head", "osg-head", "10.1.0.1")
    assert instances[0].user_data.startswith("#cloud-config")
    assert (instances[99].role, instances[99].host, instances[99].address) == (
        "worker",
        "osg-w099",
        "10.1.1.99",
    )
    assert instances[99].files[0].path == "/etc/condor/config.d/head"


def test_workspace_without_roles_has_nothing_to_bind(circumstances: Circumstances) -> None:
    assert instances_of(web(circumstances, "nodes: 4, duration: 1h")) == ()


def test_what_nothing_carries_out_is_named(osg: WorkspaceFile, circumstances: Circumstances) -> None:
    (roles,) = osg.unused_keys
    (yields,) = web(circumstances, "nodes: 1, duration: 1h, preemptible: true").unused_keys

    assert roles.startswith("metadata.roles is not used")
    assert yields.startswith("deployment.preemptible is not used")
    assert web(circumstances, "nodes: 1, duration: 1h, preemptible: false").unused_keys == ()
