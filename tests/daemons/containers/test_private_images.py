"""Images that not everybody may pull: looked up in their user's name, shared with nobody else, and sealed."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemgr.fetch.registry.session import RegistrySettings
from cachemgr.fetch.sources.connect import WebSettings
from outrider.service.images.logins import Logins, checker
from outrider.service.ports import LoginFault
from tests.daemons.containers.container_images import CLOCK, Head, entry, layer, push
from tests.daemons.registries.registry_server import Registry, digest_of, need, running
from tests.daemons.registries.test_entry_to_registries import HTPASSWD

ADA, BOB = 61001, 61002
PASSWORD = "secret"
ONE_FILE = b"SIF" * 1_000


class Closed:
    """A registry that lets nobody in without a password, and a head with users' logins."""

    def __init__(self, folder: Path, data: Path, registry: Registry, uris: dict[str, str]) -> None:
        self.registry = registry
        self._uris = uris
        settings = RegistrySettings(frozenset([registry.address]), allows_plain_logins=True)
        self.path, self.key = folder / "logins.json", folder / "logins.key"
        self.logins = Logins(self.path, self.key, CLOCK, checker(settings, WebSettings(), CLOCK))
        self.head = Head(folder / "conversions", settings=settings, logins=self.logins)

    def uri(self, name: str) -> str:
        scheme, _, rest = self._uris[name].partition("://")
        return f"{scheme}://{self.registry.address}/{rest.partition('/')[2]}"

    def fetched(self, name: str) -> int:
        return sum(f'"GET /v2/team/{name}/blobs/' in line and " 200 " in line for line in self.registry.log())


@pytest.fixture
def closed(folder: Path, tmp_path: Path) -> Iterator[Closed]:
    need("sqfstar")
    data = tmp_path / "data"
    with running(data) as plain:
        uris = {
            "layers": push(plain, "team/layers", [layer(entry("a", b"private"))]),
            "file": f"oras://{plain.address}/team/file:v1",
        }
        plain.push("team/file", "v1", ONE_FILE)
    (tmp_path / "htpasswd").write_text(HTPASSWD)
    section = {"auth": {"htpasswd": {"realm": "test", "path": str(tmp_path / "htpasswd")}}}
    with running(data, section) as registry:
        yield Closed(folder, data, registry, uris)


def test_login_that_the_registry_does_not_take_is_not_kept(closed: Closed) -> None:
    with pytest.raises(LoginFault, match="does not take this name and password"):
        closed.logins.add(ADA, closed.registry.address, "ada", "wrong")

    assert closed.logins.of(ADA) == ()


def test_private_image_is_for_whoever_has_a_login_and_says_private(closed: Closed) -> None:
    uri = closed.uri("layers")
    assert f"`outrider login {closed.registry.address}`" in closed.head.refusal(uri, is_private=True)
    closed.logins.add(ADA, closed.registry.address, "ada", PASSWORD)

    assert "write `private: true`" in closed.head.refusal(uri)
    found = closed.head.ask(uri, is_private=True)

    assert found.format == "squashfs"
    assert "lets nobody read" in closed.head.refusal(uri, uid=BOB, is_private=True)
    path = closed.head.path(found)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_every_consumer_is_checked_at_the_registry_again(closed: Closed) -> None:
    uri = closed.uri("layers")
    closed.logins.add(ADA, closed.registry.address, "ada", PASSWORD)
    made = closed.head.ask(uri, is_private=True)
    before = closed.fetched("layers")

    assert closed.head.ask(uri, is_private=True) == made
    assert closed.logins.drop(ADA, closed.registry.address)
    assert "lets nobody read" in closed.head.refusal(uri, is_private=True)
    assert closed.fetched("layers") == before, "what is made is not made anew"


def test_private_file_is_brought_to_the_head_since_nodes_have_no_right(closed: Closed) -> None:
    closed.logins.add(ADA, closed.registry.address, "ada", PASSWORD)

    found = closed.head.ask(closed.uri("file"), is_private=True)

    assert found.digest == digest_of(ONE_FILE)
    assert closed.head.path(found).read_bytes() == ONE_FILE


def test_manifest_of_a_private_image_gives_nobody_else_what_was_made_of_it(
    closed: Closed, registry: Registry
) -> None:
    """Whoever serves the same manifest from a registry of their own has not shown a right to its layers."""
    closed.logins.add(ADA, closed.registry.address, "ada", PASSWORD)
    made = closed.head.ask(closed.uri("layers"), is_private=True)
    manifest = made.uri.rpartition("@")[2]

    private = closed.head.converter.recipe(manifest, "squashfs", f"{closed.registry.address}/team/layers")
    assert closed.head.converter.find(private) is not None
    assert closed.head.converter.find(closed.head.converter.recipe(manifest, "squashfs", "")) is None
    assert all("-" in path.name for path in (closed.head.made.folder / "layers").iterdir())


def test_digest_of_a_private_image_gives_nobody_its_content(closed: Closed) -> None:
    """Whoever names the digest at an address of their own, which may say of itself what it likes."""
    closed.logins.add(ADA, closed.registry.address, "ada", PASSWORD)
    made = closed.head.ask(closed.uri("layers"), is_private=True)
    manifest, repository = made.uri.rpartition("@")[2], f"{closed.registry.address}/team/layers"

    assert closed.head.made.path_for(made.digest, manifest, repository) == closed.head.path(made)
    assert closed.head.made.path_for(made.digest, manifest, "evil.example.org/team/layers") is None
    assert closed.head.made.path_for(made.digest, digest_of(b"another"), repository) is None
    again = Head(closed.path.parent / "conversions")
    assert again.made.path_for(made.digest, manifest, repository) == closed.head.path(made)


def test_private_image_in_its_layers_is_brought_to_the_head_blob_by_blob(closed: Closed) -> None:
    closed.logins.add(ADA, closed.registry.address, "ada", PASSWORD)
    uri = closed.uri("layers")

    found = closed.head.ask(uri, "layers", is_private=True)
    again = closed.head.ask(uri, "layers", is_private=True)

    assert (found.format, again) == ("layers", found)
    assert found.digest == found.uri.rpartition("@")[2]
    manifest = json.loads(closed.head.path(found).read_bytes())
    assert digest_of(closed.head.path(found).read_bytes()) == found.digest
    named = [manifest["config"]["digest"], *(each["digest"] for each in manifest["layers"])]
    assert [part.key for part in found.parts] == named
    for part in found.parts:
        path = closed.head.made.path_of(part.key)
        assert path is not None
        assert digest_of(path.read_bytes()) == part.key
    assert "lets nobody read" in closed.head.refusal(uri, "layers", uid=BOB, is_private=True)
    repository = f"{closed.registry.address}/team/layers"
    assert closed.head.made.path_for(found.digest, found.digest, repository) == closed.head.path(found)
    assert closed.head.made.path_for(found.digest, found.digest, "evil.example.org/x") is None


def test_password_is_nowhere_but_sealed(closed: Closed) -> None:
    closed.logins.add(ADA, closed.registry.address, "ada", PASSWORD)
    closed.head.ask(closed.uri("layers"), is_private=True)
    folder = closed.path.parent

    kept = [path for path in folder.rglob("*") if path.is_file() and PASSWORD.encode() in path.read_bytes()]
    assert kept == []
    assert [stat.S_IMODE(path.stat().st_mode) for path in (closed.path, closed.key)] == [0o600, 0o600]
    assert PASSWORD not in repr(closed.logins.of(ADA))


def test_file_of_logins_is_of_no_use_to_other_users_and_without_its_key(closed: Closed) -> None:
    closed.logins.add(ADA, closed.registry.address, "ada", PASSWORD)
    text = closed.path.read_text()
    closed.path.write_text(text.replace(f'"{ADA}"', f'"{BOB}"'))

    assert closed.logins.find(BOB, closed.registry.address) is None
    closed.path.write_text(text)
    assert closed.logins.find(ADA, closed.registry.address) == ("ada", PASSWORD)
    closed.key.write_bytes(bytes(32))
    assert closed.logins.find(ADA, closed.registry.address) is None
    assert [each.user for each in closed.logins.of(ADA)] == [""]


def test_key_that_others_can_read_is_not_used(closed: Closed) -> None:
    closed.logins.add(ADA, closed.registry.address, "ada", PASSWORD)
    closed.key.chmod(0o644)

    with pytest.raises(LoginFault, match="not root's alone"):
        closed.logins.add(ADA, closed.registry.address, "ada", PASSWORD)


def test_password_does_not_go_where_others_can_read_it_on_the_way(closed: Closed, folder: Path) -> None:
    settings = RegistrySettings(frozenset([closed.registry.address]))
    logins = Logins(
        folder / "other.json", folder / "other.key", CLOCK, checker(settings, WebSettings(), CLOCK)
    )

    with pytest.raises(LoginFault, match=r"registries\.plain_logins"):
        logins.add(ADA, closed.registry.address, "ada", PASSWORD)
