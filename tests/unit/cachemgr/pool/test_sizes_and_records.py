"""Sizes as people write them, and records as the disk may hold them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cachemgr.base.errors import BadRequest, PoolDamaged, by_code, every_error
from cachemgr.base.sizes import in_words, read_rate, read_size
from cachemgr.pool.records import (
    Alias,
    ImageAccess,
    PoolImage,
    PoolPin,
    decode_alias,
    decode_image,
    decode_pin,
    encode,
    file_name,
)

IMAGE = PoolImage("0" * 64, 5, "raw", "http://x", 7, 1000, ImageAccess(False, (1, 2), (3,)), 9)
PIN = PoolPin(owner="job", kind="hold", uid=1, expires_s=5, from_s=2)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("600MB", 600_000_000),
        ("2GiB", 2_147_483_648),
        ("1.5T", 1_500_000_000_000),
        (" 1.5 kib ", 1536),
        ("0.0001 kB", 0),
        ("7b", 7),
        ("1024PiB", 1 << 60),
    ],
)
def test_sizes_are_read_exactly(text: str, size_bytes: int) -> None:
    assert read_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "-1", "1e9", "5 bananas", "GiB", "1..5", "1.G.", "2 GiB 5", "٣", "9" * 30]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"is not a size: write 4096|more than any disk holds"):
        read_size(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100Mbit", 12_500_000),
        ("1Gbit/s", 125_000_000),
        ("12.5MB/s", 12_500_000),
        ("8bit / sec", 1),
        ("1MiB", 1 << 20),
    ],
)
def test_rates_are_read_in_bits_and_bytes(text: str, rate: int) -> None:
    assert read_rate(text) == rate


@pytest.mark.parametrize("text", ["0", "7bit", "fast", "-1MB/s", "1MB/h", ""])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match=r"is not a (rate|size)"):
        read_rate(text)


@pytest.mark.parametrize(
    ("size_bytes", "words"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120.0 TiB"),
    ],
)
def test_sizes_are_told_in_words(size_bytes: int, words: str) -> None:
    assert in_words(size_bytes) == words


@given(st.integers(min_value=0, max_value=1 << 59))
def test_size_in_words_is_read_back_within_what_its_digits_say(size_bytes: int) -> None:
    words = in_words(size_bytes)
    unit = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}[words.split()[1]]

    assert abs(read_size(words) - size_bytes) <= max(1, unit // 10)


def test_records_come_back_as_they_were() -> None:
    alias = Alias("name", "0" * 64, None)

    assert decode_image(encode(IMAGE), "x") == IMAGE
    assert decode_pin(encode(PIN), "x") == PIN
    assert decode_alias(encode(alias), "x") == alias


@pytest.mark.parametrize("key", ["digest", "size_bytes", "readers", "expires_s", "uri"])
def test_record_without_a_key_says_which(key: str) -> None:
    found = json.loads(encode(IMAGE))
    del found[key]
    with pytest.raises(PoolDamaged, match=f"POOL/image.json lacks '{key}': run `cachemgr check --fix`"):
        decode_image(json.dumps(found).encode(), "POOL/image.json")


@given(st.binary(max_size=60))
def test_whatever_a_file_holds_is_a_record_or_damage(data: bytes) -> None:
    for decode in (decode_image, decode_pin, decode_alias):
        with pytest.raises(PoolDamaged):
            decode(data, "x")


@given(st.integers(min_value=0, max_value=200), st.integers(min_value=0, max_value=255))
def test_record_with_one_wrong_byte_is_a_record_or_damage(at: int, byte: int) -> None:
    data = bytearray(encode(PIN))
    data[at % len(data)] = byte
    try:
        found = decode_pin(bytes(data), "x")
    except PoolDamaged:
        return

    assert isinstance(found.expires_s, int)


def test_file_names_of_different_names_differ() -> None:
    assert file_name("a", "b") != file_name("ab")
    assert file_name("a", "b") != file_name("a", "", "b")


def test_errors_have_words_and_codes_of_their_own() -> None:
    errors = [error for error in every_error() if error.__module__ == "cachemgr.base.errors"]
    sentences = [error("what happened") for error in errors]

    assert len({error.code for error in errors}) == len({error.exit_code for error in errors}) == len(errors)
    assert [str(each) for each in sentences] == ["what happened"] * len(errors)
    assert all(error.__doc__ and str(error()) == error.__doc__.split("\n")[0] for error in errors)


def test_code_of_every_error_is_understood_at_the_other_end_of_a_socket() -> None:
    """Also of those that other modules made more special: they come back as what they are of."""
    found = [(error, by_code(error.code, "what happened")) for error in every_error()]

    assert [str(back) for _, back in found] == ["what happened"] * len(found)
    assert all(issubclass(error, type(back)) for error, back in found)
