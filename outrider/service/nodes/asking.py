"""Questions to one node's daemon, with an end to all waiting, and what it says to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from cachemgr.base.clock import Clock
from cachemgr.base.errors import CacheError, NoDaemon
from cachemgr.base.message import plain
from cachemgr.network.fields import WrongField, read_answer
from cachemgr.protocol import NoFields
from outrider.service.ports import NodeTrouble

if TYPE_CHECKING:
    from cachemgr.base.message import Message, ProtocolMessage

ANSWER_S = 20.0
"""How long the daemon may take for one answer: reserving a large image's bytes takes a while."""
MOST_LETTERS = 1_000
"""Longer texts of a daemon are cut: nobody would read more."""


class DaemonConnection(Protocol):
    """The part of `cachemgr.network.client.DaemonClient` that is needed."""

    def ask(
        self, verb: str, fields: Mapping[str, object] | None = None, *, timeout_s: float = ...
    ) -> dict[str, Any]: ...


def read_from_node(kind: type[Message], verb: str, answer: Mapping[str, object]) -> Message:
    """What a daemon has answered. Another version, or something else behind its socket, must not put the
    service into a state that nobody thought of."""
    try:
        return read_answer(kind, answer, most_letters=MOST_LETTERS)
    except WrongField as error:
        words = f"the daemon answered {verb} with an unusable {error.name}: compare its version with this one"
        raise NodeTrouble(words, is_away=False) from error


class Asking:
    """The daemon, with an end to all waiting; whoever does not answer is away."""

    def __init__(self, client: DaemonConnection, node: str, clock: Clock, until_s: float) -> None:
        self._client = client
        self._node = node
        self._clock = clock
        self._until_s = until_s

    def ask(self, verb: str, kind: type[Message]) -> Message:
        """A question without fields."""
        try:
            return self.order(verb, NoFields(), kind)
        except CacheError as error:
            raise NodeTrouble(f"node {self._node} refuses {verb}: {error}", is_away=False) from error

    def order(self, verb: str, request: ProtocolMessage, kind: type[Message]) -> Message:
        """What the daemon answers; what it refuses is the caller's to deal with."""
        return read_from_node(kind, verb, self.send(verb, request))

    def send(self, verb: str, request: ProtocolMessage) -> Mapping[str, object]:
        left_s = self._until_s - self._clock.monotonic_s()
        if left_s <= 0:
            raise NodeTrouble(f"node {self._node} takes too long to carry out its orders: look at its disk")
        try:
            return self._client.ask(verb, plain(request), timeout_s=min(ANSWER_S, left_s))
        except NoDaemon as error:
            raise NodeTrouble(f"node {self._node} does not answer: {error}") from error
