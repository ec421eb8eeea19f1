"""The site's keys: a file with one a line. The first signs, all of them are believed.

So a key is changed in three steps without a pause: add the new one as the last line everywhere,
then make it the first everywhere, then take the old one away. Who has a key controls the nodes.
"""

from __future__ import annotations

import os
import stat

from cachemgr.base.errors import BadRequest

MOST_BYTES = 4096
MOST_KEYS = 8
LEAST_KEY_BYTES = 16


def read_keys(path: str) -> tuple[bytes, ...]:
    """The keys in a file; none if none is configured."""
    if not path:
        return ()
    try:
        with open(path, "rb") as file:
            text = file.read(MOST_BYTES)
    except OSError as error:
        raise BadRequest(f"the key {path} cannot be read: {error.strerror}") from error
    keys = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not 1 <= len(keys) <= MOST_KEYS:
        raise BadRequest(f"{path} has {len(keys)} keys: write 1 to {MOST_KEYS}, one a line")
    if min(map(len, keys)) < LEAST_KEY_BYTES:
        raise BadRequest(
            f"a key in {path} has less than {LEAST_KEY_BYTES} bytes and can be guessed: "
            f"make one by `openssl rand -hex 32 > {path}`"
        )
    return keys


def is_open(path: str) -> bool:
    """Whether every user of this machine can read the keys, and so control its nodes."""
    try:
        return bool(path) and bool(os.stat(path).st_mode & stat.S_IROTH)
    except OSError:
        return False
