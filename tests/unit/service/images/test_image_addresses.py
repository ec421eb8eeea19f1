"""Images on web servers and in the site's catalogue."""

from __future__ import annotations

import base64
import hashlib
import socket
from collections.abc import Callable, Iterator

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.fetch.sources.connect import WebSettings
from outrider.service.images.catalogue import Catalogue, CatalogueImage
from outrider.service.images.hashing import Hashes
from outrider.service.images.opening import opener
from outrider.service.images.resolving import Resolver
from outrider.service.ports import FoundImage, ImageTrouble, Readers
from tests.unit.cachemgr.fetch.servers import Asked, Server, head, serving

SIZE = 12_345
RAW = hashlib.sha256(b"x").digest()
DIGEST, OTHER = f"sha256:{RAW.hex()}", f"sha256:{'0' * 64}"
BASE64 = base64.b64encode(RAW).decode()
Ask = Callable[[str, str, bool, int, tuple[int, ...]], FoundImage]
MakeResolver = Callable[..., Ask]


class Site:
    """What a server says: of the image its headers, and beside it a file, if there is one."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.beside: bytes | None = None

    def answer(self, asked: Asked, sock: socket.socket) -> None:
        if asked.target == "/image.qcow2":
            sock.sendall(head("200 OK", **{"Content-Length": str(SIZE), **self.headers}))
        elif asked.target == "/image.qcow2.sha256" and self.beside is not None:
            sock.sendall(head("200 OK", **{"Content-Length": str(len(self.beside))}))
            if asked.method == "GET":
                sock.sendall(self.beside)
        elif asked.target == "/moved":
            sock.sendall(head("302 Found", Location="/image.qcow2"))
        elif asked.target == "/round":
            sock.sendall(head("302 Found", Location="/round"))
        else:
            sock.sendall(head("404 Not Found", **{"Content-Length": "0"}))


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def server(site: Site) -> Iterator[Server]:
    with serving(site.answer) as found:
        yield found


def ask(resolve: Ask, uri: str, digest: str = "") -> FoundImage:
    return resolve(uri, digest, False, 61001, ())


FOUND = FoundImage(size_bytes=SIZE, digest=DIGEST)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Repr-Digest", f"sha-256=:{BASE64}:"),
        ("Repr-Digest", f"sha-512=:AAAA:, sha-256=:{BASE64}:"),
        ("Digest", f"SHA-256={BASE64}"),
        ("Digest", f"md5=HUXZLQLMuI/KZ5KDcJPcOA==,sha-256={BASE64}"),
    ],
)
def test_digest_in_a_header_is_the_images(
    server: Server, site: Site, resolver: MakeResolver, name: str, value: str
) -> None:
    site.headers = {name: value}

    assert ask(resolver(), server.uri()) == FOUND
    assert ask(resolver(), server.uri("/moved"), DIGEST) == FOUND


@pytest.mark.parametrize("value", ["sha-256=:AAAA:", f"sha-256={BASE64}", "sha-256", f"sha-512=:{BASE64}:"])
def test_header_that_holds_no_digest_is_none(
    server: Server, site: Site, resolver: MakeResolver, value: str
) -> None:
    site.headers = {"Repr-Digest": value}

    with pytest.raises(ImageTrouble, match="write its digest"):
        ask(resolver(), server.uri())


def test_digest_that_the_user_writes_suffices(server: Server, resolver: MakeResolver) -> None:
    assert ask(resolver(), server.uri(), DIGEST) == FOUND
    assert {asked.target for asked in server.asked} == {"/image.qcow2"}


def test_digest_that_the_server_contradicts_is_refused(
    server: Server, site: Site, resolver: MakeResolver
) -> None:
    site.headers = {"Repr-Digest": f"sha-256=:{BASE64}:"}

    with pytest.raises(ImageTrouble, match="correct the digest"):
        ask(resolver(), server.uri(), OTHER)


@pytest.mark.parametrize("name", ["", "  image.qcow2", " *image.qcow2", "  ./there/image.qcow2"])
def test_digest_in_a_file_beside_the_image_is_the_images(
    server: Server, site: Site, resolver: MakeResolver, name: str
) -> None:
    site.beside = f"{RAW.hex()}{name}\n".encode()

    assert ask(resolver(), server.uri()) == FOUND


@pytest.mark.parametrize(
    "text", [f"{RAW.hex()}  other.qcow2\n", "no digest", f"{RAW.hex()}\n{RAW.hex()}\n", "0" * 63]
)
def test_file_beside_the_image_that_is_not_about_it_is_refused(
    server: Server, site: Site, resolver: MakeResolver, text: str
) -> None:
    site.beside = text.encode()

    with pytest.raises(ImageTrouble, match=r"is not one line with the digest of image\.qcow2"):
        ask(resolver(), server.uri())


def test_file_beside_the_image_is_not_read_if_it_is_large(
    server: Server, site: Site, resolver: MakeResolver
) -> None:
    site.beside = RAW.hex().encode() + b" " * 5_000

    with pytest.raises(ImageTrouble, match="write its digest"):
        ask(resolver(), server.uri())
    assert [asked.method for asked in server.asked if "sha256" in asked.target] == ["HEAD"]


def test_address_with_a_question_mark_has_nothing_beside_it(server: Server, resolver: MakeResolver) -> None:
    with pytest.raises(ImageTrouble):
        ask(resolver(), server.uri("/image.qcow2?version=1"))
    assert not any("sha256" in asked.target for asked in server.asked)


def test_missing_image_and_endless_redirects_are_told(server: Server, resolver: MakeResolver) -> None:
    with pytest.raises(ImageTrouble, match="404"):
        ask(resolver(), server.uri("/none"), DIGEST)
    with pytest.raises(ImageTrouble, match="more than 5 redirects"):
        ask(resolver(), server.uri("/round"), DIGEST)


def test_credentials_in_an_address_are_refused_and_not_repeated(resolver: MakeResolver) -> None:
    with pytest.raises(ImageTrouble, match="holds a user or a password") as trouble:
        ask(resolver(), "https://alice:sesame@images.example.org/a")
    assert "sesame" not in str(trouble.value)


@pytest.mark.parametrize("uri", ["ssh://h/a", "sftp://h/a", f"relay://h:1/{DIGEST}", "ftp://h/a", "http://"])
def test_other_kinds_of_addresses_are_refused(resolver: MakeResolver, uri: str) -> None:
    with pytest.raises(ImageTrouble):
        ask(resolver(), uri, DIGEST)


def test_sites_own_passwords_are_never_used_for_users() -> None:
    clock = SystemClock()

    with pytest.raises(ValueError, match="netrc"):
        Resolver(
            open_as=opener(),
            hashes=Hashes(None, clock),
            clock=clock,
            web_settings=WebSettings(netrc_file="/etc/netrc"),
        )


CATALOGUE = Catalogue(
    [
        CatalogueImage(name="ubuntu", uri="file:///srv/ubuntu", digest=DIGEST, size_bytes=SIZE, format="raw"),
        CatalogueImage(
            name="licensed",
            uri="file:///srv/licensed",
            digest=OTHER,
            size_bytes=1,
            readers=Readers(uids=(61001,), gids=(61900,)),
        ),
    ]
)


def test_name_of_the_catalogue_is_what_the_administrator_wrote(resolver: MakeResolver) -> None:
    found = ask(resolver(catalogue=CATALOGUE), "ubuntu", DIGEST)

    assert found == FoundImage(size_bytes=SIZE, digest=DIGEST, format="raw")
    assert CATALOGUE.source_of("ubuntu") == "file:///srv/ubuntu"
    assert CATALOGUE.source_of("http://x/a") == "http://x/a"
    assert CATALOGUE.readers_of("licensed") == Readers(uids=(61001,), gids=(61900,))


def test_unknown_name_suggests_the_nearest(resolver: MakeResolver) -> None:
    with pytest.raises(ImageTrouble, match="did you mean ubuntu"):
        ask(resolver(catalogue=CATALOGUE), "ubunto")
    with pytest.raises(ImageTrouble, match="which is empty"):
        ask(resolver(), "ubuntu")


@pytest.mark.parametrize(
    ("uid", "gids", "may"), [(61001, (), True), (61002, (61900,), True), (61002, (), False)]
)
def test_private_image_of_the_catalogue_is_for_its_readers(
    resolver: MakeResolver, uid: int, gids: tuple[int, ...], may: bool
) -> None:
    resolve = resolver(catalogue=CATALOGUE)

    if may:
        assert resolve("licensed", "", True, uid, gids).digest == OTHER
        with pytest.raises(ImageTrouble, match="write `private: true`"):
            resolve("licensed", "", False, uid, gids)
    else:
        with pytest.raises(ImageTrouble, match="there is no image"):
            resolve("licensed", "", True, uid, gids)


def test_other_digest_than_the_catalogues_is_refused(resolver: MakeResolver) -> None:
    with pytest.raises(ImageTrouble, match="correct the digest"):
        ask(resolver(catalogue=CATALOGUE), "ubuntu", OTHER)
