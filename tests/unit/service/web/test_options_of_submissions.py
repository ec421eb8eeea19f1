"""A workspace file with several options, handed over as a job: what its lines say."""

from __future__ import annotations

import pytest

from outrider.metadata.joblines import parse_job_lines, write_job_lines
from outrider.metadata.notation.job_options import write_finish_by
from outrider.service.ports import FoundImage
from outrider.service.web.errors import RefusedRequest
from outrider.service.web.requests.bodies import SubmitBody
from outrider.service.web.requests.understanding import understand_job
from outrider.service.web.routes.submissions import _lines

NOW_S = 1_785_506_400  # 2026-07-31T14:00:00Z
WORKSPACE = """version: 1
metadata:
  name: web
  image: {uri: "https://images.example.org/ubuntu"}
deployment:
"""
TWO = "  options: [{nodes: 2, duration: 1h}, {nodes: 4, duration: 35m}]\n"


def lines(deployment: str, option_images: tuple[FoundImage | None, ...] = ()) -> str:
    body = SubmitBody.model_validate({"argv": ["true"], "workspace": WORKSPACE + deployment, "zone": "UTC"})
    workspace = understand_job(body, NOW_S)
    found = _lines(workspace, FoundImage(size_bytes=5, digest="sha256:" + "a" * 64), option_images)
    return write_job_lines(found)


def test_options_and_deadline_of_a_file_become_those_of_the_job() -> None:
    found = parse_job_lines(lines(TWO + "  finish_by: now+3h\n  value: 12.5\n"))

    assert [str(each) for each in found.options] == ["nodes=2 time=60", "nodes=4 time=35"]
    assert write_finish_by(found.finish_by_s or 0) == "2026-07-31T17:00:00Z"
    assert found.value == 12_500


def test_what_one_option_says_of_a_node_stands_in_all() -> None:
    sized = "  cpus: 2\n  options: [{nodes: 2, duration: 90s, cpus: 8}, {nodes: 4, duration: 35m}]\n"

    found = parse_job_lines(lines(sized))

    assert [str(each) for each in found.options] == ["nodes=2 time=2 cpus=8", "nodes=4 time=35 cpus=2"]


def test_image_of_an_option_is_that_which_was_found() -> None:
    own = "  options: [{nodes: 2, duration: 1h}, {nodes: 2, duration: 35m, image: {uri: fast}}]\n"
    found = FoundImage(uri="https://images.example.org/fast", size_bytes=5, digest="sha256:" + "b" * 64)

    options = parse_job_lines(lines(own, (None, found))).options

    assert [(each.image, each.digest) for each in options] == [("", ""), (found.uri, found.digest)]


@pytest.mark.parametrize(
    ("deployment", "words"),
    [
        (TWO + "  start: now+1h\n", "a job of its own cannot"),
        ("  nodes: 2\n  duration: 1h\n  value: [1]\n", "is not a value"),
        ("  nodes: 2\n  duration: 1h\n  finish_by: now+3h\n  least_piece: 10m\n", "a job is in one piece"),
        ("  options: [{nodes: 2, duration: 1h, image: {uri: a, private: true}}]\n", "private together"),
        ("  options: [{nodes: 2, duration: 1h, image: {uri: a, format: raw}}]\n", "has no format"),
        ("  options: [{nodes: 2, duration: 1h, instances_per_node: 2}]\n", "one instance on each node"),
        ("  options: [{nodes: 2, duration: 1h}, {nodes: 2, duration: 2h}]\n", "it has the size of option 1"),
    ],
)
def test_what_a_job_cannot_have_is_refused(deployment: str, words: str) -> None:
    with pytest.raises(RefusedRequest) as refused:
        lines(deployment)

    assert words in str(refused.value.__dict__)
