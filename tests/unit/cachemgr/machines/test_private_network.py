"""The network between a job's machines: what is not signed with its key, or not new, reaches no guest."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import BadRequest
from cachemgr.machines.network.frames import FRAME, HEADER, WINDOW, PacketOpener, PacketSealer
from cachemgr.machines.network.place import ClusterPlace, mac_of, places
from cachemgr.machines.network.switch import SwitchPlan, SwitchProcess
from cachemgr.machines.qemu.command import CARD_SOCKET, SWITCH_SOCKET

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
EVERYBODY = b"\xff" * 6
WAIT_S, SILENCE_S = 30.0, 0.3


def sealed(number: int, payload: bytes = b"frame") -> bytes:
    sealer = PacketSealer(KEY, 1, 5)
    return [sealer.seal(FRAME, payload) for _ in range(number)][-1]


def test_packet_is_opened_once() -> None:
    opener = PacketOpener(KEY, 0, 2)
    first, again = opener.open(sealed(1)), opener.open(sealed(1))

    assert first is not None
    assert (first.sender, first.payload, first.is_newest) == (1, b"frame", True)
    assert again is None


def test_flipped_bit_anywhere_closes_a_packet() -> None:
    packet = sealed(1)
    for at in range(len(packet) * 8):
        flipped = bytearray(packet)
        flipped[at // 8] ^= 1 << at % 8
        assert PacketOpener(KEY, 0, 2).open(bytes(flipped)) is None
    assert PacketOpener(KEY, 0, 2).open(packet) is not None


def test_other_jobs_key_and_strange_senders_open_nothing() -> None:
    assert PacketOpener(OTHER_KEY, 0, 2).open(sealed(1)) is None
    assert PacketOpener(KEY, 1, 2).open(sealed(1)) is None  # its own, come back
    assert PacketOpener(KEY, 0, 1).open(sealed(1)) is None  # of an instance that the job does not have
    assert PacketOpener(KEY, 0, 2).open(b"") is None
    assert PacketOpener(KEY, 0, 2).open(bytes(HEADER.size)) is None


def test_each_packet_of_a_random_order_is_new_exactly_once() -> None:
    chance, opener, known = Random(4), PacketOpener(KEY, 0, 2), set()
    sealer = PacketSealer(KEY, 1, 5)
    packets = [sealer.seal(FRAME, str(number).encode()) for number in range(3 * WINDOW)]
    highest = -1
    for _ in range(8 * WINDOW):
        number = min(len(packets) - 1, max(0, highest + chance.randint(-WINDOW - 50, 40)))
        is_new = number not in known and number > highest - WINDOW

        assert (opener.open(packets[number]) is not None) == is_new
        if is_new:
            known.add(number)
            highest = max(highest, number)
    assert highest == len(packets) - 1


def test_sender_that_began_anew_is_heard_and_its_earlier_packets_are_not() -> None:
    opener = PacketOpener(KEY, 0, 2)
    assert opener.open(PacketSealer(KEY, 1, 5).seal(FRAME, b"")) is not None
    assert opener.open(PacketSealer(KEY, 1, 6).seal(FRAME, b"")) is not None

    assert opener.open(sealed(2)) is None


class Guest:
    """A switch with a socket in the place of QEMU."""

    def __init__(self, folder: Path, number: int, first: int | None, key: bytes = KEY) -> None:
        folder.mkdir()
        self.number = number
        self._card = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._card.bind(str(folder / CARD_SOCKET))
        endpoint = None if first is None else ("127.0.0.1", first)
        self.switch = SwitchProcess(SwitchPlan(str(folder), key, number, 3, endpoint), SystemClock())
        self._inside = str(folder / SWITCH_SOCKET)

    def send(self, target: bytes, payload: bytes, source: bytes | None = None) -> None:
        self._card.sendto(target + (source or mac_of(self.number)) + b"\x08\x00" + payload, self._inside)

    def received(self, wait_s: float = WAIT_S) -> bytes | None:
        self._card.settimeout(wait_s)
        try:
            return self._card.recv(2000)[14:]
        except TimeoutError:
            return None

    def kill(self) -> None:
        """Its switch, until that is gone."""
        os.kill(self.switch._pid, signal.SIGKILL)
        os.waitid(os.P_PID, self.switch._pid, os.WEXITED | os.WNOWAIT)

    def close(self) -> None:
        self.switch.close()
        self._card.close()


@pytest.fixture
def guests(tmp_path: Path) -> Iterator[list[Guest]]:
    """Three instances that have heard of each other."""
    first = Guest(tmp_path / "0", 0, None)
    found = [first, *(Guest(tmp_path / str(n), n, first.switch.port) for n in (1, 2))]
    # Frames are lost until everybody knows where the others are.
    for source in found:
        for target in found:
            while source is not target and target.received(0.05) != b"met":
                source.send(mac_of(target.number), b"met")
    for each in found:
        while each.received(SILENCE_S) is not None:
            pass
    yield found
    for each in found:
        each.close()


def test_frames_reach_whom_they_name_and_all_if_they_name_all(guests: list[Guest]) -> None:
    guests[1].send(mac_of(2), b"to one")
    guests[2].send(EVERYBODY, b"to all")

    assert guests[2].received() == b"to one"
    assert [guests[0].received(), guests[1].received()] == [b"to all"] * 2
    assert [each.received(SILENCE_S) for each in guests] == [None] * 3


@pytest.mark.parametrize("number", [0, 1])
def test_switch_that_is_killed_is_begun_anew_and_found_by_all(guests: list[Guest], number: int) -> None:
    killed, others = guests[number], [each for each in guests if each.number != number]
    killed.kill()
    others[0].send(mac_of(number), b"lost")
    silent = killed.received(SILENCE_S)
    killed.switch.keep()
    heard = []
    for each in others:
        # Frames are lost until both know where the other is.
        for source, target in ((each, killed), (killed, each)):
            until = 100
            while until and target.received(0.1) != b"again":
                source.send(mac_of(target.number), b"again")
                until -= 1
            heard.append(until > 0)

    assert silent is None
    assert heard == [True] * 4


def test_guest_cannot_send_as_another(guests: list[Guest]) -> None:
    guests[1].send(mac_of(2), b"forged", source=mac_of(0))

    assert guests[2].received(SILENCE_S) is None


def test_strangers_packets_reach_no_guest(guests: list[Guest], tmp_path: Path) -> None:
    stranger = Guest(tmp_path / "other", 1, guests[0].switch.port, OTHER_KEY)
    frame = mac_of(0) + mac_of(1) + b"\x08\x00forged"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as plain:
        for packet in (frame, PacketSealer(OTHER_KEY, 1, 1 << 60).seal(FRAME, frame), b"", bytes(60_001)):
            plain.sendto(packet, ("127.0.0.1", guests[0].switch.port))
    stranger.send(EVERYBODY, b"strange")
    found = guests[0].received(SILENCE_S)
    stranger.close()
    guests[1].send(mac_of(0), b"after it")

    assert found is None
    assert guests[0].received() == b"after it"


def test_rate_bounds_what_a_guest_sends(tmp_path: Path) -> None:
    clock = SystemClock()
    target = Guest(tmp_path / "0", 0, None)
    (tmp_path / "1").mkdir()
    plan = SwitchPlan(str(tmp_path / "1"), KEY, 1, 2, ("127.0.0.1", target.switch.port), 50_000)
    switch = SwitchProcess(plan, clock)
    card = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    card.settimeout(WAIT_S)
    frame = mac_of(0) + mac_of(1) + b"\x08\x00" + bytes(986)
    while target.received(0.05) is None:
        card.sendto(frame, str(tmp_path / "1" / SWITCH_SOCKET))
    began_s, count = clock.monotonic_s(), 0
    while clock.monotonic_s() - began_s < 1:
        card.sendto(frame, str(tmp_path / "1" / SWITCH_SOCKET))
        count += target.received(0.001) is not None
    switch.close()
    target.close()
    card.close()

    # 50 frames of 1,000 bytes a second, and a twentieth of a second's beforehand.
    assert 0 < count <= 60


def test_places_have_names_and_addresses_of_their_own() -> None:
    found = places([f"vm{number}" for number in range(1, 301)])

    assert found[299].interface == "10.211.1.44/16"
    assert found[1].mac == "52:54:00:00:00:01"
    assert found[0].hosts.splitlines()[:2] == ["10.211.0.1 vm1", "10.211.0.2 vm2"]


@pytest.mark.parametrize(
    ("names", "addresses", "words"),
    [
        (("a", "a"), ("10.211.0.1", "10.211.0.2"), "one name"),
        (("a", "b_c"), ("10.211.0.1", "10.211.0.2"), "host name"),
        (("a", "b"), ("10.211.0.1", "10.212.0.2"), "network"),
        (("a", "b"), ("10.211.0.1", "10.211.0.0"), "network"),
        (("a", "b"), ("10.211.0.1", "10.211.0.2 evil"), "network"),
        ((), (), "1 to"),
    ],
)
def test_wrong_places_are_named(names: tuple[str, ...], addresses: tuple[str, ...], words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        ClusterPlace(0, names, addresses)
