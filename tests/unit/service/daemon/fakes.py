"""A small desk with the real one's signature, a world without a network, and waiting with a deadline."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cachemgr.base.clock import SystemClock
from cachemgr.base.shares import Share
from outrider.core.model import Resources
from outrider.metadata.decision import Allowed, PolicyRefusal
from outrider.metadata.policies import Policies
from outrider.rms.base import BatchSystem, RmsNode
from outrider.rms.twin.system import Twin
from outrider.service.answers.jobs import Handover
from outrider.service.answers.records import DecisionList
from outrider.service.answers.reply import Answer, Replied, Trouble
from outrider.service.answers.site import Status
from outrider.service.daemon.configuration.model import Config
from outrider.service.daemon.life import Providers
from outrider.service.daemon.log import TracingLog, make_log
from outrider.service.daemon.world.world import World
from outrider.service.desk.desk import Event, Outcome
from outrider.service.meter import Meter
from outrider.service.ports import (
    AskProgram,
    Finished,
    FoundImage,
    ImageClaim,
    ImageTrouble,
    Look,
    NodeReport,
    NodeTrouble,
    Sign,
    TellNode,
)
from outrider.service.requests import (
    Asked,
    Caller,
    EndSubmission,
    ListDecisions,
    Show,
    ShowStatus,
    Ticked,
    Woken,
)
from outrider.service.settings import Settings
from outrider.store.records import Effect
from outrider.store.store import Store

PATIENCE_S = 90.0
ADA = Caller(uid=1000, user="ada")


def eventually(claim: Callable[[], bool], what: str, log: io.StringIO | None = None) -> None:
    """Wait until it is so, and say what the log says if it does not come."""
    until_s = time.monotonic() + PATIENCE_S  # noqa: TID251 - a test's own deadline
    while not claim():
        if time.monotonic() > until_s:  # noqa: TID251
            raise AssertionError(f"{what} did not happen\n{log.getvalue() if log else ''}")
        threading.Event().wait(0.01)


def text_log(stream: io.StringIO) -> TracingLog:
    return make_log(stream, level="debug", format="text", clock=SystemClock(), environment={})


def status(*, is_promising: bool = True, now_s: int = 0) -> Status:
    return Status(
        version="0",
        site="here",
        batch_system="twin",
        now_s=now_s,
        started_s=0,
        is_promising=is_promising,
        troubles=() if is_promising else ("the batch system was not seen",),
        last_look_s=None,
        nodes=0,
        nodes_up=0,
        nodes_away=0,
        reservations={},
        next_start_s=None,
        transfers_waiting=0,
        transfers_running=0,
        link_rate_bytes_per_s=1,
        link_busy_until_s=None,
        effects_waiting=0,
        decisions={},
    )


@dataclass
class FakeDesk:
    """Answers by the name in `Show`: boom fails, stuck waits for `go`, look asks the batch system first.

    A `ListDecisions` counts what was heard, so that order and number can be seen.
    """

    heard: list[str] = field(default_factory=list)
    go: threading.Event = field(default_factory=threading.Event)
    due_s: int | None = None
    is_promising: bool = True
    fails_at_ticks: bool = False
    policies: Policies | None = None
    doubt: str = ""
    owed: int = 0
    held: list[Share] = field(default_factory=list)

    def shares(self) -> list[Share]:
        self.heard.append("shares")
        return self.held

    def next_s(self) -> int | None:
        return self.due_s

    def set_policies(self, policies: Policies) -> None:
        self.policies = policies

    def set_doubt(self, words: str) -> None:
        self.doubt = words

    def handle(self, event: Event, now_s: int) -> Outcome:
        match event:
            case Ticked():
                self.heard.append("tick")
                if self.fails_at_ticks:
                    raise RuntimeError("planted at a tick")
                self.due_s = None
                return Outcome()
            case Finished(result=result):
                self.heard.append(f"finished {type(result).__name__}")
                return Outcome(replies=(reply(self.owed, Trouble(code="seen", message=str(result))),))
            case Asked(ticket=ticket, request=ShowStatus()):
                return Outcome(replies=(reply(ticket, status(is_promising=self.is_promising)),))
            case Asked(ticket=ticket, request=Show(name=name)):
                return self._show(ticket, name)
            case Asked(ticket=ticket, request=EndSubmission(job=job)):
                self.heard.append(f"ended {job}")
                return Outcome(replies=(reply(ticket, Handover(job=job)),))
            case Woken():
                self.heard.append("woken")
                return Outcome(calls=(Look(),))
            case Asked(ticket=ticket, request=ListDecisions()):
                return Outcome(replies=(reply(ticket, DecisionList(decisions=(), last=len(self.heard))),))
        raise AssertionError(f"not scripted: {event}")

    def _show(self, ticket: int, name: str) -> Outcome:
        self.heard.append(name)
        if name == "boom":
            raise RuntimeError("planted")
        if name == "stuck":
            self.go.wait(PATIENCE_S)
        if name == "look":
            self.owed = ticket
            return Outcome(calls=(Look(),))
        return Outcome(replies=(reply(ticket, Trouble(code="not-found", message=f"no {name}")),))


def reply(ticket: int, answer: Answer) -> Replied:
    return Replied(ticket=ticket, answer=answer)


@dataclass
class FakeNodes:
    """Nodes that answer, hang until `go`, or are away, by their names."""

    go: threading.Event = field(default_factory=threading.Event)
    told: list[str] = field(default_factory=list)

    def tell(self, call: TellNode) -> NodeReport:
        self.told.append(call.node)
        if call.node == "hangs":
            self.go.wait(PATIENCE_S)
        if call.node == "away":
            raise NodeTrouble("node away: no answer")
        if call.node == "faulty":
            raise ZeroDivisionError("planted in a call")
        shares = (Share("transfers", "places", "7", 6, 8, 1),) if call.wants_images else None
        return NodeReport(node=call.node, at_s=0, limit_bytes=10, used_bytes=0, shares=shares)


def no_images(claim: ImageClaim) -> FoundImage:
    if claim.uri.startswith("good"):
        return FoundImage(size_bytes=7, digest="sha256:" + "0" * 64)
    raise ImageTrouble(f"image {claim.uri}: there is none")


def twin() -> BatchSystem:
    node = RmsNode(name="n1", capacity=Resources.of(cpus=4))
    return Twin([node], clock=SystemClock())


@dataclass
class FakeBackend:
    world: World = field(default_factory=lambda: World(rms=twin(), nodes=FakeNodes(), resolve=no_images))
    started: int = 0
    stopped: int = 0

    def start(self) -> None:
        self.started += 1

    def stop(self) -> None:
        self.stopped += 1


@dataclass
class FakeProviders:
    """A service with a small desk: everything else is the real thing."""

    backend: FakeBackend = field(default_factory=FakeBackend)
    desks: list[FakeDesk] = field(default_factory=list)
    settings: Settings | None = None

    @property
    def providers(self) -> Providers:
        return Providers(
            make_backend=self._backend,
            make_desk=self._desk,
            carry_effect=carry_nothing,
            ask_program=allow,
        )

    def _backend(self, config: Config, log: TracingLog, environment: Mapping[str, str]) -> FakeBackend:
        return self.backend

    def _desk(
        self,
        store: Store,
        settings: Settings,
        policies: Policies,
        now_s: int,
        *,
        batch_system: str,
        log: TracingLog,
        meter: Meter,
    ) -> FakeDesk:
        self.settings = settings
        self.desks.append(FakeDesk(policies=policies))
        return self.desks[-1]


def carry_nothing(effect: Effect, rms: BatchSystem, sign: Sign | None) -> None:
    pass


def allow(call: AskProgram) -> Allowed | PolicyRefusal:
    return Allowed(rule="external")


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
