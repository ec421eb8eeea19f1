"""Fills a store with accepted reservations through the desk, as if they had come in one by one."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

# Run as a script, Python looks for modules in this folder only.
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.service_site import POLICIES, BenchedSite, images, understood, wish, write_config
from cachemgr.base.clock import SystemClock
from outrider.metadata.policies import parse_policies
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Answer
from outrider.service.daemon.configuration.files import load_config
from outrider.service.daemon.configuration.model import settings_of
from outrider.service.desk.batch.reservation_effects import carry_out
from outrider.service.desk.desk import Desk, Event
from outrider.service.ports import Call, Carry, Finished, FoundImage, Look, Result, TellNode
from outrider.service.requests import Asked, Caller, Reserve, Ticked
from outrider.store.sqlite.store import SqliteStore

LEAD_S = 400
"""So long before the present the nodes are first seen: all have reported when it comes."""
USERS = 200


class Silent:
    """A meter and a log that write nothing down."""

    def count(self, name: str, *labels: str, by: int = 1) -> None: ...

    def set(self, name: str, value: float, *labels: str) -> None: ...

    def observe(self, name: str, value: float, *labels: str) -> None: ...

    def debug(self, event: str, **fields: object) -> None: ...

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...


class FillClock(SystemClock):
    """Stands still until it is set."""

    def __init__(self, at_s: int) -> None:
        self.at_s = at_s

    def now_s(self) -> int:
        return self.at_s


class Filler:
    """A desk whose calls are carried out on the spot."""

    def __init__(self, place: BenchedSite, clock: FillClock) -> None:
        self._clock = clock
        self._nodes = place.pools(clock)
        self._rms = place.batch_system(clock)
        self._store = SqliteStore.create(place.store, clock.at_s)
        settings = settings_of(load_config([place.config], {}))
        policies = parse_policies(POLICIES.encode(), file="policies.yaml")
        self._desk = Desk(self._store, settings, policies, clock.at_s, log=Silent(), meter=Silent())

    def close(self) -> None:
        self._store.close()

    def pass_until(self, at_s: int) -> None:
        """Time passes; the desk is told whenever it wants to be."""
        while self._clock.at_s < at_s:
            self.handle(Ticked())
            next_s = self._desk.next_s() or at_s
            self._clock.at_s = min(at_s, max(next_s, self._clock.at_s + 1))
        self.handle(Ticked())

    def ask(self, asked: Asked) -> list[Answer]:
        """Of a refusal the answer comes once offers have been looked for."""
        answers = self.handle(asked)
        while not answers:
            answers = self.handle(Ticked())
        return answers

    def handle(self, event: Event) -> list[Answer]:
        outcome = self._desk.handle(event, self._clock.at_s)
        answers = [each.answer for each in outcome.replies]
        calls = list(outcome.calls)
        while calls:
            call = calls.pop()
            outcome = self._desk.handle(Finished(call=call, result=self._do(call)), self._clock.at_s)
            calls += outcome.calls
        return answers

    def _do(self, call: Call) -> Result:
        if isinstance(call, Look):
            return self._rms.look()
        if isinstance(call, Carry):
            carry_out(call.effect, self._rms)
            return None
        assert isinstance(call, TellNode)
        return self._nodes.tell(call)


def fill(place: BenchedSite, reservations: int) -> tuple[int, int]:
    """How many requests it took, and how many nodes all reservations have together."""
    write_config(place)
    place.store.parent.mkdir(exist_ok=True)
    now_s = SystemClock().now_s()
    filler, random, known = Filler(place, FillClock(now_s - LEAD_S)), Random(1), images()
    sizes = {each.uri: FoundImage(size_bytes=each.size_bytes, digest=each.digest) for each in known}
    filler.pass_until(now_s)
    accepted = number = slots = 0
    while accepted < reservations:
        wanted = wish(number, random, known)
        found = sizes[wanted["metadata"]["image"]["uri"]]
        uid = 10_000 + random.randrange(USERS)
        request = Reserve(workspace=understood(wanted, now_s), image=found)
        (answer,) = filler.ask(
            Asked(ticket=number, caller=Caller(uid=uid, user=f"user{uid}"), request=request)
        )
        assert isinstance(answer, Decision), answer
        if answer.result == "accepted":
            accepted += 1
            slots += answer.node_count
        number += 1
        if number % 5_000 == 0:
            gc.freeze()
    filler.close()
    return number, slots


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--reservations", type=int, required=True)
    options = parser.parse_args(argv)
    asked, slots = fill(BenchedSite(folder=options.folder, nodes=options.nodes), options.reservations)
    print(asked, slots)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
