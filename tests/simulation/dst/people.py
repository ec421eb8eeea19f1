"""Users: they ask, wait, ask again under the same key, and remember what they were told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

from outrider.metadata.workspace import DeploymentSection, ImageSection, MetadataSection, WorkspaceFile
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Answer, Replied, Trouble
from outrider.service.answers.reservations import ReservationDetails
from outrider.service.ports import FoundImage
from outrider.service.requests import (
    Accept,
    Asked,
    Caller,
    Cancel,
    Explain,
    ListDecisions,
    ListImages,
    ListNodes,
    ListReservations,
    ListTransfers,
    Modify,
    Reconcile,
    Request,
    Reserve,
    Show,
    ShowStatus,
    ShowTimeline,
    Ticked,
)
from tests.simulation.dst.clockwork import Clockwork, Trace, Violation
from tests.simulation.dst.knobs import Knobs
from tests.simulation.dst.office import Office
from tests.simulation.dst.privacy import Privacy
from tests.simulation.dst.wire import image_of

PATIENCE_MS = 8_000
MOST_ATTEMPTS = 40
MARGIN_S = 400
"""What starts so long after the end of all trouble must be met: the longest wait before a retry
of a call that was lost, and the time of some transfers."""
ADMIN = Caller(uid=0, user="root", is_admin=True)
USERS = tuple(Caller(uid=1001 + number, user=f"user{number}") for number in range(3))


@dataclass(slots=True)
class Told:
    """What somebody was told about a reservation."""

    name: str
    caller: Caller
    start_s: int
    end_s: int
    at_s: int
    is_asked_to_end: bool = False
    """Whether a cancellation was ever on its way."""
    changes: int = 0
    """How many changes are on their way: until they are answered nobody knows what holds."""
    is_unsure: bool = False
    """Whether changes overtook each other, or were never answered."""
    may_yield: bool = False
    """Whether it may make way for others."""
    is_open: bool = False
    """Whether it waits, or waited, for an event."""


@dataclass(slots=True)
class Errand:
    """A request until it is answered."""

    caller: Caller
    request: Request
    attempts: int = 0
    ticket: int = 0
    is_over: bool = False
    then: Callable[[Answer], None] = lambda _: None


class People:
    """All users, and what they were told."""

    def __init__(self, clock: Clockwork, trace: Trace, random: Random, knobs: Knobs, office: Office) -> None:
        self._clock = clock
        self._trace = trace
        self._random = random
        self._knobs = knobs
        self._office = office
        self._tickets = 0
        self._keys = 0
        self._waiting: dict[int, Errand] = {}
        self._answers: dict[tuple[int, str], Decision] = {}
        self.told: dict[str, Told] = {}
        self.is_calm = False
        self.counts: dict[str, int] = {}
        office.replied = self._replied
        self.privacy = Privacy(0, knobs, is_wanted=False)

    def image(self, number: int) -> FoundImage:
        return image_of(self._knobs, number)

    def wanted(
        self,
        number: int,
        *,
        nodes: int,
        cpus: int,
        start_s: int,
        duration_s: int,
        finish_by_s: int | None = None,
    ) -> Reserve:
        image = self.image(number)
        section = ImageSection.model_construct(uri=f"http://site/image{number}", digest=None, format=None)
        deployment = DeploymentSection.model_construct(
            nodes=nodes, cpus=cpus, duration_s=duration_s, start_s=start_s, finish_by_s=finish_by_s
        )
        file = WorkspaceFile.model_construct(
            version=1,
            metadata=MetadataSection.model_construct(name=f"ws{number}", image=section),
            deployment=deployment,
        )
        return Reserve(workspace=file, image=image)

    def some_wish(self, *, ahead_s: int = 0) -> Reserve:
        """Something that may be possible, or not; now and then for a time when all is well again."""
        random, knobs = self._random, self._knobs
        if not self.is_calm and random.random() < 0.3:
            ahead_s = knobs.troubled_s - self._clock.now_ms // 1000 + MARGIN_S
        whole = not knobs.allows_parts or random.random() < 0.5
        start_s = self._office.now_s() + ahead_s + random.choice((0, 10, 40, 90, 180, 400))
        duration_s = random.choice((30, 60, 120, 300))
        may_float = random.random() < 0.15
        wanted = self.wanted(
            random.randrange(len(knobs.images)),
            nodes=random.randint(1, knobs.nodes),
            cpus=knobs.cpus if whole else random.randint(1, knobs.cpus),
            start_s=start_s,
            duration_s=duration_s,
            finish_by_s=start_s + duration_s + random.choice((100, 400)) if may_float else None,
        )
        return self.privacy.asked(wanted)

    def act(self) -> None:
        """Somebody does something."""
        random = self._random
        what = random.choice(
            ("reserve", "reserve", "again", "accept", "plan", "modify", "cancel", "look", "earliest", "look")
        )
        self.counts[what] = self.counts.get(what, 0) + 1
        caller = random.choice(USERS)
        if what == "reserve":
            self.send(caller, self.reserve(self.some_wish()))
        elif what == "again":
            self.send(caller, self.reserve(self.repeated(self.some_wish())))
        elif what == "accept":
            self.accept_offer(caller, self.some_wish())
        elif what == "plan":
            self.compare_plan(caller, self.some_wish())
        elif what == "earliest":
            self.try_earliest(caller, self.some_wish())
        elif what == "look":
            self.look(random.choice((*USERS, ADMIN)))
        elif self.told:
            told = self.told[random.choice(sorted(self.told))]
            if what == "cancel":
                if random.random() < 0.5:
                    told.is_asked_to_end = True
                    self.send(told.caller, Cancel(name=told.name, key=self._key()))
            else:
                self.modify(told)

    def reserve(self, wanted: Reserve) -> Reserve:
        key = self._key()
        return replace(wanted, key=key, request_hash=key)

    def repeated(self, wanted: Reserve) -> Reserve:
        """The same a few times, all or nothing or as a best fit."""
        deployment = wanted.workspace.deployment
        assert deployment is not None
        if deployment.finish_by_s is not None or deployment.start_s is None:
            return wanted
        step_s, first_s = deployment.duration_s + self._random.choice((0, 40, 200)), deployment.start_s
        starts = tuple(first_s + number * step_s for number in range(self._random.randint(2, 3)))
        return replace(wanted, starts=starts, is_best_fit=self._random.random() < 0.5)

    def accept_offer(self, caller: Caller, wanted: Reserve) -> None:
        """What is offered in the place of a refusal is accepted, at once or a while later."""
        (refused,) = self._at_once(caller, (self.reserve(wanted),))
        if not isinstance(refused, Decision) or refused.offers_until_s is None:
            return
        offer, key = self._random.choice(refused.offers), self._key()
        request = Accept(name=offer.name, key=key, request_hash=key)
        if self._random.random() < 0.5:
            self._clock.after(self._random.randrange(60_000), lambda: self.send(caller, request))
            return
        (answer,) = self._at_once(caller, (request,))
        if isinstance(answer, Decision):
            self._trace.note("offer accepted at once")
            if (answer.result, answer.start_s, answer.end_s) != ("accepted", offer.start_s, offer.end_s):
                raise Violation(f"{offer} was answered {answer}")

    def modify(self, told: Told) -> None:
        random = self._random
        key = self._key()
        request = Modify(
            name=told.name,
            start_s=random.choice((None, None, told.start_s + random.choice((-60, 60, 200)))),
            duration_s=random.choice((None, 60, 240)),
            nodes=random.choice((None, None, random.randint(1, self._knobs.nodes))),
            is_plan=random.random() < 0.2,
            key=key,
            request_hash=key,
        )
        if not request.is_plan:
            told.changes += 1
            told.is_unsure = told.is_unsure or told.changes > 1
        self.send(told.caller, request)

    def look(self, caller: Caller) -> None:
        """Whatever can be looked at must be answered, and change nothing."""
        random = self._random
        name = random.choice([*sorted(self.told), "nothing-1", "ws0"])
        now_s = self._office.now_s()
        requests: tuple[Request, ...] = (
            Show(name=name),
            Explain(name=name),
            ListReservations(is_past=random.random() < 0.5),
            ListImages(),
            ListNodes(),
            ListTransfers(),
            ShowTimeline(from_s=now_s, until_s=now_s + 600),
            ShowStatus(),
            ListDecisions(after=0, most=5),
            Reconcile(),
        )
        self.send(caller, random.choice(requests))

    def compare_plan(self, caller: Caller, wanted: Reserve) -> None:
        """A plan, and at the same instant the same reservation, are answered alike."""
        plan, reserved = self._at_once(caller, (replace(wanted, is_plan=True), self.reserve(wanted)))
        if isinstance(plan, Decision) and isinstance(reserved, Decision):
            self._trace.note("plan and reservation compared")
            untold = tuple(replace(each, name="") for each in reserved.offers)
            unheld = replace(reserved, offers=untold, offers_until_s=None, are_offers_protected=False)
            if plan != replace(unheld, name=""):
                raise Violation(f"a plan was answered {plan}, and the reservation {reserved}")

    def try_earliest(self, caller: Caller, wanted: Reserve) -> None:
        """The earliest start that a refusal names would be accepted at once."""
        (refused,) = self._at_once(caller, (self.reserve(wanted),))
        if not isinstance(refused, Decision) or refused.earliest_start_s is None:
            return
        deployment = wanted.workspace.deployment
        assert deployment is not None
        later = replace(
            wanted,
            workspace=wanted.workspace.model_copy(
                update={
                    "deployment": deployment.model_copy(
                        update={"start_s": refused.earliest_start_s, "finish_by_s": None}
                    )
                }
            ),
        )
        (answer,) = self._at_once(caller, (self.reserve(later),))
        if isinstance(answer, Decision):
            self._trace.note("earliest start tried")
            if answer.result != "accepted":
                raise Violation(f"refused with start {refused.earliest_start_s}, which is refused: {answer}")

    def _at_once(self, caller: Caller, requests: tuple[Request, ...]) -> list[Answer | None]:
        """Ask one after the other, with nothing in between; None where nothing came back."""
        self._office.handle(Ticked(), "tick before questions")
        found: list[Answer | None] = []
        for request in requests:
            errand = Errand(caller=caller, request=request, attempts=MOST_ATTEMPTS)
            answers: list[Answer] = []
            errand.then = answers.append
            self._ask(errand)
            self._office.go_on_until(lambda: bool(answers))  # noqa: B023 - it is called at once
            found.append(answers[0] if answers else None)
            if not answers:
                # It may have been carried out: what comes of it is learnt by asking again.
                errand.attempts = 0
                self._retry(errand)
        if self._office.desk is None:
            return [None for _ in requests]
        return found

    def send(self, caller: Caller, request: Request, then: Callable[[Answer], None] = lambda _: None) -> None:
        """`then` hears the answer, when there is one."""
        self._ask(Errand(caller=caller, request=request, then=then))

    def _key(self) -> str:
        self._keys += 1
        return f"key{self._keys}"

    def _ask(self, errand: Errand) -> None:
        self._tickets += 1
        errand.ticket = self._tickets
        errand.attempts += 1
        self._waiting[errand.ticket] = errand
        ticket = errand.ticket
        if not self.is_calm and self._random.random() < self._knobs.request_loss:
            self._trace.note(f"request {ticket} is lost")
        else:
            self._office.ask(Asked(ticket=ticket, caller=errand.caller, request=errand.request))
        if not errand.is_over:
            self._clock.after(PATIENCE_MS, lambda: self._give_up(errand, ticket))

    def _give_up(self, errand: Errand, ticket: int) -> None:
        self._waiting.pop(ticket, None)
        if not errand.is_over and errand.ticket == ticket:
            self._retry(errand)

    def _retry(self, errand: Errand) -> None:
        if errand.attempts < MOST_ATTEMPTS:
            self._clock.after(1000 + self._random.randrange(5000), lambda: self._ask(errand))

    def _replied(self, replied: Replied) -> None:
        """An answer leaves the service: whatever it says holds from now on."""
        errand = self._waiting.pop(replied.ticket, None)
        if errand is None or errand.is_over:
            return
        answer = replied.answer
        self._believe(errand, answer)
        if not self.is_calm and self._random.random() < self._knobs.request_loss:
            self._trace.note(f"reply {replied.ticket} is lost")
            return
        if isinstance(answer, Trouble) and answer.code in ("unavailable", "busy"):
            self._retry(errand)
            return
        errand.is_over = True
        if isinstance(errand.request, Modify) and not errand.request.is_plan:
            self.told[errand.request.name].changes -= 1
        errand.then(answer)

    def _believe(self, errand: Errand, answer: Answer) -> None:
        request = errand.request
        if isinstance(answer, Trouble):
            if answer.code == "invalid" and isinstance(request, Reserve):
                raise Violation(f"a request that is valid is not: {answer.message}")
            if answer.code == "not-found" and isinstance(request, Show) and request.name in self.told:
                raise Violation(f"{request.name} was promised, and {answer.message}")
            return
        if isinstance(request, (Accept, Reserve, Modify)) and isinstance(answer, Decision):
            if not isinstance(request, Accept) and request.is_plan:
                return
            key = (errand.caller.uid, request.key)
            before = self._answers.setdefault(key, answer)
            if before != answer:
                raise Violation(f"key {request.key} was answered {before}, and then {answer}")
            if answer.result == "accepted":
                self._promised(errand.caller, request, answer, is_new=before is answer)
        elif isinstance(request, Cancel) and isinstance(answer, ReservationDetails):
            state = answer.reservation.state
            if state not in ("cancelled", "ended", "failed"):
                raise Violation(f"{request.name} was cancelled and is {state}")

    def _promised(
        self, caller: Caller, request: Accept | Reserve | Modify, answer: Decision, *, is_new: bool
    ) -> None:
        assert answer.start_s is not None
        assert answer.end_s is not None
        if not is_new:
            return
        for name, start_s, end_s in [
            (each.name, each.start_s, each.end_s) for each in answer.occurrences if each.name
        ] or [(answer.name, answer.start_s, answer.end_s)]:
            before = self.told.get(name)
            if not isinstance(request, Modify) and before is not None:
                raise Violation(f"the name {name} is given twice")
            if before is None:
                at_s = self._clock.now_s()
                told = Told(name=name, caller=caller, start_s=start_s, end_s=end_s, at_s=at_s)
                told.may_yield, told.is_open = _may_yield(request), answer.window is not None
                self.told[name] = told
            else:
                before.start_s, before.end_s = start_s, end_s


def _may_yield(request: Accept | Reserve | Modify) -> bool:
    deployment = request.workspace.deployment if isinstance(request, Reserve) else None
    return deployment is not None and deployment.preemptible is True
