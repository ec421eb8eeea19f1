"""Registries at which the site has a login that a program tells, and tells anew, as for Amazon's ECR."""

from __future__ import annotations

from pathlib import Path

import pytest

from cachemgr.fetch.registry.session import RegistrySettings
from outrider.metadata.external import program_runner
from outrider.service.images.secrets.sitelogins import SiteLogin, SiteLogins
from outrider.service.ports import LoginFault, Readers
from tests.daemons.containers.container_images import CLOCK, Head
from tests.daemons.containers.test_private_images import ADA, BOB, PASSWORD, Closed, closed

__all__ = ["closed"]
# Says what is in a file, and counts how often.
HELPER = """#!/bin/sh
read -r host
echo "$1 $host" >>{folder}/asked
cat {folder}/says
"""
SAYS = '{{"ServerURL": "x", "Username": "ada", "Secret": "{}"}}'
HOUR_S = 3_600


class Helper:
    """A credential helper, and the logins that the site has by it."""

    def __init__(self, folder: Path, closed: Closed, readers: Readers | None = None) -> None:
        self.folder = folder
        program = folder / "docker-credential-test"
        program.write_text(HELPER.format(folder=folder))
        program.chmod(0o755)
        self.says(PASSWORD)
        address = closed.registry.address
        self.login = SiteLogin(address=address, command=(str(program),), lifetime_s=HOUR_S, readers=readers)
        self.logins = SiteLogins([self.login], program_runner(CLOCK.monotonic_s), CLOCK, least_age_s=0)
        settings = RegistrySettings(frozenset([address]), allows_plain_logins=True)
        self.head = Head(folder / "site", settings=settings, site_logins=self.logins)

    def says(self, password: str) -> None:
        (self.folder / "says").write_text(SAYS.format(password))

    def asked(self) -> list[str]:
        path = self.folder / "asked"
        return path.read_text().splitlines() if path.exists() else []


def test_image_that_the_sites_login_opens_is_everybodys_and_the_program_is_asked_once(
    closed: Closed, folder: Path
) -> None:
    helper = Helper(folder, closed)

    made = helper.head.ask(closed.uri("layers"), uid=ADA)
    again = helper.head.ask(closed.uri("file"), uid=BOB)

    assert made.format == "squashfs"
    assert helper.head.path(again).read_bytes()
    assert helper.asked() == [f"get {closed.registry.address}"]


def test_login_that_is_out_of_date_is_told_anew(closed: Closed, folder: Path) -> None:
    helper = Helper(folder, closed)
    helper.says("of-yesterday")
    assert helper.logins.pair(helper.login) == ("ada", "of-yesterday")
    helper.says(PASSWORD)

    assert helper.head.ask(closed.uri("file")).size_bytes > 0
    assert len(helper.asked()) == 2
    assert helper.logins.pair(helper.login) == ("ada", PASSWORD)


def test_login_is_for_whom_the_site_says_and_their_images_are_private(closed: Closed, folder: Path) -> None:
    helper = Helper(folder, closed, Readers(uids=(ADA,)))
    uri = closed.uri("file")

    assert "write `private: true`" in helper.head.refusal(uri, uid=ADA)
    assert helper.head.ask(uri, uid=ADA, is_private=True).size_bytes > 0
    before = len(helper.asked())
    assert "lets nobody read" in helper.head.refusal(uri, uid=BOB, is_private=True)
    assert len(helper.asked()) == before


@pytest.mark.parametrize("says", ["", "{", '{"Username": "ada"}', '{"Username": "ada", "Secret": 3}'])
def test_program_that_tells_no_login_is_named_and_what_it_said_is_not(
    closed: Closed, folder: Path, says: str
) -> None:
    helper = Helper(folder, closed)
    (folder / "says").write_text(says)

    with pytest.raises(LoginFault, match="docker-credential-test") as caught:
        helper.logins.pair(helper.login)

    assert "ada" not in str(caught.value)
    assert "lets nobody read" in helper.head.refusal(closed.uri("file"))
    helper.says(PASSWORD)
    helper.logins.pair(helper.login)
    assert PASSWORD not in repr(helper.logins.__dict__)
