"""Asking the daemons of other nodes, all at once and for a bounded time: for jobs on several nodes.

The batch system runs root's hooks on the first node of such a job only. That node's daemon has the
site's key, with which it asks the others as the service does (`cachemgr.network.channel`), each by the name
that the batch system has for it.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cachemgr.base.errors import BadRequest, CacheError, NoDaemon, NotAllowed
from cachemgr.base.message import plain
from cachemgr.network.fields import read_answer
from cachemgr.network.remote import RemoteClient
from cachemgr.protocol import CONTROL_PORT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cachemgr.base.message import ProtocolMessage
    from cachemgr.daemon.node import NodeContext

Answer = TypeVar("Answer", bound="ProtocolMessage")
MOST_AT_ONCE = 64
CONNECT_S = 5.0
ANSWER_S = 20.0
ALL_S = 30.0


@dataclass(frozen=True)
class Answers(Generic[Answer]):
    """What each node has answered, by its name."""

    results: dict[str, Answer] = field(default_factory=dict)
    errors: dict[str, CacheError] = field(default_factory=dict)

    def check(self) -> None:
        """Raise the error that says most: a refusal before an image that is not there yet."""
        if not self.errors:
            return
        ranked = sorted(self.errors.items(), key=lambda each: (_rank(each[1]), each[0]))
        name, error = ranked[0]
        others = len(ranked) - 1
        more = "" if not others else f" (and {others} more nodes)"
        raise type(error)(f"node {name}{more}: {error}") from error


def ask_all(
    node: NodeContext, names: Sequence[str], verb: str, request: ProtocolMessage, kind: type[Answer]
) -> Answers[Answer]:
    """Ask the same of all these nodes; who does not answer in time has an error."""
    if not node.keys:
        raise BadRequest("a job on several nodes needs the site's key on each: set relay_key")
    port, fields = _port(node.config.control_listen), plain(request)
    until_s = node.clock.monotonic_s() + ALL_S
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        waiting.put(name)
    told: queue.SimpleQueue[tuple[str, Answer | CacheError]] = queue.SimpleQueue()

    def work() -> None:
        while node.clock.monotonic_s() < until_s:
            try:
                name = waiting.get_nowait()
            except queue.Empty:
                return
            told.put((name, _asked(node, name, port, verb, fields, kind)))

    for _ in range(min(len(names), MOST_AT_ONCE)):
        # What hangs is left behind, and ends with its own limits of time.
        threading.Thread(target=work, daemon=True).start()
    found = Answers[Answer](errors={name: NoDaemon(f"no answer in {ALL_S:g} s") for name in names})
    for _ in names:
        try:
            name, answer = told.get(timeout=max(0.0, until_s - node.clock.monotonic_s()))
        except queue.Empty:
            break
        if isinstance(answer, CacheError):
            found.errors[name] = answer
        else:
            found.errors.pop(name, None)
            found.results[name] = answer
    return found


def _asked(
    node: NodeContext, name: str, port: int, verb: str, fields: Mapping[str, object], kind: type[Answer]
) -> Answer | CacheError:
    try:
        with RemoteClient(name, port, node.keys, node=name, connect_s=CONNECT_S, clock=node.clock) as client:
            return read_answer(kind, client.ask(verb, fields, timeout_s=ANSWER_S))
    except CacheError as error:
        return error
    except (OSError, UnicodeError) as error:
        return NoDaemon(f"it cannot be asked: {error}")


def _rank(error: CacheError) -> int:
    kinds = (NotAllowed, BadRequest)
    return next((number for number, kind in enumerate(kinds) if isinstance(error, kind)), len(kinds))


def _port(listen: str) -> int:
    """Where the others listen, which is where this one does: a site has one configuration."""
    text = listen.rpartition(":")[2]
    return int(text) if text.isdigit() and int(text) else CONTROL_PORT
