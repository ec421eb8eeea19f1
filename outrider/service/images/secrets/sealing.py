"""Secrets that lie on a disk, sealed with a key that lies elsewhere: by the standard library alone.

Encrypted with HMAC-SHA256 as a pseudorandom function in counter mode, and then authenticated with HMAC-SHA256
under another key, together with what the secret belongs to: so it can neither be read, changed nor given to
another user or registry by whoever has the file and not the key.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import os
import stat
from pathlib import Path

from outrider.service.ports import LoginFault

KEY_BYTES = 32
NONCE_BYTES = 16
TAG_BYTES = 32
MOST_BYTES = 65_536


def read_key(path: Path) -> bytes:
    """The key in a file that root, or the service's own user, alone can read; made if it is not there.

    Raises LoginFault.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return _made_key(path)
    except OSError as error:
        raise LoginFault(f"the key {path} of logins cannot be read ({error.strerror})") from error
    try:
        found = os.fstat(file)
        if found.st_uid not in (0, os.geteuid()) or stat.S_IMODE(found.st_mode) & 0o077:
            raise LoginFault(f"the key {path} of logins is not root's alone: chown root, chmod 600")
        key = os.read(file, KEY_BYTES + 1)
    finally:
        os.close(file)
    if len(key) != KEY_BYTES:
        raise LoginFault(f"the key {path} of logins has not {KEY_BYTES} bytes: make it again")
    return key


def _made_key(path: Path) -> bytes:
    key = os.urandom(KEY_BYTES)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "wb") as opened:
            opened.write(key)
            opened.flush()
            os.fsync(opened.fileno())
    except OSError as error:
        raise LoginFault(
            f"there is no key {path} for logins, and it cannot be made ({error.strerror}): `head -c "
            f"{KEY_BYTES} "
            f"/dev/urandom > {path}`, mode 600"
        ) from error
    return key


def seal(key: bytes, text: str, belongs_to: str) -> str:
    nonce, data = os.urandom(NONCE_BYTES), text.encode()
    hidden = _mixed(key, nonce, data)
    return base64.b64encode(nonce + hidden + _tag(key, nonce + hidden, belongs_to)).decode()


def unseal(key: bytes, sealed: str, belongs_to: str) -> str:
    """Raises LoginFault if it was sealed with another key, for something else, or changed."""
    fault = LoginFault("what is kept of it was sealed with another key, or changed")
    try:
        data = base64.b64decode(sealed, validate=True)
    except (binascii.Error, ValueError) as error:
        raise fault from error
    body, tag = data[:-TAG_BYTES], data[-TAG_BYTES:]
    if len(body) < NONCE_BYTES or not hmac.compare_digest(tag, _tag(key, body, belongs_to)):
        raise fault
    return _mixed(key, body[:NONCE_BYTES], body[NONCE_BYTES:]).decode()


def _mixed(key: bytes, nonce: bytes, data: bytes) -> bytes:
    inner = hmac.digest(key, b"outrider login: hide", hashlib.sha256)
    stream = b"".join(
        hmac.digest(inner, nonce + number.to_bytes(8, "big"), hashlib.sha256)
        for number in range(-(-len(data) // 32))
    )
    return bytes(each ^ other for each, other in zip(data, stream, strict=False))


def _tag(key: bytes, body: bytes, belongs_to: str) -> bytes:
    inner = hmac.digest(key, b"outrider login: sign", hashlib.sha256)
    owner = belongs_to.encode()
    return hmac.digest(inner, len(owner).to_bytes(8, "big") + owner + body, hashlib.sha256)
