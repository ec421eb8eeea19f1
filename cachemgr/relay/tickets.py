"""Tickets: who may have which image from a node until when, signed by whoever shares the site's key.

A ticket is `<expires_s>.<hex>`, the latter being HMAC-SHA256 of `<digest>|<expires_s>`. It names
no bearer: nodes hand it on along the chain, and the scheduler makes it last until the deadline.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEME = "Outrider"
TICKET = re.compile(r"(\d{1,12})\.([0-9a-f]{64})")
LEAST_KEY_BYTES = 16


def make_ticket(key: bytes, digest: str, expires_s: int) -> str:
    """A ticket for one image."""
    if len(key) < LEAST_KEY_BYTES:
        raise ValueError(f"a key of {len(key)} bytes can be guessed: use at least {LEAST_KEY_BYTES}")
    return f"{expires_s}.{_signature(key, digest, expires_s)}"


def refusal(keys: Iterable[bytes], digest: str, authorization: str, now_s: int) -> str | None:
    """Why this Authorization header does not admit to the image; None if it does.

    Several keys, so that a new one can be introduced while tickets of the old one are about.
    """
    scheme, _, ticket = authorization.partition(" ")
    found = TICKET.fullmatch(ticket.strip())
    if scheme.lower() != SCHEME.lower() or found is None:
        return "a ticket is missing"
    expires_s = int(found[1])
    # Every key is tried, and compared in constant time: the time tells nothing about any.
    fitting = [hmac.compare_digest(found[2], _signature(key, digest, expires_s)) for key in keys]
    if not any(fitting):
        return "the ticket is not for this image"
    if expires_s <= now_s:
        return "the ticket has expired"
    return None


def _signature(key: bytes, digest: str, expires_s: int) -> str:
    return hmac.new(key, f"{digest}|{expires_s}".encode(), hashlib.sha256).hexdigest()
