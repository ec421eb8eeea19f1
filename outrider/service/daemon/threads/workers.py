"""Threads that carry out what the desk calls for, and what the API needs beside the desk.

The batch system is asked one thing at a time, in the order of the calls; nodes many at a time; and
images are looked up by a few threads of their own, so that hashing a large file holds up nobody.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Protocol, TypeVar

from cachemgr.base.clock import MonotonicClock
from cachemgr.base.shares import Share
from outrider.metadata.decision import Allowed, PolicyRefusal
from outrider.rms.base import BatchSystem, JobUse, Landing, RmsError, Sight, Unavailable, look
from outrider.service.answers.reply import Trouble
from outrider.service.daemon.log import TracingLog
from outrider.service.daemon.measures.gauges import PoolGauges
from outrider.service.daemon.measures.nodeshares import NodeShares
from outrider.service.daemon.threads.events import ask_event
from outrider.service.daemon.threads.lookups import Lookup, Lookups
from outrider.service.daemon.threads.planning import planned_apart
from outrider.service.daemon.world.world import World
from outrider.service.desk.batch.job_effects import is_move, moved_by
from outrider.service.front import Busy, NotDone
from outrider.service.meter import Meter
from outrider.service.nodes.moving import MoveFields, move_machine
from outrider.service.ports import (
    AskEvent,
    AskProgram,
    Call,
    Carry,
    DropLookup,
    FoundImage,
    ImageClaim,
    ImageTrouble,
    LoginBook,
    Look,
    NodeReport,
    NodeTrouble,
    PlanMoves,
    ResolveImage,
    Result,
    Sign,
    TellNode,
    TellUser,
)
from outrider.service.settings import Effort, Settings
from outrider.service.task_threads import FutureTask, TaskThreads
from outrider.store.records import Effect

T = TypeVar("T")
Asked = TypeVar("Asked")
Done = Callable[[Result], None]

EXPECTED = (RmsError, NodeTrouble, ImageTrouble, NotDone)
"""What may go wrong with a call, as its interfaces say; anything else is a fault of the program."""

MOST_PROGRAMS = 4
MOST_SUBMISSIONS = 16
LEADS_NO_MORE = "this head leads no more, or cannot be sure that it does"
KEPT = 64
"""Places in each queue that are for root and the service itself."""


class OnBatchSystem(Protocol):
    """Has something asked of the batch system by the thread that does that. Raises NotDone, RmsError."""

    def __call__(self, function: Callable[[BatchSystem], T]) -> T: ...


class Workers:
    """Everything that blocks, in threads. Any thread may call."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        *,
        carry_effect: Callable[[Effect, BatchSystem, Sign | None], JobUse | None],
        ask_program: Callable[[AskProgram], Allowed | PolicyRefusal],
        clock: MonotonicClock,
        log: TracingLog,
        meter: Meter,
        call_timeout_s: float = 120,
        effort: Effort | None = None,
        most_submissions_of_one: int = 16,
        most_decisions_of_one: int = 16,
        complete: Callable[[Sight], Sight] | None = None,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        """`complete` adds to a look what the batch system itself does not tell.

        `may_act` says, perhaps after some seconds, whether this service may still change the world.
        """
        self._world = world
        self._complete = complete
        self._may_act = may_act
        self._carry_effect = carry_effect
        self._ask_program = ask_program
        self._clock = clock
        self._log = log
        self.meter = meter
        self._nodes = TaskThreads("the nodes", settings.most_calls, clock=clock, timeout_s=call_timeout_s)
        self._rms = TaskThreads(
            "the batch system",
            1,
            clock=clock,
            timeout_s=call_timeout_s,
            most_of_one=most_submissions_of_one,
            kept=KEPT,
        )
        self._submissions = TaskThreads(
            "submissions",
            MOST_SUBMISSIONS,
            clock=clock,
            timeout_s=call_timeout_s,
            most_of_one=most_submissions_of_one,
            most_running_of_one=1,
            kept=KEPT,
            kept_threads=1,
        )
        self._programs = TaskThreads(
            "the site's program",
            MOST_PROGRAMS,
            clock=clock,
            timeout_s=call_timeout_s,
            most_of_one=most_decisions_of_one,
            most_running_of_one=1,
            kept=KEPT,
            kept_threads=1,
        )
        self._planner = TaskThreads("the planner", 1, clock=clock, timeout_s=call_timeout_s)
        self._lookups = Lookups(world.resolve, clock=clock, log=log, effort=effort)
        self._asked: dict[ResolveImage, Lookup] = {}
        """What is being looked up for jobs."""
        self._guard = threading.Lock()
        self.pools = PoolGauges(meter)
        self.node_shares = NodeShares()

    def carry_out(self, call: Call, done: Done) -> None:
        """Do what the desk calls for. `done` is told once what came of it, errors included."""
        owner: int | None = None
        match call:
            case TellNode():
                threads, to = self._nodes, "node"
            case AskEvent(uid=uid):
                threads, to, owner = self._programs, "program", uid
            case AskProgram():
                threads, to, owner = self._programs, "program", call.uid
            case Carry(effect=effect) if is_move(effect):
                threads, to = self._nodes, "node"
            case PlanMoves():
                threads, to = self._planner, "planner"
            case Look() | Carry() | TellUser():
                threads, to = self._rms, "rms"
            case ResolveImage():
                self._look_up(call, done)
                return
            case DropLookup():
                self._drop(call.question)
                return
        task = _CallTask(self, call, to, done)
        try:
            threads.add(task, owner)
        except Busy as error:
            task.give_up(str(error))

    def resolve(self, claim: ImageClaim) -> Future[FoundImage]:
        """What is at a URI. Raises Busy; the future raises ImageTrouble."""
        future: Future[FoundImage] = Future()

        def done(found: FoundImage | Exception) -> None:
            # Cancelled meanwhile: then nobody waits.
            with suppress(InvalidStateError):
                if isinstance(found, Exception):
                    future.set_exception(found)
                else:
                    future.set_result(found)

        self._lookups.ask(claim, done)
        return future

    @property
    def logins(self) -> LoginBook | None:
        return self._world.logins

    def with_rms(self, function: Callable[[BatchSystem], T], uid: int) -> Future[T]:
        """Let something be asked of the batch system in its turn. Raises Busy; the future, RmsError."""
        return self._begun(self._rms, lambda: self._act(function), uid)

    def submitting(self, hand_over: Callable[[OnBatchSystem], T], uid: int) -> Future[T]:
        """Let a job be handed over in a user's name, where nobody else waits for it. Raises Busy; the future,
        RmsError."""

        def on_rms(function: Callable[[BatchSystem], Asked]) -> Asked:
            try:
                return self.with_rms(function, uid).result()
            except Busy as error:
                raise NotDone(Trouble(code="busy", message=str(error))) from error

        return self._begun(self._submissions, lambda: hand_over(on_rms), uid)

    def _begun(self, threads: TaskThreads, function: Callable[[], T], uid: int) -> Future[T]:
        future: Future[T] = Future()
        task = FutureTask(
            future, function, lambda words: NotDone(_no_answer(words)), self._log, expected=EXPECTED
        )
        threads.add(task, uid)
        return future

    def _on_rms(self, function: Callable[[BatchSystem], T]) -> T:
        """The service itself asks, and waits."""
        try:
            return self.with_rms(function, 0).result()
        except (Busy, NotDone) as error:
            raise Unavailable(str(error)) from error

    def _act(self, function: Callable[[BatchSystem], T]) -> T:
        if not self._may_act():
            raise NotDone(Trouble(code="busy", message=f"{LEADS_NO_MORE}: ask again"))
        return function(self._world.rms)

    def tend(self) -> None:
        """To be called every few seconds: give up what hangs, and say how much is under way."""
        for to, threads in (
            ("node", self._nodes),
            ("rms", self._rms),
            ("submission", self._submissions),
            ("program", self._programs),
            ("planner", self._planner),
            ("lookup", self._lookups),
        ):
            if given_up := threads.expire():
                # That a user's address does not answer is nothing for an administrator.
                say = self._log.info if threads is self._lookups else self._log.error
                say("calls given up", to=to, calls=given_up)
            self.meter.set("outrider_calls_running", threads.running, to)
        self.pools.show()

    def close(self) -> None:
        """Begin nothing any more. What is under way ends with the process at the latest."""
        for threads in (
            self._lookups,
            self._programs,
            self._planner,
            self._nodes,
            self._submissions,
            self._rms,
        ):
            threads.close()

    def shares(self) -> list[Share]:
        """Who has how much of the threads and of the places before them."""
        users = (self._rms, self._submissions, self._programs, self._lookups)
        return [share for threads in users for share in threads.shares()]

    def _look_up(self, call: ResolveImage, done: Done) -> None:
        """What a job's image is. The desk is told, unless it drops the question."""

        def tell(found: FoundImage | Exception) -> None:
            with self._guard:
                self._asked.pop(call, None)
            self.meter.count("outrider_calls_total", "lookup", outcome_of(found))
            done(found)

        try:
            lookup = self._lookups.ask(call, tell)
        except Busy as error:
            tell(ImageTrouble(f"image {call.uri} could not be looked up: {error}"))
            return
        with self._guard:
            if not lookup.is_over:
                self._asked[call] = lookup

    def _drop(self, question: ResolveImage) -> None:
        with self._guard:
            lookup = self._asked.pop(question, None)
        if lookup is not None:
            self._lookups.abandon(lookup)

    def heard(self, report: NodeReport) -> None:
        """A node has told how its pool is."""
        self.pools.note(report)
        self.node_shares.note(report)
        if self._world.ceiling is not None:
            self._world.ceiling.note(report.node, report.limit_bytes)

    def do(self, call: Call) -> Result:
        """Carry a call out here and now; errors that belong to it are its result."""
        if isinstance(call, (Carry, TellNode, TellUser)) and not self._may_act():
            return _failure(call, LEADS_NO_MORE)
        try:
            match call:
                case Look(watched=watched):
                    sight = look(self._world.rms, watched)
                    return sight if self._complete is None else self._complete(sight)
                case Carry(effect=effect) if is_move(effect):
                    fields = MoveFields(**moved_by(effect))
                    move_machine(fields, self._world.nodes, _Moving(self._on_rms), effect.attempts)
                    return None
                case Carry(effect=effect):
                    return self._carry_effect(effect, self._world.rms, self._world.sign)
                case TellNode():
                    return self._world.nodes.tell(call)
                case AskEvent():
                    return ask_event(call)
                case AskProgram():
                    answer = self._ask_program(call)
                    if answer.remark:
                        self._log.warning("policy program gave no answer", words=answer.remark)
                    return answer
                case PlanMoves():
                    return planned_apart(call)
                case TellUser():
                    self._world.rms.note(call.job, call.text, call.start_s)
                    return None
                case ResolveImage() | DropLookup():
                    raise ValueError("look-ups have threads of their own")
        except EXPECTED as error:
            return error
        except Exception as error:  # noqa: BLE001 - a call's outermost loop: the desk is told, whatever it is
            self._log.trace(f"call failed: {type(call).__name__}", traceback.format_exc())
            return _failure(call, f"a fault of Outrider itself: {type(error).__name__}: {error}")


class _Moving:
    """The batch system for who moves a machine, from the threads of nodes."""

    def __init__(self, on_rms: OnBatchSystem) -> None:
        self._on_rms = on_rms

    def land(self, wanted: Landing) -> bool:
        return self._on_rms(lambda rms: rms.land(wanted))

    def move(self, job: str, nodes: Sequence[str], *, goes_first: bool = False) -> None:
        self._on_rms(lambda rms: rms.move(job, nodes, goes_first=goes_first))


class _CallTask:
    """A call of the desk's."""

    def __init__(self, workers: Workers, call: Call, to: str, done: Done) -> None:
        self._workers = workers
        self._call = call
        self._to = to
        self._once = _Once(done)

    def run(self) -> None:
        self._end(self._workers.do(self._call))

    def give_up(self, words: str) -> None:
        self._end(_failure(self._call, words))

    def _end(self, result: Result) -> None:
        if self._once(result):
            if isinstance(result, NodeReport):
                self._workers.heard(result)
            self._workers.meter.count("outrider_calls_total", self._to, outcome_of(result))


class _Once:
    """Hands over the first result and no other. Two threads may have one at the same time."""

    def __init__(self, done: Done) -> None:
        self._first: Future[Result] = Future()
        self._first.add_done_callback(lambda future: done(future.result()))

    def __call__(self, result: Result) -> bool:
        try:
            self._first.set_result(result)
        except InvalidStateError:
            return False
        return True


def outcome_of(result: object) -> str:
    return "failed" if isinstance(result, Exception) else "done"


def _failure(call: Call, words: str) -> Exception:
    """A call's error in the words of whom it went to."""
    if isinstance(call, TellNode):
        return NodeTrouble(f"node {call.node}: {words}")
    return Unavailable(f"the call was given up: {words}")


def _no_answer(words: str) -> Trouble:
    return Trouble(code="unavailable", message=f"the batch system gave no answer ({words}): ask again later")
