"""Web servers that want a token of the site's: only the head has it, and only they get it."""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachemgr.fetch.sources.connect import WebSettings
from outrider.service.images.containers.conversion import Means
from outrider.service.images.containers.converter import Converter
from outrider.service.images.containers.made import MadeImages
from outrider.service.images.hashing import Hashes
from outrider.service.images.opening import opener
from outrider.service.images.resolving import Resolver
from outrider.service.images.tokens import TokenHost, TokenHosts
from outrider.service.ports import FoundImage, ImageClaim, ImageTrouble, Readers, Unread
from tests.daemons.containers.container_images import CLOCK, Quiet
from tests.unit.cachemgr.fetch.servers import Asked, Server, head
from tests.unit.cachemgr.fetch.test_web_encrypted import Encrypted

DATA = os.urandom(100_000)
DIGEST = f"sha256:{hashlib.sha256(DATA).hexdigest()}"
TOKEN = "a-token-of-the-site"
ADA, BOB = 61001, 61002
PATH = "/v2/images/17/file"


def glance(asked: Asked, sock: socket.socket) -> None:
    """Gives images for the token; elsewhere it shows whether it got one."""
    if not asked.target.startswith("/v2/images/"):
        sock.sendall(head("404 Not Found", **{"Content-Length": "0"}))
    elif asked.headers.get("x-auth-token") != TOKEN:
        sock.sendall(head("401 Unauthorized", **{"Content-Length": "0"}))
    else:
        sock.sendall(head("200 OK", **{"Content-Length": str(len(DATA))}))
        if asked.method == "GET":
            sock.sendall(DATA)


class Site:
    """A head that has a token for one server."""

    def __init__(self, folder: Path, encrypted: Encrypted, server: Server) -> None:
        self.server, self.file = server, folder / "token"
        self.file.write_text(f"{TOKEN}\n")
        self.file.chmod(0o600)
        self.made = MadeImages(folder / "made", 1 << 30, CLOCK)
        self.made.prepare()
        self.converter = Converter(Means(made=self.made, clock=CLOCK), user="nobody", log=Quiet(), wait_s=60)
        self.web = WebSettings(ca_file=str(encrypted.certificate))
        self.readers: Readers | None = Readers(uids=(ADA,))

    @property
    def tokens(self) -> TokenHosts:
        address = f"127.0.0.1:{self.server.port}"
        return TokenHosts(
            [
                TokenHost(
                    address=address,
                    header="X-Auth-Token",
                    file=str(self.file),
                    path="/v2/images",
                    readers=self.readers,
                )
            ],
            self.web,
        )

    def uri(self, path: str = PATH) -> str:
        return self.server.uri(path).replace("http:", "https:")

    def ask(self, uri: str, *, is_private: bool = True, uid: int = ADA, digest: str = DIGEST) -> FoundImage:
        resolver = Resolver(
            open_as=opener(),
            hashes=Hashes(None, CLOCK),
            clock=CLOCK,
            web_settings=self.web,
            converter=self.converter,
            tokens=self.tokens,
        )
        found = resolver(ImageClaim(uri=uri, uid=uid, digest=digest, is_private=is_private))
        if not isinstance(found, Unread):
            return found
        try:
            return found.read(lambda: True)
        finally:
            found.close()

    def refusal(self, uri: str, **changes: object) -> str:
        with pytest.raises(ImageTrouble) as trouble:
            self.ask(uri, **changes)  # type: ignore[arg-type]
        return str(trouble.value)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Encrypted:
    return Encrypted(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def site(folder: Path, encrypted: Encrypted) -> Iterator[Site]:
    server = encrypted.server(glance)
    found = Site(folder, encrypted, server)
    yield found
    found.converter.close()
    server.close()


def test_image_is_on_the_head_once_it_is_promised_and_is_fetched_once(site: Site) -> None:
    for _ in range(2):
        assert site.ask(site.uri()) == FoundImage(size_bytes=len(DATA), digest=DIGEST)

    path = site.made.path_of(DIGEST)
    assert path is not None
    assert path.read_bytes() == DATA
    assert [asked.method for asked in site.server.asked].count("GET") == 1


def test_who_may_name_its_images_is_the_sites_to_say(site: Site) -> None:
    assert "are not for you" in site.refusal(site.uri(), uid=BOB)
    assert "write `private: true`" in site.refusal(site.uri(), is_private=False)
    assert site.server.asked == []


def test_token_goes_to_its_host_below_its_folder_and_by_tls_alone(site: Site) -> None:
    site.refusal(site.uri("/v3/users"))
    site.refusal(site.uri("/v2/images/%2E%2E/users"))
    site.refusal(site.uri("/v2/imagesets/17"))

    assert [asked for asked in site.server.asked if "x-auth-token" in asked.headers] == []
    assert site.tokens.origin(site.server.uri(PATH), DIGEST) is None


def test_other_address_or_digest_does_not_lead_to_what_the_head_has(site: Site) -> None:
    site.ask(site.uri())
    origin: Callable[[str, str], tuple[str, str] | None] = site.tokens.origin

    def path(uri: str, digest: str = DIGEST) -> Path | None:
        found = origin(uri, digest)
        return None if found is None else site.made.path_for(DIGEST, *found)

    assert path(site.uri()) == site.made.path_of(DIGEST)
    assert path(site.uri("/v2/images/18/file")) is None
    assert path("https://elsewhere.example.org/v2/images/17/file") is None


@pytest.mark.parametrize(
    ("text", "mode", "words"),
    [
        ("an-old-one", 0o600, "may be out of date"),
        (TOKEN, 0o644, "others may read the token"),
        ("", 0o600, "is not one line"),
        ("a\r\nHost: b", 0o600, "is not one line"),
    ],
)
def test_token_that_is_of_no_use_is_not_shown(site: Site, text: str, mode: int, words: str) -> None:
    site.file.write_text(text)
    site.file.chmod(mode)

    said = site.refusal(site.uri())

    assert words in said
    assert not text or text not in said
