"""The desk's side towards the batch system: when to look, and what is still to be done to it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from outrider.service.desk.batch.job_effects import is_of_machine, is_of_yielding
from outrider.service.desk.nodes.watch import NodeWatch
from outrider.service.meter import Log
from outrider.service.ports import Carry, Look
from outrider.service.settings import Settings
from outrider.store.records import Effect
from outrider.store.store import Store

LOST_CALL_S = 300
"""After so long without an answer a call is taken for lost."""
WATCHED_LOOK_S = 10
"""How often the batch system is looked at while nodes are watched closely."""
NOT_SEEN = "the batch system has not been seen yet"
MOST_WAIT_S = 300
"""The longest time between two attempts at an effect."""
MOST_YIELD_WAIT_S = 5
"""The same at one by which a job makes way: a reservation waits for it."""
MOST_CARRIED = 16
"""Effects on their way at once: the batch system takes them one by one, and a look waits behind them."""
MOST_READ = 100
"""So many effects are read from the store in one go."""


class EffectQueue:
    """Calls to the batch system: one look at a time, effects one at a time for each reservation."""

    def __init__(self, store: Store, settings: Settings, now_s: int, log: Log) -> None:
        self._store = store
        self._settings = settings
        self._log = log
        self.seen_s: int | None = None
        self.due_s: int | None = now_s
        """When effects are to be looked for next."""
        self.wants_look = True
        self._trouble = ""
        self._look: Look | None = None
        self._looked_s = now_s
        self._looks = 0
        self._carrying: dict[str, int] = {}
        self._due: deque[Effect] = deque()
        """Effects that were due when they were read, in their order."""

    def calls(self, now_s: int, watch: NodeWatch | None) -> Iterator[Look | Carry]:
        """What is to be asked now."""
        if watch is not None and watch.is_close and now_s - self._looked_s >= WATCHED_LOOK_S:
            self.wants_look = True
        is_lost = self._look is not None and now_s - self._looked_s >= LOST_CALL_S
        if self.wants_look and (self._look is None or is_lost):
            self._looks += 1
            self._look, self._looked_s, self.wants_look = None, now_s, False
            watched = () if watch is None else watch.nodes()
            self._look = Look(number=self._looks, watched=watched)
            yield self._look
        if self.due_s is not None and self.due_s <= now_s:
            yield from self._carry(now_s)

    def _carry(self, now_s: int) -> Iterator[Carry]:
        """As many effects as may be on their way; the next of them when one of these is back."""
        self._carrying = {
            identity: at_s for identity, at_s in self._carrying.items() if now_s - at_s < LOST_CALL_S
        }
        if not self._due:
            self._due.extend(self._store.due_effects(now_s, most=MOST_READ + len(self._carrying)))
        while self._due and len(self._carrying) < MOST_CARRIED:
            effect = self._due.popleft()
            if effect.identity not in self._carrying and self._is_left(effect, now_s):
                self._carrying[effect.identity] = now_s
                yield Carry(effect=effect)
        if len(self._carrying) >= MOST_CARRIED:
            self.due_s = min(self._carrying.values()) + LOST_CALL_S
            return
        next_s = self._store.next_due_s()
        self.due_s = None if next_s is None else max(next_s, now_s + 1)

    def _is_left(self, effect: Effect, now_s: int) -> bool:
        """Whether an effect is still the first of what is to be done to its subject, and due."""
        left = self._store.waiting_effects(effect.subject, most=1)
        return bool(left) and left[0].identity == effect.identity and left[0].due_s <= now_s

    def is_latest(self, call: Look) -> bool:
        """Whether this look's result is waited for; if so, it is not any more."""
        if self._look is None or call.number != self._look.number:
            return False
        self._look = None
        return True

    def is_carrying(self, identity: str) -> bool:
        """Whether an effect is on its way, and not taken for lost."""
        return identity in self._carrying

    def saw(self, now_s: int) -> bool:
        """The batch system answers; whether it did not before."""
        is_back, self.seen_s, self._trouble = bool(self._trouble), now_s, ""
        if is_back:
            self.due_s = now_s
        return is_back

    def saw_nothing(self, words: str) -> None:
        self._trouble = words
        self._log.warning("batch system does not answer", words=words)

    def came_back(self, effect: Effect, now_s: int) -> None:
        """An effect has been carried out, or has failed."""
        self._carrying.pop(effect.identity, None)
        self.due_s = now_s

    def again_s(self, effect: Effect) -> int:
        """How long to wait before another attempt at an effect."""
        is_waited_for = is_of_yielding(effect.subject) or is_of_machine(effect.subject)
        most_s = MOST_YIELD_WAIT_S if is_waited_for else MOST_WAIT_S
        return int(min(2 ** min(effect.attempts + 1, 12), most_s))

    def trouble(self, now_s: int) -> str:
        """Why nothing can be promised by what is known of the batch system."""
        if self.seen_s is None:
            return NOT_SEEN + (f": {self._trouble}" if self._trouble else "")
        age_s = now_s - self.seen_s
        if age_s <= self._settings.most_sight_age_s:
            return ""
        return f"the batch system has not answered for {age_s} s: {self._trouble or 'nothing came back'}"
