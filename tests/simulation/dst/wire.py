"""Calls on their way to nodes and to the batch system, and their results on the way back.

They are late, lost, carried out twice, answered twice, or answered to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import assert_never

from outrider.core.model import ImagePart
from outrider.metadata.decision import Allowed, PolicyRefusal
from outrider.rms.base import RmsError, look
from outrider.rms.twin import Fault, Twin
from outrider.service.daemon.threads.planning import planned
from outrider.service.desk.batch.job_effects import BIND, HOLD, RELEASE, is_move, moved_by
from outrider.service.desk.batch.reservation_effects import RESERVE, carry_out
from outrider.service.ports import (
    AskEvent,
    AskProgram,
    Call,
    Carry,
    DropLookup,
    Finished,
    FoundImage,
    ImageTrouble,
    Look,
    NodeTrouble,
    PlanMoves,
    ResolveImage,
    Result,
    TellNode,
    TellUser,
)
from tests.simulation.dst.clockwork import Clockwork, Trace, Violation
from tests.simulation.dst.knobs import Knobs
from tests.simulation.dst.pools import Network

MOST_CALLS_A_MINUTE = 100
TIMEOUT_MS = 20_000
"""After so long whoever carries calls out gives up."""

RARE_BYTES = 300_000_000
"""The size of images that are wanted once."""
COMMON = "sha256:" + "c" * 64
"""The layer that all images have, where they are in layers."""

NAMES = frozenset({RESERVE, HOLD, RELEASE, BIND})
"""Effects that are called as what the batch system is asked to do first."""

Deliver = Callable[[Finished], None]


class Wire:
    """Carries calls out. `is_calm`: nothing goes wrong any more."""

    def __init__(
        self, clock: Clockwork, trace: Trace, random: Random, knobs: Knobs, network: Network, twin: Twin
    ) -> None:
        self._clock = clock
        self._trace = trace
        self._random = random
        self._knobs = knobs
        self._network = network
        self._twin = twin
        self.is_calm = False
        self._told: dict[str, tuple[int, int]] = {}

    def send(self, call: Call, deliver: Deliver) -> None:
        """`deliver` belongs to the service that asked, and knows whether that is still alive."""
        if isinstance(call, TellNode):
            self._count(call.node)
            self._tell(call, deliver)
        elif isinstance(call, (Look, Carry, TellUser)):
            self._ask_batch_system(call, deliver)
        elif isinstance(call, AskProgram):
            self._judge(call, deliver)
        elif isinstance(call, ResolveImage):
            self._resolve(call, deliver)
        elif isinstance(call, PlanMoves):
            self._plan_moves(call, deliver)
        elif isinstance(call, AskEvent):
            # No reservation here waits for what has to be asked for.
            raise AssertionError(call)
        elif isinstance(call, DropLookup):
            # What was asked is answered all the same: nobody may mind.
            pass
        else:
            assert_never(call)

    def _judge(self, call: AskProgram, deliver: Deliver) -> None:
        """The site's own program allows most, and dies now and then."""
        if self._happens(self._knobs.batch_faults):
            return
        result: Result = Allowed(rule="judge")
        if self._random.random() < 0.2:
            result = PolicyRefusal(rule="judge", sentence="not today")
        self._answer(call, result, deliver)

    def _plan_moves(self, call: PlanMoves, deliver: Deliver) -> None:
        """Plans of switches are made by themselves, and whoever makes one may die."""
        if not self._happens(self._knobs.batch_faults / 4):
            self._answer(call, planned(call), deliver)

    def _resolve(self, call: ResolveImage, deliver: Deliver) -> None:
        """Somebody looks an image up, and finds nothing while its server is away; or never comes back."""
        if self._happens(self._knobs.batch_faults / 4):
            return
        number = int(call.uri.rpartition("image")[2])
        result: Result = image_of(self._knobs, number)
        if not self._network.is_origin_up:
            result = ImageTrouble(f"nobody answers at {call.uri}")
        self._answer(call, result, deliver)

    def _count(self, node: str) -> None:
        """A node is asked now and then, not all the time."""
        minute = self._clock.now_ms // 60_000
        before, count = self._told.get(node, (minute, 0))
        self._told[node] = (minute, count + 1 if minute == before else 1)
        if self._told[node][1] > MOST_CALLS_A_MINUTE:
            raise Violation(f"{node} is asked more than {MOST_CALLS_A_MINUTE} times a minute")

    def _delay_ms(self) -> int:
        if not self.is_calm and self._knobs.longest_delay_s and self._random.random() < 0.03:
            return self._random.randrange(self._knobs.longest_delay_s * 1000)
        return 5 + self._random.randrange(200)

    def _later(self, act: Callable[[], None]) -> None:
        self._clock.after(self._delay_ms(), act)

    def _answer(self, call: Call, result: Result, deliver: Deliver, *, times: int = 1) -> None:
        def act() -> None:
            self._network.move()
            deliver(Finished(call=call, result=result))

        for _ in range(times):
            self._later(act)

    def _happens(self, chance: float) -> bool:
        return not self.is_calm and self._random.random() < chance

    def _tell(self, call: TellNode, deliver: Deliver) -> None:
        silence = NodeTrouble(f"node {call.node} does not answer")
        if self._happens(self._knobs.node_faults):
            fault = self._random.choice(("lost", "answer lost", "never", "doubled", "twice"))
            self._trace.note(f"wire: {fault}: tell {call.node} {call.number}")
            if fault == "lost":
                self._clock.after(TIMEOUT_MS, lambda: deliver(Finished(call=call, result=silence)))
            elif fault == "answer lost":
                self._later(lambda: self._carry_out_there(call))
                self._clock.after(TIMEOUT_MS, lambda: deliver(Finished(call=call, result=silence)))
            elif fault == "never":
                self._later(lambda: self._carry_out_there(call))
            elif fault == "doubled":
                # Carried out twice within a moment, and answered by the first.
                self._later(lambda: self._reach(call, deliver, silence))
                self._later(lambda: self._carry_out_there(call))
            else:
                self._later(lambda: self._reach(call, deliver, silence, times=2))
            return
        self._later(lambda: self._reach(call, deliver, silence))

    def _carry_out_there(self, call: TellNode) -> None:
        pool = self._network.pools[call.node]
        if pool.is_up and pool.is_reachable:
            self._network.tell(call)

    def _reach(self, call: TellNode, deliver: Deliver, silence: NodeTrouble, *, times: int = 1) -> None:
        pool = self._network.pools[call.node]
        if not (pool.is_up and pool.is_reachable):
            self._clock.after(1000, lambda: deliver(Finished(call=call, result=silence)))
            return
        self._answer(call, self._network.tell(call), deliver, times=times)

    def _ask_batch_system(self, call: Look | Carry | TellUser, deliver: Deliver) -> None:
        name = "note" if isinstance(call, TellUser) else "look"
        if isinstance(call, Carry):
            name = call.effect.kind if call.effect.kind in NAMES else "unreserve"
        fault: str | None = None
        if self._happens(self._knobs.batch_faults):
            fault = self._random.choice(("unreached", "answer lost", "never", "doubled", "twice", "refused"))
            if isinstance(call, Look) and fault == "refused":
                fault = "unreached"
            self._trace.note(f"wire: {fault}: {name}")
        self._later(lambda: self._reach_batch_system(call, name, fault, deliver))

    def _reach_batch_system(
        self, call: Look | Carry | TellUser, name: str, fault: str | None, deliver: Deliver
    ) -> None:
        planned = {"unreached": Fault.UNREACHED, "answer lost": Fault.ANSWER_LOST, "refused": Fault.REFUSED}
        if fault in planned:
            self._twin.faults.plan(name, planned[fault])
        result = self._do(call)
        if fault == "doubled":
            self._later(lambda: self._again(call))
        if fault != "never":
            self._answer(call, result, deliver, times=2 if fault == "twice" else 1)

    def _again(self, call: Look | Carry | TellUser) -> None:
        self._do(call)

    def _do(self, call: Look | Carry | TellUser) -> Result:
        try:
            if isinstance(call, Look):
                return look(self._twin, call.watched)
            if isinstance(call, TellUser):
                self._twin.note(call.job, call.text)
                return None
            if is_move(call.effect):
                fields = moved_by(call.effect)
                targets = tuple(sorted(fields["targets"]))
                self._twin.move(fields["job"], targets, goes_first=fields["goes_first"])
            else:
                carry_out(call.effect, self._twin)
        except RmsError as error:
            return error
        return None


def image_of(knobs: Knobs, number: int) -> FoundImage:
    """The image of that number, at http://site/imageNUMBER; beyond those that everybody uses are others."""
    size_bytes = knobs.images[number] if number < len(knobs.images) else RARE_BYTES
    digest = f"sha256:{number:04x}" + "a" * 60
    if not knobs.layer_bytes:
        return FoundImage(size_bytes=size_bytes, digest=digest, format="raw")
    own = ImagePart(key=f"sha256:{number:04x}" + "b" * 60, size_bytes=size_bytes - knobs.layer_bytes)
    parts = ImagePart(key=COMMON, size_bytes=knobs.layer_bytes), own
    return FoundImage(size_bytes=size_bytes, digest=digest, format="layers", parts=parts)


def parts_of(knobs: Knobs) -> dict[str, tuple[ImagePart, ...]]:
    """Of which layers images consist, by digest; nothing where they are files."""
    images = (image_of(knobs, number) for number in range(len(knobs.images) + 100))
    return {image.digest: image.parts for image in images if image.parts}
