"""A thing that users share, in places or bytes: who holds how much, who may have more, who was refused.

Every queue, table of connections and quota counts with this one class, so that an administrator sees
for each of them who takes what (`outrider top`). In which order those who wait are served is not
decided here.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict

from cachemgr.base.message import ProtocolMessage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

PLACES, BYTES = "places", "bytes"
MOST_REFUSED_KNOWN = 1_000
"""So many users' refusals are remembered; those refused longest ago are forgotten first."""


class Share(ProtocolMessage):
    """What one user has of one thing now, and how often more was refused."""

    thing: str
    unit: str
    # A uid, or what stands for a user where none is known: an address.
    user: str
    held: int
    most: int
    refused: int


class Shares:
    """Counts one thing. Any thread may call.

    `most` is for all together, `most_of_one` for one ordinary user. The last `kept` places are for
    root and the service alone, who are bound by nothing but `most`.

    With a `portion`, no ordinary user takes more than their first one if they would then hold more
    than one `portion`th of what is left for others (dynamic thresholds: Choudhury and Hahne, 1998).
    So many users together leave something, too: of 128 places, with a portion of 4 and at most 24
    for one, ten users who take all that they get leave 16.
    """

    def __init__(
        self,
        thing: str,
        *,
        most: int,
        most_of_one: int,
        kept: int = 0,
        unit: str = PLACES,
        portion: int | None = None,
    ) -> None:
        if not 0 <= kept < most or most_of_one < 1:
            raise ValueError(f"{thing}: {kept} of {most} cannot be kept, with {most_of_one} for one")
        self.thing = thing
        self.unit = unit
        self.most = most
        self.most_of_one = min(most_of_one, most - kept)
        self._kept = kept
        self._portion = portion
        self.refused_in_all = 0
        self._held: Counter[Hashable] = Counter()
        self._in_all = 0
        self._refused: OrderedDict[Hashable, int] = OrderedDict()
        self._guard = threading.Lock()

    def take(self, user: Hashable, amount: int = 1, *, is_privileged: bool = False) -> bool:
        """Whether there was that much for this user; what is taken has to be given back."""
        with self._guard:
            of_user, in_all = self._held.get(user, 0) + amount, self._in_all + amount
            if in_all > self.most or (not is_privileged and not self._is_fair(of_user, in_all)):
                self._note_refusal(user)
                return False
            self._held[user], self._in_all = of_user, in_all
            return True

    def _is_fair(self, of_user: int, in_all: int) -> bool:
        left = self.most - self._kept - in_all
        if left < 0 or of_user > self.most_of_one:
            return False
        return self._portion is None or of_user <= max(1, left // self._portion)

    def give(self, user: Hashable, amount: int = 1) -> None:
        with self._guard:
            if self._held.get(user, 0) < amount:
                raise ValueError(f"{self.thing}: {user} holds {self._held[user]}, and gives back {amount}")
            self._held[user] -= amount
            self._in_all -= amount
            if not self._held[user]:
                del self._held[user]

    def give_all(self) -> None:
        """Nobody holds anything any more: a span of time is over."""
        with self._guard:
            self._held.clear()
            self._in_all = 0

    def refused(self) -> dict[str, int]:
        """How often more was refused, by the thing: for what has several of them together."""
        return {self.thing: self.refused_in_all}

    def refuse(self, user: Hashable) -> None:
        """Count a refusal that was decided elsewhere."""
        with self._guard:
            self._note_refusal(user)

    @property
    def in_all(self) -> int:
        return self._in_all

    def held_by(self, user: Hashable) -> int:
        with self._guard:
            return self._held.get(user, 0)

    def shares(self, counted: dict[Hashable, int] | None = None) -> list[Share]:
        """Whoever holds something or was refused; who holds most comes first. `counted` is what is
        held, where that is counted elsewhere."""
        with self._guard:
            held, refused = dict(self._held if counted is None else counted), dict(self._refused)
        rows = [
            Share(self.thing, self.unit, str(user), held.get(user, 0), self.most_of_one, refused.get(user, 0))
            for user in {**held, **refused}
            if held.get(user) or refused.get(user)
        ]
        return sorted(rows, key=lambda row: (-row.held, -row.refused, row.user))

    def _note_refusal(self, user: Hashable) -> None:
        self.refused_in_all += 1
        self._refused[user] = self._refused.pop(user, 0) + 1
        while len(self._refused) > MOST_REFUSED_KNOWN:
            self._refused.popitem(last=False)
