"""A node's daemon, asked over the network with the site's key."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import CacheError
from cachemgr.network.keys import read_keys
from cachemgr.network.remote import RemoteClient

WITHIN_S = 20
PAUSE_S = 0.2
ANSWER_S = 10.0


def answers(node: str, port: int, key: bytes) -> str:
    """Wait until a daemon that was just started answers. Empty, or why it does not."""
    clock = SystemClock()
    until_s = clock.monotonic_s() + WITHIN_S
    while True:
        try:
            ask(node, port, keys_in(key), "ping")
            return ""
        except CacheError as error:
            if clock.monotonic_s() > until_s:
                return f"the files are there, but: {error}"
        clock.sleep(PAUSE_S)


def ask(node: str, port: int, keys: tuple[bytes, ...], verb: str) -> dict[str, Any]:
    """One question, on a connection of its own. Raises CacheError."""
    client = RemoteClient(node, port, keys, node=node)
    try:
        return dict(client.ask(verb, timeout_s=ANSWER_S))
    finally:
        client.close()


def keys_in(content: bytes) -> tuple[bytes, ...]:
    """The keys that a file with this content holds."""
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(content)
        return read_keys(file.name)
