"""What the benchmarked service is asked: by one client in turn, by the command line, by a hundred at once."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import thread_time
from typing import Any

from bench.service_process import BenchedService, get
from bench.service_site import BenchedSite, images, wish
from cachemgr.base.clock import SystemClock
from outrider.core.model import Image
from outrider_client.transport import Transport

Body = dict[str, Any]
monotonic_s = SystemClock().monotonic_s
TARGETS = ("reserve", "plan", "show", "list", "status")
SHARES = (15, 15, 30, 10, 30)
"""Of a hundred requests at once: people look more often than they ask."""
LISTED = 50


@dataclass(slots=True)
class RequestTimes:
    """Milliseconds of each request, and what the service used for them in processor time."""

    wall_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)


def body_of(wanted: dict[str, Any], **deployment: str | int) -> Body:
    """A request's body: the text of a workspace. JSON is YAML, too."""
    return {
        "workspace": json.dumps({**wanted, "deployment": {**wanted["deployment"], **deployment}}),
        "file": "ws.yaml",
        "zone": "UTC",
        "options": {},
    }


class Asks:
    """Bodies of requests of several kinds, always the same for one seed."""

    def __init__(self, place: BenchedSite, seed: int) -> None:
        self._nodes = place.nodes
        self._random = Random(seed)
        self._images: list[Image] = images()
        self._number = 10**6 * seed

    def usual(self) -> Body:
        """As those in the store; nearly all are accepted."""
        return body_of(self._wish())

    def crowded(self) -> Body:
        """Many whole nodes in the middle of what is booked: often refused, and later free."""
        nodes = self._nodes // 50 + self._random.randrange(self._nodes // 5)
        return body_of(self._wish(), nodes=nodes, cpus=128)

    def vast(self) -> Body:
        """Half of the site and more."""
        nodes = self._nodes // 2 + self._random.randrange(self._nodes // 3)
        return body_of(self._wish(), nodes=nodes, cpus=64)

    def hasty(self) -> Body:
        """The largest image in a few seconds: refused because the link has no time left."""
        wanted = self._wish()
        largest = max(self._images, key=lambda image: image.size_bytes)
        wanted["metadata"]["image"]["uri"] = largest.uri
        return body_of(wanted, start="now+12seconds", nodes=20, cpus=64)

    def impossible(self) -> Body:
        """More than there is, since a third of the nodes is smaller: refused without a look at the book."""
        return body_of(self._wish(), nodes=self._nodes, cpus=128)

    def _wish(self) -> dict[str, Any]:
        self._number += 1
        return wish(self._number, self._random, self._images)


def in_turn(service: BenchedService, verb: str, bodies: Iterator[Body]) -> dict[str, RequestTimes]:
    """One client, one request after the other, each over a connection of its own as the CLI does."""
    client = Transport(str(service.place.socket), SystemClock())
    found: dict[str, RequestTimes] = {}
    for body in bodies:
        before = service.used().cpu_s
        began = monotonic_s()
        answer = client.post(f"/v1/{verb}", body)
        wall_s = monotonic_s() - began
        cpu_s = service.used().cpu_s - before
        assert isinstance(answer, dict)
        kind = str(answer["result"])
        if kind == "refused" and answer["earliest_start_s"] is not None:
            kind = f"refused for {answer['cause']}, with its earliest start"
        taken = found.setdefault(kind, RequestTimes())
        taken.wall_ms.append(1000 * wall_s)
        taken.cpu_ms.append(1000 * cpu_s)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """A whole process: until it has ended, and what it used itself."""

    wall_ms: float
    cpu_ms: float
    code: int


def run(command: list[str], environment: dict[str, str]) -> Ran:
    began = monotonic_s()
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    errors = process.stderr
    assert errors is not None
    said = errors.read()
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = monotonic_s() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    errors.close()
    if process.returncode not in (0, 4):
        raise RuntimeError(f"{' '.join(command)}: {said.decode(errors='replace')}")
    cpu_s = usage.ru_utime + usage.ru_stime
    return Ran(wall_ms=1000 * wall_s, cpu_ms=1000 * cpu_s, code=process.returncode)


def command_line(place: BenchedSite, words: list[str]) -> Ran:
    """`outrider …` as a user's shell starts it."""
    environment = {**os.environ, "OUTRIDER_SOCKET": str(place.socket), "TZ": "UTC"}
    code = "from outrider.cli.main import run; run()"
    return run([sys.executable, "-c", code, *words], environment)


def interpreter() -> Ran:
    """What any Python program takes, for comparison."""
    return run([sys.executable, "-c", "pass"], dict(os.environ))


@dataclass(slots=True)
class CrowdResult:
    """What many clients at once saw."""

    seconds: float = 0.0
    client_cpu_s: float = 0.0
    wall_ms: dict[str, list[float]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    asked_again: int = 0


def crowd(place: BenchedSite, clients: int, seconds: float) -> CrowdResult:
    """So many clients at once, of several users, each asking again as soon as it is answered."""
    found = CrowdResult()
    users = [each.pw_uid for each in pwd.getpwall()][:10] if os.geteuid() == 0 else [os.geteuid()]
    listed = get(place.socket, "/v1/reservations?most=1000")["reservations"]
    known = [each["name"] for each in listed]
    began, began_cpu = monotonic_s(), thread_time()
    asyncio.run(_crowd(place, clients, users, known, began + seconds, found))
    found.seconds, found.client_cpu_s = monotonic_s() - began, thread_time() - began_cpu
    return found


async def _crowd(
    place: BenchedSite, clients: int, users: list[int], known: list[str], until: float, found: CrowdResult
) -> None:
    everybody = [
        _client(place, users[number % len(users)], number + 2, known, until, found)
        for number in range(clients)
    ]
    await asyncio.gather(*everybody)


async def _client(
    place: BenchedSite, uid: int, seed: int, known: list[str], until: float, found: CrowdResult
) -> None:
    random, asks = Random(seed), Asks(place, seed)
    reader, writer = await _connected(place.socket, uid)
    while monotonic_s() < until:
        kind = random.choices(TARGETS, SHARES)[0]
        head, body = _request(kind, random, known, asks)
        began = monotonic_s()
        writer.write(head + body)
        status, retry_s, content = await _answer(reader)
        if status == 503 and retry_s:
            found.asked_again += 1
            await asyncio.sleep(retry_s)
            reader, writer = await _again(writer, place, uid)
            continue
        found.wall_ms.setdefault(kind, []).append(1000 * (monotonic_s() - began))
        if status not in (200, 201):
            found.errors.append(f"{kind}: {status} {content[:200]!r}")
            reader, writer = await _again(writer, place, uid)
        elif status == 201:
            known[random.randrange(len(known))] = json.loads(content)["name"]
    writer.close()


async def _connected(path: Path, uid: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The kernel tells the service who connects: that user, if we may be anybody."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # At once and not in turns with others: nothing else must run as that user.
    if os.geteuid() == 0:
        os.seteuid(uid)
        try:
            connection.connect(str(path))
        finally:
            os.seteuid(0)
    else:
        connection.connect(str(path))
    connection.setblocking(False)
    return await asyncio.open_unix_connection(sock=connection)


async def _again(
    writer: asyncio.StreamWriter, place: BenchedSite, uid: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    writer.close()
    return await _connected(place.socket, uid)


def _request(kind: str, random: Random, known: list[str], asks: Asks) -> tuple[bytes, bytes]:
    makers: dict[str, Callable[[], tuple[str, Body | None]]] = {
        "reserve": lambda: ("POST /v1/reservations", asks.usual()),
        "plan": lambda: ("POST /v1/plans", asks.crowded() if random.random() < 0.2 else asks.usual()),
        "show": lambda: (f"GET /v1/reservations/{random.choice(known)}", None),
        "list": lambda: (
            f"GET /v1/reservations?most={LISTED}&after={random.randrange(10_000)}",
            None,
        ),
        "status": lambda: ("GET /v1/status", None),
    }
    line, body = makers[kind]()
    content = b"" if body is None else json.dumps(body).encode()
    typed = "Content-Type: application/json\r\n" if content else ""
    head = f"{line} HTTP/1.1\r\nHost: localhost\r\n{typed}Content-Length: {len(content)}\r\n\r\n"
    return head.encode(), content


async def _answer(reader: asyncio.StreamReader) -> tuple[int, int, bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
    headers = dict(line.split(": ", 1) for line in head[1:] if ": " in line)
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    return int(head[0].split()[1]), int(headers.get("retry-after", "0")), content
