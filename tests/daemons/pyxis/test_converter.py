"""The site's converter: for whom it works, as whom, and what it refuses."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from typing import Any

import pytest

from cachemgr.base.errors import BadRequest, NotAllowed, SourceFailed, Unsuitable
from cachemgr.base.ownfolder import MARKER
from cachemgr.network.client import DaemonClient
from tests.daemons.node.daemons import DEADLINE_S, as_user, eventually
from tests.daemons.pyxis.site import ALICE, BOB, Site, path_of, start

UBUNTU = "docker://ubuntu:24.04"
NAME = "docker:registry-1.docker.io/library/ubuntu:24.04"
NOBODY = 65534


def ask(site: Site, uri: str) -> dict[str, Any]:
    with DaemonClient(str(site.folder / "c")) as client:
        return client.ask("convert", {"uri": uri}, on_progress=lambda progress: None)


def test_image_is_made_by_a_user_of_no_rights_and_named_for_all(shared: Site) -> None:
    ask(shared, UBUNTU)
    found = as_user(BOB, lambda: shared.daemon.ask("find", name=NAME))["gives"]

    with open(found["path"], "rb") as file:
        assert f"{UBUNTU} by {NOBODY}\n".encode() in file.read()
    assert found["is_public"]
    assert os.listdir(shared.folder / "convert") == [MARKER]


def test_asking_again_converts_nothing(shared: Site) -> None:
    ask(shared, "docker://again")
    ask(shared, "docker://library/again:latest")

    assert [each for each in shared.imported() if "again" in each] == ["docker://again"]


def test_link_in_place_of_an_image_is_not_followed(shared: Site) -> None:
    with pytest.raises(Unsuitable):
        ask(shared, "docker://link")
    assert "docker:registry-1.docker.io/library/link:latest" not in [each["uri"] for each in shared.images()]


def test_command_that_fails_is_quoted(shared: Site) -> None:
    with pytest.raises(SourceFailed, match="401 Unauthorized"):
        ask(shared, "docker://missing")
    assert os.listdir(shared.folder / "convert") == [MARKER]


def test_image_above_the_largest_is_not_made(site: Site) -> None:
    site.start_converter(converter_largest="50KB")

    with pytest.raises(SourceFailed):
        ask(site, UBUNTU)
    assert site.images() == []


def test_conversion_that_takes_too_long_ends(site: Site) -> None:
    site.gate()
    site.start_converter(patience="1s")

    with pytest.raises(SourceFailed, match="in 1 s"):
        ask(site, UBUNTU)
    assert os.listdir(site.folder / "convert") == [MARKER]


def test_registry_that_is_not_listed_is_left_to_its_users(site: Site) -> None:
    site.start_converter(converter_registries="nvcr.io quay.io")

    with pytest.raises(NotAllowed, match="converter_registries"):
        ask(site, UBUNTU)
    ask(site, "docker://nvcr.io#nvidia/cuda:12")
    assert site.imported() == ["docker://nvcr.io#nvidia/cuda:12"]


@pytest.mark.parametrize(
    "uri", ["docker://me@ubuntu", "dockerd://ubuntu", "file:///etc/passwd", "http://h/a"]
)
def test_what_is_not_for_everybody_is_refused(shared: Site, uri: str) -> None:
    before = shared.imported()

    with pytest.raises(BadRequest):
        ask(shared, uri)
    assert shared.imported() == before


def test_more_conversions_than_may_wait_are_refused_and_their_users_convert(site: Site) -> None:
    # Two for one user, who leaves eight to others.
    site.start_converter(converter_conversions="1", converter_waiting="9")
    gate = site.gate()
    begun = start([site.step(0)], "docker://one") + start([site.step(1)], "docker://two")
    eventually("both are asked for", lambda: site.log().count("asked uid=") == 2, site.log)

    refused = as_user(ALICE, lambda: ask(site, "docker://three"))
    assert refused["raises"] == "InUse"
    assert refused["message"].startswith("you have 2 of the 2 images")
    gate.unlink()
    assert [path_of(each.end()).is_relative_to(site.folder / "pool") for each in begun] == [True, True]


def test_killed_converter_leaves_the_step_to_itself_and_the_next_one_cleans_up(site: Site) -> None:
    site.start_converter()
    gate = site.gate()
    begun = start([site.step()], UBUNTU)[0]
    eventually("it converts", site.imported, site.log)
    assert site.converter is not None
    site.converter.send_signal(signal.SIGKILL)
    site.converter.wait(DEADLINE_S)
    gate.unlink()

    called = begun.end()
    site.start_converter()
    ask(site, UBUNTU)

    assert path_of(called).is_relative_to(site.folder / "pool")
    assert "for this user alone" in called.log
    assert os.listdir(site.folder / "convert") == [MARKER]


@pytest.mark.parametrize("is_link", [False, True])
def test_scratch_that_is_not_ours_is_refused_and_nothing_deleted(site: Site, is_link: bool) -> None:
    home = site.folder / "home"
    (home / "thesis").mkdir(parents=True)
    (home / "thesis/chapter").write_text("x")
    (home / "tmpabcd1234").mkdir()
    scratch = home
    if is_link:
        scratch = site.folder / "link"
        scratch.symlink_to(home)
    site.configure(converter=str(site.folder / "c"), converter_scratch=str(scratch))
    ended = subprocess.run(
        [str(site.programs / "outrider-converter")], capture_output=True, text=True, timeout=DEADLINE_S
    )

    assert ended.returncode == BadRequest.exit_code
    assert f"converter_scratch: {scratch} is " in ended.stderr
    assert ("is a link" if is_link else "holds 'thesis': name another folder") in ended.stderr
    assert sorted(os.listdir(home)) == ["thesis", "tmpabcd1234"]
    assert (home / "thesis/chapter").read_text() == "x"


@pytest.mark.parametrize(
    "line",
    [b"\n", b"{}\n", b"[" * 5000 + b"\n", b'{"v":1,"do":"add","uri":"x"}\n', b"x" * 9000, b"\xff\n"],
    ids=range(6),
)
def test_hostile_line_ends_its_own_connection_alone(shared: Site, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as hostile:
        hostile.settimeout(DEADLINE_S)
        hostile.connect(str(shared.folder / "c"))
        hostile.sendall(line)
        heard = hostile.recv(4096)

    assert b'"ok":false' in heard
    with pytest.raises(BadRequest):
        ask(shared, "docker://")


def test_converter_that_would_run_enroot_as_root_does_not_start(site: Site) -> None:
    site.configure(converter=str(site.folder / "c"), converter_user="root")
    tried = subprocess.run(
        [site.programs / "outrider-converter"], capture_output=True, text=True, timeout=DEADLINE_S, env={}
    )

    assert tried.returncode == 2
    assert "converter_user is root" in tried.stderr


def test_user_cannot_give_a_name_that_the_converter_gives(site: Site) -> None:
    image = site.folder / "image"
    image.write_bytes((site.folder / "header").read_bytes() + b"evil")

    def claim() -> Any:
        with DaemonClient(site.daemon.socket) as client:
            return client.ask("add", {"uri": NAME, "sources": [f"file://{image}"]})

    assert as_user(ALICE, claim)["raises"] == "NotAllowed"
    assert path_of(site.step(0, BOB).get(UBUNTU)).read_bytes().find(b"evil") == -1


def test_image_that_a_user_has_in_private_becomes_everybodys_when_the_site_makes_it(site: Site) -> None:
    path_of(site.step(0, ALICE).get("docker://same"))
    site.start_converter()
    called = site.step(1, BOB).get("docker://same")

    assert path_of(called).is_relative_to(site.folder / "pool")
    assert called.log == ""
