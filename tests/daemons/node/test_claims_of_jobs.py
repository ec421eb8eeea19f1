"""Claims: a job gets the image that it was promised, and no other, on the word of the site's key."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.errors import BadRequest, CacheError, InUse, NotAllowed, NotInPool
from cachemgr.network.client import DaemonClient
from cachemgr.network.job_tickets import JobTicket, make_job_ticket
from tests.daemons.node.daemons import CLOCK, MIB, Inside, ScriptedCarrier, as_user, needs_root, sha256
from tests.repository import ROOT

A, B = "http://x/a", "http://x/b"
CONTENT, OTHER = b"a" * MIB, b"b" * MIB
DIGEST, OTHER_DIGEST = sha256(CONTENT), sha256(OTHER)
KEY, OTHER_KEY = b"k" * 32, b"o" * 32
UID = 4242
Start = Callable[..., Inside]
HOOK = str(ROOT / "cachemgr" / "hook.py")


@pytest.fixture
def daemon(inside: Start, carrier: ScriptedCarrier, folder: Path) -> Inside:
    carrier.contents = {A: CONTENT, B: OTHER}
    (folder / "site.key").write_bytes(KEY)
    found = inside(relay_key=str(folder / "site.key"))
    found.ask("add", uri=A)
    found.settle()
    return found


def ticket(key: bytes = KEY, **changes: Any) -> str:
    said = {"job": "17", "uid": UID, "digest": DIGEST, "expires_s": CLOCK.now_s() + 600, **changes}
    return make_job_ticket(key, JobTicket(**said))


def claim(daemon: Inside, **changes: Any) -> dict[str, Any]:
    return daemon.ask("claim", **{"job": "17", "uid": UID, **changes})


def owners(daemon: Inside) -> list[str]:
    return [each["owner"] for each in daemon.ask("instances")["instances"]]


def test_ticket_gives_its_job_an_instance_for_its_user(daemon: Inside) -> None:
    made = claim(daemon, ticket=ticket())

    assert Path(made["path"]).read_bytes() == CONTENT
    assert (made["owner"], made["uid"], made["digest"]) == ("job-17", UID, f"sha256:{DIGEST}")
    assert daemon.ask("show", name=DIGEST)["pins"] == 1


def test_claim_may_be_repeated(daemon: Inside) -> None:
    first, second = (claim(daemon, ticket=ticket(), attempt=0) for _ in range(2))

    assert second == first
    assert len(owners(daemon)) == 1


def test_job_that_starts_again_begins_with_a_fresh_copy(daemon: Inside) -> None:
    first = claim(daemon, ticket=ticket(), attempt=0)
    Path(first["path"]).write_bytes(b"changed")
    second = claim(daemon, ticket=ticket(), attempt=1)

    assert Path(second["path"]).read_bytes() == CONTENT
    assert not Path(first["path"]).exists()
    assert owners(daemon) == ["job-17"]


def test_late_end_of_an_earlier_start_leaves_the_later_one_alone(daemon: Inside) -> None:
    claim(daemon, ticket=ticket(), attempt=0)
    second = claim(daemon, ticket=ticket(), attempt=1)
    late = daemon.ask("release", owner="job-17", label="attempt-0")
    there = Path(second["path"]).exists()
    own = daemon.ask("release", owner="job-17")

    assert late["removed"] == 0
    assert there
    assert own["removed"] == 1


def test_two_jobs_of_one_image_have_a_copy_each(daemon: Inside) -> None:
    first = claim(daemon, ticket=ticket())
    second = claim(daemon, job="18", ticket=ticket(job="18"))
    Path(first["path"]).write_bytes(b"changed")

    assert Path(second["path"]).read_bytes() == CONTENT
    assert sorted(owners(daemon)) == ["job-17", "job-18"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"key": OTHER_KEY}, "was not signed with this node's key"),
        ({"uid": 4243}, "is for uid 4243, not for uid 4242"),
        ({"job": "18"}, "job 17 has the ticket of job 18"),
        ({"expires_s": 1_700_000_000}, "has expired"),
    ],
)
def test_ticket_of_others_is_refused(daemon: Inside, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(NotAllowed, match=said):
        claim(daemon, ticket=ticket(**changes))

    assert owners(daemon) == []


def test_forged_ticket_is_not_made_good_by_a_reservation(daemon: Inside) -> None:
    until_s = CLOCK.now_s() + 600
    daemon.ask("pin", name=DIGEST, owner="reservation:render-1", until_s=until_s)
    with pytest.raises(NotAllowed):
        claim(daemon, ticket=ticket(OTHER_KEY), reservation="render-1")

    assert owners(daemon) == []


def test_image_that_is_not_here_is_said_with_its_own_status(daemon: Inside) -> None:
    with pytest.raises(NotInPool, match="is not on this node") as refused:
        claim(daemon, ticket=ticket(digest=OTHER_DIGEST))

    assert refused.value.exit_code == 3


def test_image_that_is_still_arriving_is_not_here(daemon: Inside, carrier: ScriptedCarrier) -> None:
    gate = carrier.hold(B, after_bytes=1000)
    daemon.ask("add", uri=B, digest=OTHER_DIGEST, size_bytes=MIB)
    try:
        with pytest.raises(NotInPool):
            claim(daemon, ticket=ticket(digest=OTHER_DIGEST))
    finally:
        gate.set()
    daemon.settle()

    assert claim(daemon, ticket=ticket(digest=OTHER_DIGEST))["digest"] == f"sha256:{OTHER_DIGEST}"


def test_private_image_is_checked_again_for_the_user(daemon: Inside) -> None:
    daemon.ask("add", uri=B, uid=UID, private=True)
    daemon.settle()
    with pytest.raises(NotAllowed, match="uid 4243 is not among its readers"):
        claim(daemon, uid=4243, ticket=ticket(uid=4243, digest=OTHER_DIGEST))

    assert claim(daemon, ticket=ticket(digest=OTHER_DIGEST))["uid"] == UID


def test_pin_of_a_reservation_stands_for_a_ticket(daemon: Inside) -> None:
    daemon.ask("pin", name=DIGEST, owner="reservation:render-1", until_s=CLOCK.now_s() + 600)
    made = claim(daemon, reservation="render-1")

    assert made["digest"] == f"sha256:{DIGEST}"
    with pytest.raises(NotInPool, match="no image is held on this node for reservation render-2"):
        claim(daemon, reservation="render-2")


def test_pin_of_a_user_is_no_reservation(daemon: Inside) -> None:
    needs_root()
    until_s = CLOCK.now_s() + 600

    def pin() -> dict[str, Any]:
        with DaemonClient(daemon.socket) as client:
            return client.ask("pin", {"name": DIGEST, "owner": "reservation:render-1", "until_s": until_s})

    pinned = as_user(UID, pin)

    assert "gives" in pinned
    with pytest.raises(NotInPool):
        claim(daemon, reservation="render-1")


def test_reservation_of_two_images_needs_tickets(daemon: Inside) -> None:
    daemon.ask("add", uri=B)
    daemon.settle()
    for digest in (DIGEST, OTHER_DIGEST):
        daemon.ask("pin", name=digest, owner="reservation:render-1", until_s=CLOCK.now_s() + 600)
    with pytest.raises(BadRequest, match="has 2 images here"):
        claim(daemon, reservation="render-1")

    assert claim(daemon, reservation="render-1", ticket=ticket())["digest"] == f"sha256:{DIGEST}"


def test_users_claim_nothing(daemon: Inside) -> None:
    needs_root()
    text = ticket()

    def take() -> dict[str, Any]:
        with DaemonClient(daemon.socket) as client:
            return client.ask("claim", {"job": "17", "ticket": text})

    refused = as_user(UID, take)

    assert refused["raises"] == "NotAllowed"
    assert owners(daemon) == []


@pytest.mark.parametrize("job", ["../17", "1.7", "17 18", "x" * 100, "-"])
def test_number_that_is_none_of_a_job_is_refused(daemon: Inside, job: str) -> None:
    with pytest.raises(BadRequest, match="is not a job's number"):
        claim(daemon, job=job, ticket=ticket())


@pytest.mark.parametrize("fields", [{}, {"ticket": "x", "owner": "me"}])
def test_claim_of_nothing_is_refused(daemon: Inside, fields: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        claim(daemon, **fields)


def test_other_image_for_a_job_that_has_one_is_refused(daemon: Inside) -> None:
    daemon.ask("add", uri=B)
    daemon.settle()
    claim(daemon, ticket=ticket())

    with pytest.raises(InUse, match="release it first"):
        claim(daemon, ticket=ticket(digest=OTHER_DIGEST))


def test_lease_lasts_as_long_as_a_job_may(daemon: Inside) -> None:
    long, short = claim(daemon, ticket=ticket()), CLOCK.now_s() + 100
    other = claim(daemon, job="18", ticket=ticket(job="18"), until_s=short)

    assert long["until_s"] > CLOCK.now_s() + 300 * 86_400
    assert other["until_s"] == short


def hook(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-S", HOOK, *arguments]
    return subprocess.run(command, env={}, cwd="/", capture_output=True, text=True, timeout=240)


def test_hook_claims_and_releases(daemon: Inside) -> None:
    where = ["--socket", daemon.socket]
    job = ["--job", "17", "--uid", str(UID), "--attempt", "0", "--ticket", ticket(), *where]
    first, second = hook("claim", *job), hook("claim", *job)
    content = Path(first.stdout.strip()).read_bytes()
    released = hook("release", "--owner", "job-17", *where)

    assert (first.returncode, first.stderr, first.stdout) == (0, "", second.stdout)
    assert content == CONTENT
    assert released.returncode == 0
    assert owners(daemon) == []


def test_hook_has_the_status_and_words_of_what_is_wrong(daemon: Inside) -> None:
    where = ["--socket", daemon.socket, "--job", "17", "--uid", str(UID)]
    wrong = hook("claim", *where, "--ticket", ticket(OTHER_KEY))
    missing = hook("claim", *where, "--ticket", ticket(digest=OTHER_DIGEST))
    nothing = hook("claim", *where)

    assert [each.returncode for each in (wrong, missing, nothing)] == [
        NotAllowed.exit_code,
        NotInPool.exit_code,
        BadRequest.exit_code,
    ]
    assert re.match("outrider: the ticket of job 17 was not signed", wrong.stderr)
    assert "Traceback" not in wrong.stderr + missing.stderr + nothing.stderr


def test_daemon_without_a_key_believes_no_ticket(inside: Start) -> None:
    daemon = inside()

    with pytest.raises(CacheError, match="was not signed with this node's key"):
        claim(daemon, ticket=ticket())


def pin_further(daemon: Inside, number: int, job: str = "17", name: str = B) -> None:
    if name not in [each["uri"] for each in daemon.ask("ls")["images"]]:
        daemon.ask("add", uri=name)
        daemon.settle()
    owner = f"reservation:job-{job}+{number}"
    daemon.ask("pin", name=name, owner=owner, until_s=CLOCK.now_s() + 600)


def further_of(daemon: Inside) -> dict[str, Any]:
    found = daemon.ask("instances")["instances"]
    return {each["label"]: each for each in found if "+" in each["label"]}


def test_job_gets_its_further_images_as_they_lie_in_the_pool(daemon: Inside) -> None:
    pin_further(daemon, 1)
    pin_further(daemon, 2, name=A)
    made = claim(daemon, ticket=ticket(further=2), attempt=0)
    found = further_of(daemon)
    again = claim(daemon, ticket=ticket(further=2), attempt=0)
    there = len(owners(daemon))
    removed = daemon.ask("release", owner="job-17")["removed"]

    # The later claim holds it for as long from then on.
    assert {**again, "until_s": made["until_s"]} == made
    assert {label: each["digest"] for label, each in found.items()} == {
        "attempt-0+1": f"sha256:{OTHER_DIGEST}",
        "attempt-0+2": f"sha256:{DIGEST}",
    }
    assert not any(each["is_writable"] for each in found.values())
    assert Path(found["attempt-0+1"]["path"]).read_bytes() == OTHER
    assert (there, removed) == (3, 3)
    # It stays until somebody needs its room, for nobody holds it but the service's own pin.
    assert daemon.ask("show", name=OTHER_DIGEST)["pins"] == 1


def test_job_that_starts_again_has_nothing_of_its_first_start(daemon: Inside) -> None:
    pin_further(daemon, 1)
    for attempt in (0, 1):
        claim(daemon, ticket=ticket(further=1), attempt=attempt)

    assert list(further_of(daemon)) == ["attempt-1+1"]
    assert len(owners(daemon)) == 2


def test_job_without_one_of_its_further_images_gets_none(daemon: Inside) -> None:
    pin_further(daemon, 1)
    with pytest.raises(NotInPool, match="image 3 of job 17 is not on this node"):
        claim(daemon, ticket=ticket(further=2))

    assert owners(daemon) == []


def test_pinned_job_gets_all_that_is_pinned_for_it(daemon: Inside) -> None:
    daemon.ask("pin", name=A, owner="reservation:job-17", until_s=CLOCK.now_s() + 600)
    pin_further(daemon, 1)
    pin_further(daemon, 1, job="18", name=A)
    claim(daemon, pinned=True, attempt=0)

    assert list(further_of(daemon)) == ["attempt-0+1"]
    assert len(owners(daemon)) == 2


def test_number_of_further_images_is_signed(daemon: Inside) -> None:
    pin_further(daemon, 1)
    text = ticket(further=1)
    with pytest.raises(NotAllowed, match="was not signed"):
        claim(daemon, ticket=text.replace("17+1", "17"))

    assert owners(daemon) == []
