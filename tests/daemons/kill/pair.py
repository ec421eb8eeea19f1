"""Two heads over one database, maltreated under load: killed, cut off, paused, their server restarted."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from outrider_client.doors import HeadDoors, SocketDoor
from outrider_client.errors import OutriderError
from outrider_client.transport import Json, Transport
from testbed.postgresql import PostgresServer
from tests.daemons.kill.victim import CLOCK, Preloaded, Trouble, Victim, short_folder
from tests.daemons.kill.wires import Wire

NAMES = ("h1", "h2")
CONTENT = b"an image\n" * 1000
FIRST_S = 86_400
HOUR_S = 3_600
EACH_S = 720
"""Between the starts of two reservations, so that there is a place for all of a hundred rounds."""
CLIENT_S = 120
"""Longer than the 30 s of users' commands, since tests share their processors with others."""
ANSWER_S = 10.0
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Head:
    """One head: its service, its way to the database, and the way of users to it."""

    def __init__(self, name: str, folder: Path, server: PostgresServer, preloaded: Preloaded | None) -> None:
        self.name = name
        place = folder / name
        for each in (place, place / "db"):
            each.mkdir()
        store = f"postgresql:///postgres?host={quote(str(place / 'db'), safe='')}&user=outrider"
        self.victim = Victim(
            place, f"store: '{store}'\nhead: {{name: {name}}}\n", preloaded=preloaded, nodes=1
        )
        self.database = Wire(place / "db" / ".s.PGSQL.5432", server.socket)
        self.door = place / "door"
        self.users = Wire(self.door, self.victim.socket)
        self.is_paused = False

    def start(self) -> None:
        self.victim.start()

    @property
    def leads(self) -> bool:
        answer = {} if self.is_paused else self.victim.asked("GET", "/v1/status")
        return bool(answer.get("is_promising")) and answer.get("head") == self.name

    @property
    def has_ended(self) -> bool:
        pid = self.victim.pid
        return pid is None or Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    def cut_off(self) -> None:
        """Neither the database nor users reach it any more, nor does it reach them."""
        self.database.hold()
        self.users.hold()

    def join(self) -> None:
        self.database.release()
        self.users.release()

    def pause(self) -> None:
        assert self.victim.pid is not None
        self.is_paused = True
        os.kill(self.victim.pid, signal.SIGSTOP)

    def wake(self) -> None:
        assert self.victim.pid is not None
        os.kill(self.victim.pid, signal.SIGCONT)
        self.is_paused = False

    def end(self) -> None:
        with suppress(ProcessLookupError, AssertionError):
            self.wake()
        self.victim.end()
        for each in (self.database, self.users):
            each.close()


@dataclass
class Load:
    """What users asked for, and what they were told."""

    accepted: dict[str, int] = field(default_factory=dict)
    """By its name, which workspace's number it is of."""
    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    longest_s: float = 0.0
    guard: threading.Lock = field(default_factory=threading.Lock)


class Users:
    """So many users who ask for a reservation each in turn, with the client that everybody has."""

    def __init__(self, heads: tuple[Head, ...], image: Path, *, per_s: float, threads: int = 8) -> None:
        self._heads = heads
        self._image = image
        self._every_s = threads / per_s
        self.load = Load()
        self._number = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask_on, daemon=True) for _ in range(threads)]

    def __enter__(self) -> Users:
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join(2 * CLIENT_S)
            if each.is_alive():
                self.load.failures.append("a user still waits")

    def await_answers(self) -> None:
        """On a busy machine the next break would come before those who waited have had their answers."""
        before = self.load.counts["accepted"]
        self._heads[0].victim.eventually(
            "answers for all", lambda: self.load.counts["accepted"] >= before + len(self._threads)
        )

    def _ask_on(self) -> None:
        doors = HeadDoors([SocketDoor(str(each.door)) for each in self._heads], ANSWER_S)
        client = Transport(doors, CLOCK, timeout_s=CLIENT_S)
        due_s = CLOCK.monotonic_s()
        while not self._stop.is_set():
            due_s = max(due_s + self._every_s, CLOCK.monotonic_s() - self._every_s)
            self._stop.wait(max(0.0, due_s - CLOCK.monotonic_s()))
            self._ask(client)

    def _ask(self, client: Transport) -> None:
        with self.load.guard:
            self._number += 1
            number = self._number
        began_s = CLOCK.monotonic_s()
        try:
            answer = client.post("/v1/reservations", wish(self._image, number))
        except OutriderError as error:
            with self.load.guard:
                self.load.failures.append(f"w{number}: {type(error).__name__}: {error}")
            return
        assert isinstance(answer, dict)
        with self.load.guard:
            self.load.longest_s = max(self.load.longest_s, CLOCK.monotonic_s() - began_s)
            self.load.counts[str(answer["result"])] += 1
            if answer["result"] == "accepted":
                self.load.accepted[str(answer["name"])] = number


def wish(image: Path, number: int) -> Json:
    """A reservation of its own place, far ahead."""
    start_s = CLOCK.now_s() // HOUR_S * HOUR_S + FIRST_S + number % 20_000 * EACH_S
    return {
        "workspace": f"version: 1\nmetadata: {{name: w{number}, "
        f"image: {{uri: 'file://{image}', digest: '{DIGEST}'}}}}\n"
        f"deployment: {{nodes: 1, start: uts{start_s}, duration: 10m}}\n"
    }


class Pair:
    """The site. One of the heads leads."""

    def __init__(self, folder: Path, server: PostgresServer, preloaded: Preloaded | None) -> None:
        self.server = server
        self.image = folder / "image"
        self.image.write_bytes(CONTENT)
        self.heads = tuple(Head(name, folder, server, preloaded) for name in NAMES)

    def begin(self) -> None:
        self.heads[0].victim.init()
        for head in self.heads:
            head.start()
        self.await_leader()

    def await_leader(self, other_than: Head | None = None, within_s: float = 60.0) -> Head:
        """Who leads, and promises."""
        found: list[Head] = []

        def is_led() -> bool:
            found[:] = [each for each in self.heads if each is not other_than and each.leads]
            return bool(found)

        until_s = CLOCK.monotonic_s() + within_s
        while not is_led():
            if CLOCK.monotonic_s() > until_s:
                words = [f"{each.name}: {each.victim.last_words()}" for each in self.heads]
                raise Trouble("\n".join(["nobody leads", *words, self.server.log()[-2_000:]]))
            self.revive()
            CLOCK.sleep(0.1)
        return found[0]

    def revive(self) -> None:
        """What systemd does: whoever has ended is started again."""
        for each in self.heads:
            if each.has_ended and not each.is_paused:
                if each.victim.pid is not None:
                    each.victim.reap()
                each.start()

    def wrong(self, load: Load) -> list[str]:
        """What was promised and is not there, or is there twice."""
        found = Counter(
            name.rpartition("-")[0] for name in self.server.sql("SELECT name FROM reservations").split()
        )
        wrong = [f"w{number} was accepted and is lost" for number in load.accepted.values()
                 if not found[f"w{number}"]]  # fmt: skip
        wrong += [f"{name} was made {count} times" for name, count in found.items() if count > 1]
        return wrong + load.failures

    def end(self) -> None:
        for each in self.heads:
            each.end()


@contextmanager
def pair_of_heads(preloaded: Preloaded | None = None, *, data: Path | None = None) -> Iterator[Pair]:
    with short_folder() as folder:
        server = PostgresServer(folder / "pg", data=data)
        server.start()
        pair = Pair(folder, server, preloaded)
        try:
            pair.begin()
            yield pair
        finally:
            pair.end()
            server.remove()
