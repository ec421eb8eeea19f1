"""`outrider page`: the service's page for a browser on this machine, in the name of whoever starts it."""

from __future__ import annotations

import argparse
import hmac
import os
import secrets
from collections.abc import Iterable
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.errors import InputError
from outrider.cli.quantities import not_negative
from outrider_client.doors import SOCKET, door_of

if TYPE_CHECKING:
    from outrider_client.portal import Environment, Portal, StartResponse

ADDRESS = "127.0.0.1"
_NAMES = (ADDRESS, "localhost")
_EPILOG = """The address has a key in it, which is another one each time: whoever knows it asks in your name
as long as the command runs. From another machine the page is reached through ssh, and
everything on it then is, too:

examples:
  outrider page
  ssh -L 8077:127.0.0.1:8077 head outrider page --port 8077
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "page", show_page, "show the site in a browser, until ctrl-C", _EPILOG)
    parser.add_argument(
        "--port", type=not_negative, default=0, metavar="PORT", help="default: any that is free"
    )
    parser.add_argument(
        "--socket", metavar="PATH", help=f"the service's socket (OUTRIDER_SOCKET, or {SOCKET})"
    )
    parser.add_argument(
        "--server", metavar="HOST:PORT", help="ask the service on another machine instead (OUTRIDER_SERVER)"
    )


def show_page(arguments: argparse.Namespace) -> None:
    from outrider_client.portal import Portal

    portal = Portal(door_of(arguments.socket, arguments.server, os.environ))
    server = page_server(portal, arguments.port, secrets.token_hex(16))
    with server:
        print(f"{server.address}  (ctrl-C ends it)", flush=True)
        server.serve_forever()


class PageServer(ThreadingMixIn, WSGIServer):
    """Some requests wait for the service while others are answered."""

    daemon_threads = True
    address = ""


class _Quiet(WSGIRequestHandler):
    timeout = 60

    def log_message(self, format: str, *args: object) -> None:
        """A line for each request would be one with the key."""


def page_server(portal: Portal, port: int, key: str) -> PageServer:
    """The page under an address that others on this machine cannot guess. A cookie instead would go to each
    server of theirs on another port that a browser is led to."""

    def guarded(environment: Environment, start_response: StartResponse) -> Iterable[bytes]:
        given, _, rest = str(environment.get("PATH_INFO", "")).removeprefix("/").partition("/")
        host = str(environment.get("HTTP_HOST", "")).rpartition(":")[0]
        if host not in _NAMES or not hmac.compare_digest(given.encode("latin-1"), key.encode()):
            start_response("404 Not Found", [("Content-Type", "text/plain"), ("Content-Length", "0")])
            return [b""]
        return portal({**environment, "SCRIPT_NAME": f"/{key}", "PATH_INFO": f"/{rest}"}, start_response)

    try:
        server = make_server(ADDRESS, port, guarded, server_class=PageServer, handler_class=_Quiet)
    except (OSError, OverflowError) as error:
        raise InputError(f"--port {port}: cannot be listened on ({error}); give another one") from error
    server.address = f"http://{ADDRESS}:{server.server_port}/{key}/page/"
    return server
