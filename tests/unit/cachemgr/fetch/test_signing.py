"""Signatures as Amazon's manual prints them, and what an address says of its end.

The first is the example "GET Object" of "Authenticating Requests: Using Query Parameters".
"""

from __future__ import annotations

import calendar

import pytest

from cachemgr.base.errors import BadRequest, Unsuitable
from cachemgr.fetch.registry.signing import Signer, SigningKey, expiry_of, object_path
from cachemgr.fetch.sources.sources import SourceSettings, source_of
from cachemgr.fetch.sources.uris import parse
from tests.unit.cachemgr.fetch.fakes import FakeClock

EXAMPLE = SigningKey("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
AT_S = calendar.timegm((2013, 5, 24, 0, 0, 0))
PRINTED = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"


def test_signed_address_is_the_one_that_the_manual_prints() -> None:
    signer = Signer(EXAMPLE, "us-east-1", "examplebucket.s3.amazonaws.com")

    target = signer.target("GET", "/test.txt", AT_S, 86_400)

    assert target.rpartition("X-Amz-Signature=")[2] == PRINTED
    assert expiry_of(target.partition("?")[2]) == AT_S + 86_400


def test_key_does_not_show_its_secret() -> None:
    key = SigningKey("name", "a-secret", "a-token")

    assert ("a-secret" in repr(key), "a-token" in repr(key)) == (False, False)


def test_key_of_an_object_is_encoded_once() -> None:
    found = parse("s3://images/a%20b/c%2Bd~e")

    assert (found.path, found.name) == ("/a b/c+d~e", "s3://images/a%20b/c%2Bd~e")
    assert object_path(found.host, found.path) == "/images/a%20b/c%2Bd~e"


@pytest.mark.parametrize(
    "uri",
    [
        "s3://images",
        "s3://images/",
        "s3://images/folder/",
        "s3://images/a//b",
        "s3://images/a/../b",
        "s3://images/a/%2E%2E/b",
        "s3://key@images/a",
        "s3://images:9000/a",
        "s3://Images/a",
        "s3://images/a?versionId=1",
        "s3://images/a#b",
    ],
)
def test_address_that_is_no_object_is_refused(uri: str) -> None:
    with pytest.raises(BadRequest):
        parse(uri)


def test_node_says_who_signs() -> None:
    with pytest.raises(Unsuitable, match="outriderd signs such addresses"):
        source_of("s3://images/a", SourceSettings(), FakeClock())


@pytest.mark.parametrize(
    "query",
    ["", "version=2", "X-Amz-Date=20130524T000000Z", "X-Amz-Date=soon&X-Amz-Expires=60", "X-Amz-Expires=60"],
)
def test_address_that_does_not_say_its_end_has_none(query: str) -> None:
    assert expiry_of(query) is None
