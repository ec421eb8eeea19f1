"""How a call is signed that begins or ends an open reservation: HMAC-SHA256 of what is meant, and when.

The text is `NAME WHAT SECONDS`, for instance `beam-17 begin 1795458916`; the key is the secret as it was
printed, and the signature is written in hexadecimal.
"""

from __future__ import annotations

import hashlib
import hmac


def text_of(name: str, what: str, at_s: int) -> str:
    return f"{name} {what} {at_s}"


def mac_of(secret: str, text: str) -> str:
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
