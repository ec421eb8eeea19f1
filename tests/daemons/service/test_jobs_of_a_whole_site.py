"""Best effort end to end: a real service with real pools, and jobs that read the image they named."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from tests.daemons.node.daemons import needs_root
from tests.security.siege import ALICE, BOB, Siege, eventually, image_of, siege

IMAGE = b"what the job reads\n" * 100_000
WORKSPACE = "version: 1\nmetadata: {{name: ws, image: {{uri: 'file://{uri}'{more}}}}}\n"
READ = ("/bin/sh", "-c", 'sha256sum < "$OUTRIDER_IMAGE"; echo END')


@pytest.fixture(scope="module")
def service() -> Iterator[Siege]:
    needs_root()
    with siege() as made:
        yield made


def submitted(service: Siege, uid: int, uri: str, more: str = "", *argv: str) -> str:
    text = WORKSPACE.format(uri=uri, more=more)
    status, answer = service.submit(uid, *(argv or READ), workspace=text)
    assert status == 201, answer
    return str(answer["job"])


def test_job_starts_when_its_image_is_there_and_reads_it(service: Siege) -> None:
    path = service.folder / "image"
    digest = image_of(ALICE, path, IMAGE, 0o644)
    first = submitted(service, ALICE, str(path))
    output = service.output(first)
    second = submitted(service, BOB, str(path))
    again = service.output(second)

    assert output.split()[0] == hashlib.sha256(IMAGE).hexdigest()
    assert again == output
    shown = [service.node(0, node, "show", name=digest) for node in ("n1", "n2")]
    assert sum("gives" in each for each in shown) == 1, "the second was led to the node that has it"


def test_nothing_is_left_of_a_job_on_its_node(service: Siege) -> None:
    path = service.folder / "left"
    digest = image_of(ALICE, path, IMAGE + b"left", 0o644)
    service.output(submitted(service, ALICE, str(path)))

    def is_tidy() -> bool:
        shown = [service.node(0, node, "show", name=digest) for node in ("n1", "n2")]
        pins = [pin for each in shown if "gives" in each for pin in each["gives"]["pin_list"]]
        held = [service.node(0, node, "instances")["gives"]["instances"] for node in ("n1", "n2")]
        return not pins and held == [[], []]

    eventually(is_tidy, "tidiness", service.log.read_text)

    assert is_tidy()


def test_private_image_is_read_by_its_user_and_by_nobody_else(service: Siege) -> None:
    path = service.folder / "private"
    image_of(ALICE, path, IMAGE + b"private")
    output = service.output(submitted(service, ALICE, str(path), ", private: true"))
    status, refused = service.submit(BOB, *READ, workspace=WORKSPACE.format(uri=path, more=", private: true"))

    assert output.split()[0] == hashlib.sha256(IMAGE + b"private").hexdigest()
    assert status == 422, refused


def test_job_whose_image_goes_before_it_is_looked_up_waits_and_says_why(service: Siege) -> None:
    path = service.folder / "gone"
    image_of(ALICE, path, IMAGE + b"gone", 0o644)
    text = WORKSPACE.format(uri=path, more="")
    # Both nodes are taken, so that it cannot start before it is looked at.
    status, blocker = service.submit(ALICE, "/bin/sleep", "60", nodes=2)
    assert status == 201, blocker
    status, answer = service.submit(ALICE, *READ, workspace=text)
    assert status == 201, answer
    path.unlink()
    job = answer["job"]

    def is_told() -> bool:
        status, details = service.ask(ALICE, "GET", f"/v1/jobs/{job}")
        return status == 200 and details["job"]["state"] in ("refused", "staging", "waiting")

    eventually(is_told, "an answer about the job", service.log.read_text)
    assert service.ask(ALICE, "GET", "/v1/jobs")[1]["jobs"][0]["job"] == job
    assert service.ask(BOB, "POST", "/v1/starting", {"job": job, "nodes": ["n1"]})[0] == 403
    assert service.ask(0, "POST", "/v1/starting", {"job": job, "nodes": ["n1"]})[1]["verdict"] == "wait"
    assert service.ask(0, "GET", "/v1/status")[1]["jobs"]["running"] == 0
