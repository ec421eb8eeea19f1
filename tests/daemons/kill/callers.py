"""Users who go on asking whatever happens, as the command line does, and write down what they were told.

A request that got no answer is sent again with its key until there is one. What was answered is
a promise from then on.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from tests.daemons.kill.origin import Source
from tests.daemons.kill.victim import CLOCK, PATIENCE_S, Answered, Gone, Json, Victim

PAUSE_S = 0.03
THINKING_S = 0.15
MOST_OPEN = 6
"""Reservations that one caller has at once."""
SOONEST_S, FURTHEST_S = 3, 14
LONGEST_S = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Promised:
    """A reservation as its user knows it. `version` tells whether anything was asked about it since."""

    name: str
    workspace: str
    start_s: int
    end_s: int
    source: Source
    version: int = 0
    is_cancelled: bool = False
    is_asked: bool = False
    """Something about it has been asked for and not been answered."""


@dataclass
class Told:
    """What all callers were told."""

    guard: threading.Lock = field(default_factory=threading.Lock)
    promised: dict[str, Promised] = field(default_factory=dict)
    workspaces: set[str] = field(default_factory=set)
    """Every one that was asked for, whatever was answered."""
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def put(self, promised: Promised) -> None:
        with self.guard:
            self.promised[promised.name] = promised

    def complain(self, words: str) -> None:
        with self.guard:
            self.wrong.append(words)

    def count(self, what: str) -> None:
        with self.guard:
            self.counts[what] += 1

    def certain(self) -> dict[str, Promised]:
        """What nobody asks to be changed just now."""
        with self.guard:
            return {name: each for name, each in self.promised.items() if not each.is_asked}


class Caller:
    """One user's thread. `pick` chooses an image."""

    def __init__(
        self,
        number: int,
        victim: Victim,
        told: Told,
        pick: Callable[[Random], Source],
        seed: str,
    ) -> None:
        self._victim = victim
        self._told = told
        self._pick = pick
        self._random = Random(f"{seed} {number}")
        self._prefix = f"w{number}"
        self._asked = 0
        self._mine: list[str] = []
        self._answered: list[tuple[str, str, object, str, Answered]] = []
        self.stop = threading.Event()
        self.abandon = threading.Event()
        """There will be no service any more."""
        self.thread = threading.Thread(target=self._run, name=f"caller {number}")

    def _run(self) -> None:
        try:
            while not self.stop.wait(self._random.uniform(0, THINKING_S)):
                self._act()
        except Exception:  # noqa: BLE001 - a thread's outermost loop: the main one reports it
            self._told.complain(traceback.format_exc())

    def _act(self) -> None:
        self._mine = [name for name in self._mine if self._is_open(name)]
        acts = [self.plan, self.look, self.look, self.repeat]
        if len(self._mine) < MOST_OPEN:
            acts += [self.reserve] * 5
        if self._mine:
            acts += [self.modify, self.modify, self.show] + [self.cancel] * (self._random.random() < 0.4)
        self._random.choice(acts)()

    def _is_open(self, name: str) -> bool:
        promised = self._told.promised[name]
        return not promised.is_cancelled and promised.end_s > CLOCK.now_s()

    def reserve(self) -> None:
        source = self._pick(self._random)
        body = self._body(source)
        with self._told.guard:
            self._told.workspaces.add(f"{self._prefix}-{self._asked}")
        answered = self._until_answered("POST", "/v1/reservations", body, key=self._key())
        decision = answered.content
        if answered.status == 200:
            self._told.count(f"refused for lack of {decision['cause']}")
            return
        if answered.status != 201:
            self._told.complain(f"reserve was answered {answered}")
            return
        self._told.count("accepted")
        name = str(decision["name"])
        self._told.put(
            Promised(
                name=name,
                workspace=str(decision["workspace"]),
                start_s=_number(decision, "start_s"),
                end_s=_number(decision, "end_s"),
                source=source,
            )
        )
        self._mine.append(name)

    def plan(self) -> None:
        answered = self._until_answered("POST", "/v1/plans", self._body(self._pick(self._random)))
        self._expect("plan", answered, 200)

    def look(self) -> None:
        paths = (
            "/v1/reservations",
            "/v1/transfers",
            "/v1/nodes",
            "/v1/timeline",
            "/v1/decisions",
            "/metrics",
        )
        path = self._random.choice(paths[:-1])
        self._expect(path, self._until_answered("GET", path), 200)

    def show(self) -> None:
        name = self._random.choice(self._mine)
        found = self._until_answered("GET", f"/v1/reservations/{name}")
        self._expect(f"show of {name}, which was accepted,", found, 200)

    def modify(self) -> None:
        """Later, or longer; what is refused leaves all as it was."""
        name = self._random.choice(self._mine)
        before = self._told.promised[name]
        body: Json = {"duration": f"{self._random.randint(1, LONGEST_S)}s"}
        if before.start_s > CLOCK.now_s() + 2 and self._random.random() < 0.5:
            body["start"] = f"uts{before.start_s + self._random.randint(1, 3)}"
        self._told.put(replace(before, is_asked=True))
        answered = self._until_answered("PATCH", f"/v1/reservations/{name}", body, key=self._key())
        after = replace(before, version=before.version + 1)
        if answered.status == 200 and answered.content["result"] == "accepted":
            content = answered.content
            after = replace(after, start_s=_number(content, "start_s"), end_s=_number(content, "end_s"))
            self._told.count("changed")
        elif answered.status not in (200, 409, 422):
            self._told.complain(f"change of {name}, which was accepted, was answered {answered}")
        self._told.put(after)

    def cancel(self) -> None:
        name = self._random.choice(self._mine)
        before = self._told.promised[name]
        self._told.put(replace(before, is_asked=True))
        answered = self._until_answered("DELETE", f"/v1/reservations/{name}", key=self._key())
        reservation = answered.content.get("reservation")
        # What was over already is shown as it is.
        is_cancelled = isinstance(reservation, dict) and reservation["state"] == "cancelled"
        if is_cancelled:
            self._told.count("cancelled")
        elif answered.status not in (200, 409):
            self._told.complain(f"cancelling {name}, which was accepted, was answered {answered}")
        self._told.put(replace(before, version=before.version + 1, is_cancelled=is_cancelled))

    def repeat(self) -> None:
        """The same request with the same key has the same answer; another one has none."""
        if not self._answered:
            return
        method, path, body, key, before = self._random.choice(self._answered)
        answered = self._until_answered(method, path, body, key=key)
        self._told.count("repeated")
        if method != "DELETE" and answered != before:
            self._told.complain(f"{method} {path} of {key} was answered {before}, and then {answered}")
        if method == "POST":
            other = self._until_answered(method, path, self._body(self._pick(self._random)), key=key)
            self._expect(f"another request with the key {key}", other, 409)

    def _until_answered(self, method: str, path: str, body: object = None, *, key: str = "") -> Answered:
        """As the command line does: again and again, with the same key, while the service is away."""
        until_s = CLOCK.monotonic_s() + PATIENCE_S
        last = ""
        while CLOCK.monotonic_s() < until_s and not self.abandon.is_set():
            try:
                answered = self._victim.ask(method, path, body, key=key)
            except Gone as error:
                last = str(error)
                self._told.count("lost")
            else:
                if answered.status != 503:
                    self._remember(method, path, body, key, answered)
                    return answered
                last = str(answered.content)
                self._told.count("not yet")
            CLOCK.sleep(PAUSE_S)
        raise AssertionError(f"{method} {path} had no answer in {PATIENCE_S:.0f} s: {last}")

    def _remember(self, method: str, path: str, body: object, key: str, answered: Answered) -> None:
        if key and answered.status < 300:
            self._answered.append((method, path, body, key, answered))
            del self._answered[:-50]

    def _expect(self, what: str, answered: Answered, status: int) -> None:
        if answered.status != status:
            self._told.complain(f"{what} was answered {answered}")

    def _key(self) -> str:
        return f"{self._prefix}-{self._asked}"

    def _body(self, source: Source) -> Json:
        self._asked += 1
        nodes = 1 if source.is_solo else self._random.choice((1, 1, 2))
        start_s = CLOCK.now_s() + self._random.randint(SOONEST_S, FURTHEST_S)
        return {
            "workspace": (
                f"version: 1\nmetadata: {{name: {self._prefix}-{self._asked}, "
                f"image: {{uri: '{source.uri}', digest: '{source.digest}'}}}}\n"
                f"deployment: {{nodes: {nodes}, start: uts{start_s}, "
                f"duration: {self._random.randint(1, LONGEST_S)}s}}\n"
            )
        }


def _number(content: Json, key: str) -> int:
    found = content[key]
    assert isinstance(found, int)
    return found
