"""A script's own lines join what its workspace says, and its machine is told what it may have."""

from __future__ import annotations

import pytest

from outrider.metadata.joblines import JobLines
from outrider.service.web.errors import RefusedRequest
from outrider.service.web.requests.bodies import SubmitBody
from outrider.service.web.requests.understanding import machine_words, understand_job, with_script_lines

NOW_S = 1_785_506_400
IMAGE = JobLines(image="https://images.example.org/a.raw", digest="sha256:" + "a" * 64)
WORKSPACE = """version: 1
metadata:
  name: web
  image: {uri: "https://images.example.org/a.raw"}
deployment: {nodes: 1, duration: 1h%s}
"""


def words(lines: list[str], deployment: str = ", memory: 512MiB") -> str:
    body = SubmitBody.model_validate({"argv": ["job"], "workspace": WORKSPACE % deployment, "zone": "UTC"})
    return machine_words(with_script_lines(IMAGE, lines), understand_job(body, NOW_S).deployment)


def test_lines_of_a_script_join_those_of_its_workspace() -> None:
    found = with_script_lines(IMAGE, ["run: vm", "preemptible: suspend"])

    assert (found.image, found.digest) == (IMAGE.image, IMAGE.digest)
    assert (found.is_machine, found.is_suspendable) == (True, True)


def test_machine_is_told_its_memory_kernel_disk_and_rate() -> None:
    assert words(["run: vm"]) == "run=vm,memory=512"
    assert (
        words(["run: vm", "boot: tiny", "scratch: 1GiB", "disk-rate: 1MB"])
        == "run=vm,memory=512,boot=tiny,scratch=1073741824,disk=1000000"
    )
    assert words(["preemptible: requeue"]) == ""


def test_interactive_lease_needs_no_script_of_its_machine() -> None:
    assert words(["run: vm", "lease: interactive"], ", memory: 1GiB").endswith(",lease=interactive")


@pytest.mark.parametrize(
    ("lines", "deployment", "culprit"),
    [
        (["image: other"], "", "image"),
        (["option: nodes=1 time=5"], "", "option"),
        (["run: jail"], "", "run"),
        (["run: vm", "run: vm"], "", "run"),
        (["run: vm"], "", "memory"),
        (["run: vm"], ", memory: 1GiB, instances_per_node: 2", "instances_per_node"),
        (["run: vm", "role: worker"], ", memory: 1GiB", "role"),
        (["run: vm", "data: https://a.example.org/d name=d"], ", memory: 1GiB", "data"),
        (["run: vm", "network-rate: 1MB"], ", memory: 1GiB", "network-rate"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(lines: list[str], deployment: str, culprit: str) -> None:
    with pytest.raises(RefusedRequest, match=culprit):
        words(lines, deployment)
