"""URIs: what is read, and that nothing in one can become an option, a shell word or a header."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemgr.base.errors import BadRequest
from cachemgr.fetch.sources.uris import HOST, Location, parse

DIGEST = "sha256:" + "ab" * 32


@pytest.mark.parametrize(
    ("uri", "location"),
    [
        ("/srv/a b.img", Location(scheme="file", path="/srv/a b.img")),
        ("file:///srv/a%20b.img", Location(scheme="file", path="/srv/a b.img")),
        (
            "https://ada:s%40c@h.example:8443/i/x.qcow2?v=1#part",
            Location(
                scheme="https",
                path="/i/x.qcow2",
                host="h.example",
                port=8443,
                user="ada",
                password="s@c",
                target="/i/x.qcow2?v=1",
            ),
        ),
        ("http://[fe80::1]/x", Location(scheme="http", path="/x", host="fe80::1", target="/x")),
        ("ssh://ada@h/srv/x", Location(scheme="ssh", path="/srv/x", host="h", user="ada")),
        ("sftp://h:2222/srv/x", Location(scheme="sftp", path="/srv/x", host="h", port=2222)),
        ("rsync://h/module/x", Location(scheme="rsync", path="/module/x", host="h")),
        (f"relay://n1:4711/{DIGEST}", Location(scheme="relay", path=f"/{DIGEST}", host="n1", port=4711)),
    ],
)
def test_supported_uri_is_taken_apart(uri: str, location: Location) -> None:
    assert parse(uri) == location


@pytest.mark.parametrize(
    ("uri", "complaint"),
    [
        ("ftp://h/x", "supported are file:///path"),
        ("x.img", "supported are file:///path"),
        ("dockerd://alpine", "supported are file:///path"),
        ("", "supported are file:///path"),
        ("file://other/x", "of this host"),
        ("file:x", "absolute path"),
        ("ssh://-oProxyCommand=x/y", "no usable host"),
        ("ssh://h%20x/y", "no usable host"),
        ("ssh://-lroot@h/y", "no usable user"),
        ("ssh://%2Dl@h/y", "no usable user"),
        ("ssh://a:b@h/y", "has a password"),
        ("ssh://h/", "names no file"),
        ("ssh://h/a%0Ab", "names no file"),
        ("ssh://h/a%00b", "names no file"),
        ("rsync://h/x", "rsync://host/module/path"),
        ("rsync://h/m/*", "rsync://host/module/path"),
        ("http:///x", "no usable host"),
        ("http://h/a b", "space or control"),
        ("http://h/a\r\nX: y", "space or control"),
        ("http://h:99999/x", "cannot be read"),
        ("http://h/é", "beyond ASCII"),
        ("relay://h/" + DIGEST, "relay://host:port"),
        ("relay://h:1/sha256:AB", "relay://host:port"),
        ("http://h/" + "x" * 5000, "at most 4096"),
    ],
)
def test_other_uri_is_refused_with_what_is_wrong(uri: str, complaint: str) -> None:
    with pytest.raises(BadRequest, match=complaint):
        parse(uri)


def test_password_and_signature_do_not_appear_in_the_name() -> None:
    name = parse("https://ada:secret@h/x?signature=abc").name

    assert name == "https://h/x"


@given(st.text(max_size=60) | st.builds(lambda a, b, c: f"{a}://{b}/{c}", *[st.text(max_size=20)] * 3))
def test_any_text_is_a_location_or_a_bad_request(text: str) -> None:
    try:
        location = parse(text)
    except BadRequest:
        return

    assert location.scheme == "file" or HOST.fullmatch(location.host)
    assert not location.host.startswith("-")
    assert "\n" not in location.target
    assert "\r" not in location.target
