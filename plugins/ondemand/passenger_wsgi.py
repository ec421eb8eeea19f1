"""Outrider's page in Open OnDemand: Passenger starts this as the user, so that the service knows who asks.

Where the service is stands in /etc/ood/config/apps/outrider/env, as OUTRIDER_SOCKET=PATH or
OUTRIDER_SERVER=HOST:PORT; without that file it is the socket on this machine.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from outrider_client.doors import SERVER_VARIABLE, SOCKET_VARIABLE, door_of
from outrider_client.portal import Portal

SETTINGS = os.environ.get("OUTRIDER_PORTAL_SETTINGS", "/etc/ood/config/apps/outrider/env")


def settings(path: str) -> Iterator[tuple[str, str]]:
    """What the administrator has written down."""
    try:
        with open(path, encoding="utf-8") as file:
            for line in file:
                name, is_there, value = line.strip().partition("=")
                if is_there and name in (SERVER_VARIABLE, SOCKET_VARIABLE):
                    yield name, value.strip("\"'")
    except FileNotFoundError:
        return


application = Portal(door_of(None, None, dict(settings(SETTINGS))))
