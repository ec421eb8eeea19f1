"""A uvicorn server with the options that the API needs, and sockets for it."""

from __future__ import annotations

import asyncio
import functools
import os
import socket
from typing import cast

import uvicorn

from outrider.service.web.connections.protocol import PeerProtocol, Reception
from outrider.service.web.gate import App, Gate
from outrider.service.web.limits import Limits

BACKLOG = 4_096
STOP_S = 5
MOST_PATH = 107


def make_server(app: App, limits: Limits | None = None) -> uvicorn.Server:
    """A server for `serve(sockets=[...])`, or `run`; set `should_exit` to end it."""
    chosen = limits or Limits()
    reception = app.reception if isinstance(app, Gate) else Reception(chosen)
    protocol = functools.partial(PeerProtocol, limits=chosen, reception=reception)
    config = uvicorn.Config(
        app,
        # uvicorn calls it, and does not care that it is no class.
        http=cast(type[asyncio.Protocol], protocol),
        ws="none",
        loop="asyncio",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        # Headers like X-Forwarded-For would let a client say where it comes from.
        proxy_headers=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=chosen.idle_s,
        timeout_graceful_shutdown=STOP_S,
        h11_max_incomplete_event_size=chosen.head_bytes,
    )
    return uvicorn.Server(config)


def listen_unix(path: str, *, mode: int = 0o666) -> socket.socket:
    """A socket in the file system that nobody could reach before it had its permissions.

    Everybody may connect by default: who they are is known from the kernel. A path that is
    there already is the caller's to deal with: OSError.
    """
    if len(os.fsencode(path)) > MOST_PATH:
        raise ValueError(
            f"the path of a socket has at most {MOST_PATH} bytes, not {len(os.fsencode(path))}: {path}"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
        os.chmod(path, mode)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def listen_tcp(host: str, port: int) -> socket.socket:
    """A socket for other hosts, where MUNGE vouches for users."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    listener.setblocking(False)
    return listener
