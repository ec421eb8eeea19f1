"""Tickets: for one image, until a time, by whoever has the key; and for nobody else."""

from __future__ import annotations

import subprocess

import pytest

from cachemgr.relay.tickets import make_ticket, refusal

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
DIGEST, OTHER_DIGEST = "sha256:" + "0a" * 32, "sha256:" + "0b" * 32
NOW_S = 1_800_000_000


def header(key: bytes = KEY, digest: str = DIGEST, expires_s: int = NOW_S + 1) -> str:
    return f"Outrider {make_ticket(key, digest, expires_s)}"


def test_signature_is_what_openssl_computes() -> None:
    command = ["openssl", "dgst", "-sha256", "-hmac", KEY.decode(), "-r"]
    text = f"{DIGEST}|{NOW_S}".encode()

    printed = subprocess.run(command, input=text, capture_output=True, check=True, timeout=240).stdout

    assert make_ticket(KEY, DIGEST, NOW_S) == f"{NOW_S}.{printed.split()[0].decode()}"


def test_ticket_admits_until_it_expires() -> None:
    assert refusal([KEY], DIGEST, header(), NOW_S) is None
    assert refusal([KEY], DIGEST, header(), NOW_S + 1) == "the ticket has expired"


def test_ticket_of_the_old_key_admits_while_both_are_known() -> None:
    assert refusal([OTHER_KEY, KEY], DIGEST, header(), NOW_S) is None


@pytest.mark.parametrize(
    "authorization",
    [
        header(key=OTHER_KEY),
        header(digest=OTHER_DIGEST),
        header().replace(str(NOW_S + 1), str(NOW_S + 999)),
        header()[:-1] + "x",
        header()[:-1],
        header().upper(),
        header().replace("Outrider", "Basic"),
        "Outrider",
        "Outrider .",
        "Outrider 1.é",
        "",
    ],
)
def test_anything_else_is_refused(authorization: str) -> None:
    assert refusal([KEY], DIGEST, authorization, NOW_S) in (
        "a ticket is missing",
        "the ticket is not for this image",
    )


def test_without_a_key_nobody_is_admitted() -> None:
    assert refusal([], DIGEST, header(), NOW_S) == "the ticket is not for this image"


def test_key_that_can_be_guessed_is_refused() -> None:
    with pytest.raises(ValueError, match="can be guessed"):
        make_ticket(b"short", DIGEST, NOW_S)
