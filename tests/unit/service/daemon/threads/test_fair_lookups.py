"""Look-ups of images: users, hosts and what hangs, with real threads and a world that a test holds."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator

import pytest

from outrider.service.daemon.threads.lookups import Lookup, Lookups
from outrider.service.front import Busy
from outrider.service.images.slowness import LONGEST_PAUSE_S, PAUSE_S, Slowness, host_of
from outrider.service.ports import FoundImage, ImageClaim, ImageTrouble, Unread
from outrider.service.settings import Effort
from tests.unit.service.daemon.fakes import PATIENCE_S, eventually, text_log
from tests.unit.service.daemon.threads.test_workers_and_task_threads import Clock

MALLORY, ALICE = 1_002, 1_001
IMAGE = FoundImage(size_bytes=1, digest=f"sha256:{'0' * 64}")


class Servers:
    """What is at addresses: most answer at once, `silent` ones when they are let, and files are read."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.reads = threading.Event()
        self.asked: list[str] = []
        self.closed: list[str] = []

    def __call__(self, claim: ImageClaim) -> FoundImage | Unread:
        uri = claim.uri
        self.asked.append(uri)
        if "silent" in uri:
            self.go.wait(PATIENCE_S)
            raise ImageTrouble("no answer")
        if uri.startswith("/"):
            return Unread(read=self._read, close=lambda: self.closed.append(uri))
        return IMAGE

    def _read(self, is_wanted: Callable[[], bool]) -> FoundImage:
        while is_wanted() and not self.reads.wait(0.01):
            pass
        return IMAGE


class Place:
    def __init__(self) -> None:
        self.servers = Servers()
        self.clock = Clock()
        self.told: dict[str, FoundImage | Exception] = {}
        effort = Effort(at_once=16, limit_s=15, reading_at_once=16)
        self.lookups = Lookups(self.servers, clock=self.clock, log=text_log(io.StringIO()), effort=effort)

    def ask(self, uri: str, uid: int = MALLORY) -> Lookup:
        question = ImageClaim(uri=uri, uid=uid, gids=())
        return self.lookups.ask(question, lambda found: self.told.update({uri: found}))

    def found(self, uri: str, uid: int = ALICE) -> FoundImage | Exception:
        self.ask(uri, uid)
        eventually(lambda: uri in self.told, f"an answer about {uri}")
        return self.told[uri]


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    yield made
    made.servers.go.set()
    made.servers.reads.set()
    made.lookups.close()


def silent(number: int) -> str:
    return f"http://silent{number}.example.org/image"


def test_ten_users_whose_servers_never_answer_delay_nobody_else(place: Place) -> None:
    for uid in range(2_000, 2_010):
        for number in range(8):
            place.ask(silent(100 * uid + number), uid)
    eventually(lambda: len(place.servers.asked) == 10, "one each")

    assert place.found("http://good/image") == IMAGE
    assert place.servers.asked.count("http://good/image") == 1
    assert place.lookups.running == 10


def test_one_user_has_only_so_many_waiting(place: Place) -> None:
    for number in range(8):
        place.ask(silent(number))
    with pytest.raises(Busy, match="8 of your requests wait for the look-up of images"):
        place.ask(silent(8))

    assert max(place.lookups.shares(), key=lambda share: share.held).user == str(MALLORY)
    assert place.found("http://good/image") == IMAGE


def test_one_host_does_not_take_all_threads(place: Place) -> None:
    for uid in range(2_000, 2_012):
        place.ask(f"http://silent/{uid}", uid)
    eventually(lambda: len(place.servers.asked) == 4, "a quarter of the threads")

    assert place.found("http://good/image") == IMAGE
    assert len(place.servers.asked) == 5


def test_what_hangs_beyond_its_time_is_given_up_and_its_place_is_free(place: Place) -> None:
    for uid in range(2_000, 2_014):
        place.ask(silent(uid), uid)
    eventually(lambda: len(place.servers.asked) == 14, "all that may run")
    place.ask("http://good/image", ALICE)
    assert "http://good/image" not in place.told
    place.clock.at_s += 16
    place.lookups.expire()
    eventually(lambda: "http://good/image" in place.told, "the other's turn")

    words = str(place.told[silent(2_000)])
    assert "at silent2000.example.org: it took more than 15 s" in words


def test_slow_ones_that_are_known_leave_half_of_the_threads(place: Place) -> None:
    for uid in range(2_000, 2_014):
        place.ask(silent(uid), uid)
    eventually(lambda: len(place.servers.asked) == 14, "all that may run")
    place.clock.at_s += 16
    place.lookups.expire()
    place.servers.go.set()
    eventually(lambda: place.lookups.running == 0, "the end of what hung")
    place.servers.go.clear()
    for uid in range(2_000, 2_014):
        place.ask(silent(uid + 100), uid)
    eventually(lambda: len(place.servers.asked) == 14 + 8, "half of the threads")

    assert place.found("http://good/image") == IMAGE
    assert len(place.servers.asked) == 14 + 8 + 1


def test_host_that_did_not_answer_is_not_asked_again_at_once(place: Place) -> None:
    place.ask(silent(1))
    eventually(lambda: len(place.servers.asked) == 1, "the first")
    place.clock.at_s += 16
    place.lookups.expire()
    place.servers.go.set()
    eventually(lambda: place.lookups.running == 0, "its end")
    again = place.found("http://silent1.example.org/another", MALLORY)

    assert "silent1.example.org has not answered you within 15 s lately" in str(again)
    assert len(place.servers.asked) == 1
    others = place.found("http://silent1.example.org/third", ALICE)
    assert str(others) == "no answer", "whoever has not waited for it may ask"


def test_look_up_that_nobody_wants_any_more_has_no_place(place: Place) -> None:
    asked = [place.ask(silent(number)) for number in range(8)]
    eventually(lambda: len(place.servers.asked) == 1, "the first")
    for each in asked:
        place.lookups.abandon(each)
    place.servers.go.set()

    assert place.found("http://good/image", MALLORY) == IMAGE
    assert set(place.told) == {"http://good/image"}
    assert len(place.servers.asked) == 2, "those that waited were never asked"


def test_reading_keeps_no_question_waiting_and_ends_when_nobody_wants_it(place: Place) -> None:
    reading = [place.ask(f"/files/{number}") for number in range(3)]
    eventually(lambda: len(place.servers.asked) == 3, "the files")

    assert place.found("http://good/image", MALLORY) == IMAGE
    for each in reading:
        place.lookups.abandon(each)
    eventually(lambda: len(place.servers.closed) == 3, "closed files")
    assert set(place.told) == {"http://good/image"}


def test_root_is_looked_up_for_when_all_others_places_are_taken(place: Place) -> None:
    for uid in range(2_000, 2_020):
        place.ask(silent(uid), uid)
    eventually(lambda: len(place.servers.asked) == 14, "all that may run")

    assert place.found("http://good/image", 0) == IMAGE


def test_pause_doubles_and_ends_with_an_answer() -> None:
    slowness, now_s = Slowness(), 1_000.0
    lengths = []
    for _ in range(8):
        slowness.note(MALLORY, "host", 15.0, now_s, has_failed=True)
        begun_s = now_s
        while slowness.has_pause(MALLORY, "host", now_s):
            now_s += 1
        lengths.append(now_s - begun_s)

    assert lengths[:3] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]
    assert lengths[-1] == LONGEST_PAUSE_S
    assert not slowness.has_pause(ALICE, "host", now_s - 1)
    slowness.note(MALLORY, "host", 0.1, now_s, has_failed=False)
    slowness.note(MALLORY, "host", 15.0, now_s, has_failed=True)
    assert not slowness.has_pause(MALLORY, "host", now_s + PAUSE_S)


@pytest.mark.parametrize(
    ("uri", "host"),
    [
        ("http://Images.Example.org:8080/a/b", "images.example.org"),
        ("https://[::1]/a", "::1"),
        ("/images/alice/a", "/images/alice"),
        ("file:///a", "/"),
        ("debian", ""),
        ("http://[", ""),
    ],
)
def test_host_of_an_address(uri: str, host: str) -> None:
    assert host_of(uri).lower() == host
