"""kill -9 at random moments: what was acknowledged is there, and nothing is half there.

What a power cut does to what has not been synced cannot be seen in this way; that a promise
is synced before it is acknowledged is another test's claim.
"""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path
from random import Random

from outrider.store.sqlite.store import SqliteStore
from outrider.store.states import State, TransferState
from tests.amount import examples
from tests.unit.store.samples import promise_all, transfer

ROUNDS = examples(50)


def serve(path: Path, first: int, acknowledge: int) -> None:
    """Promise one reservation after the other, cancel some, and say so of each one that is safe."""
    store = SqliteStore.open(path, first)
    number = first
    while True:
        promise_all(store, f"w{number}", number)
        os.write(acknowledge, b"+%d\n" % number)
        if number % 3 == 0:
            record = store.reservation(f"w{number}")
            assert record is not None
            with store.promise() as promise:
                promise.end_transfer(number, TransferState.WITHDRAWN, number)
                promise.change_reservation(record, number, state=State.CANCELLED)
            os.write(acknowledge, b"-%d\n" % number)
        elif number % 3 == 1:
            with store.progress() as progress:
                progress.put_transfers([transfer(number, has_begun=True)], number)
        if number % 7 == 0:
            store.prune(number - 20, most=3)
        number += 1


def run_and_kill(path: Path, first: int, chance: Random) -> list[str]:
    """What a service acknowledged before it was killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            serve(path, first, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        # The first acknowledgement shows that it serves; then it lives for some milliseconds.
        assert select.select([pipe], [], [], 60)[0], "the service acknowledges nothing"
        said = pipe.read(1) or b""
        os.set_blocking(pipe.fileno(), True)
        select.select([], [], [], chance.uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        while piece := pipe.read(65536):
            said += piece
    os.waitpid(child, 0)
    lines = said.decode().split("\n")
    # A line that is not whole was not acknowledged.
    return lines[:-1]


def test_a_killed_service_loses_nothing_it_acknowledged_and_leaves_nothing_half(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    SqliteStore.create(path, 0).close()
    chance = Random(7)
    cancelled: set[int] = set()
    last = 0
    for _ in range(ROUNDS):
        said = run_and_kill(path, last + 1, chance)
        promised = max(int(line[1:]) for line in said if line[0] == "+")
        cancelled.update(int(line[1:]) for line in said if line[0] == "-")
        with SqliteStore.open(path, 0) as store:
            live = {int(each.name[1:]) for each in store.live_reservations()}
            waiting = {each.number for each in store.live_transfers()}
            effects = len(store.due_effects(0))
            last = store.kept_book(0).next_transfer - 1

        # At most one decision was on the disk without having been acknowledged: a promise, or
        # the cancellation of what was promised last.
        assert last in (promised, promised + 1)
        gone = set(range(1, last + 1)) - live - cancelled
        assert gone <= {last} - {promised + 1}
        assert not live & cancelled
        assert waiting == live
        assert effects == min(1000, last)
        cancelled |= gone

    assert last >= ROUNDS
    assert cancelled
