"""TSRA and MEO-TSRA: at each interval, which requests are served, by which option, where (Algorithms 1 to 3).

The paper's schemes give a request its place once and never move it. `plan` beside this has the one that does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from outrider.core.model import Node
from outrider.core.options.machines import Machines, Mapping, Places
from outrider.core.options.priority import FactorReading, Kinds, PlanOrder, weight
from outrider.core.options.request import Option, Request, scaling_factor


class Scheme(Enum):
    """Who chooses the options, and how."""

    FIRST = "first"
    """TSRA with the first option, which takes least."""
    LAST = "last"
    """TSRA with the last option, which is fastest."""
    GREEDY_FIRST = "greedy-first"
    """Algorithm 2 from the first option on."""
    GREEDY_LAST = "greedy-last"
    """Algorithm 2 from the last option on."""
    ADAPTIVE = "adaptive"
    """Algorithm 3: first options, then as many steps up as there is room for, the best first."""
    ADAPTIVE_FALLBACK = "adaptive-fallback"
    """The same; whose first option has no place gets the next one that has."""
    PLAN = "plan"
    """Everybody gets the earliest place that is in time, and another one if that makes room for others."""
    PLAN_SCALED = "plan-scaled"
    """The same; who begins now goes up as in MEO-Adaptive, as far as nobody's place is touched."""


class Starts(Enum):
    """When a request that the paper's schemes choose may start."""

    BOUNDARY = "boundary"
    """At the beginning of the interval, or it waits for the next."""
    PLANNED = "planned"
    """At any later instant that is in time: its place is kept until then."""


class Replanning(Enum):
    """When a plan is made anew."""

    REFUSED = "refused"
    """If a new request has no place in it; kept if more is served so."""
    ALWAYS = "always"
    """At every interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """A scheme, and how what the paper leaves open is read."""

    scheme: Scheme
    reading: FactorReading = FactorReading.PRINTED
    starts: Starts = Starts.BOUNDARY
    mapping: Mapping = Mapping.NEAREST
    is_bundled: bool = False
    order: PlanOrder = PlanOrder.FACTOR
    replanning: Replanning = Replanning.REFUSED


@dataclass(slots=True)
class WaitingRequest:
    """A request that is not served yet, with what is asked of it often."""

    request: Request
    needs: tuple[tuple[int, int, int], ...]
    """Of each option that the site could ever run: amount of one piece, pieces, duration."""
    indices: tuple[int, ...]
    """Which options of the request these are."""
    weight: float
    plan: Service | None = None

    @property
    def last_start_s(self) -> int:
        return self.request.finish_by_s - min((each[2] for each in self.needs), default=1 << 62)


@dataclass(slots=True)
class Service:
    """A request that is served: by which option, where, and when."""

    waiting: WaitingRequest
    which: int
    """Among `waiting.needs`."""
    start_s: int
    end_s: int
    places: Places

    @property
    def request(self) -> Request:
        return self.waiting.request

    @property
    def index(self) -> int:
        """Which of the request's options."""
        return self.waiting.indices[self.which]

    @property
    def option(self) -> Option:
        return self.request.options[self.index]


@dataclass(slots=True)
class ProvisioningOutcome:
    """What has become of the requests so far."""

    served: list[Service]
    discarded: list[Request]


class Provisioner:
    """What all schemes have in common: requests that wait, and the machines."""

    def __init__(self, nodes: Sequence[Node], rules: Rules) -> None:
        self.rules = rules
        self.machines = Machines(nodes, mapping=rules.mapping, is_bundled=rules.is_bundled)
        self.kinds = Kinds([node.capacity for node in nodes])
        self.waiting: list[WaitingRequest] = []
        self.outcome = ProvisioningOutcome(served=[], discarded=[])

    def step(self, now_s: int, arrived: Sequence[Request]) -> None:
        """An interval begins: those who have arrived and those who wait are looked at."""
        self.machines.pass_until(now_s)
        self.waiting += [self.enter(request) for request in arrived]
        self._discard_late(now_s)
        self._serve(now_s)

    def finish(self) -> None:
        """No interval follows: what has a place by then is served."""

    def _serve(self, now_s: int) -> None:
        raise NotImplementedError

    def options_of(self, request: Request) -> Sequence[int]:
        """Which options the scheme looks at, in its order."""
        return range(len(request.options))

    def enter(self, request: Request) -> WaitingRequest:
        """What is asked of a request often."""
        scheme = self.rules.scheme
        needs, indices = [], []
        for index in self.options_of(request):
            option = request.options[index]
            need, count = self.machines.layout.pack(option.resources), option.instances
            if self.rules.is_bundled:
                need, count = need * count, 1
            if self.machines.could_ever(need, count):
                needs.append((need, count, option.duration_s))
                indices.append(index)
        is_meo = scheme not in (Scheme.FIRST, Scheme.LAST)
        asked = request if is_meo else request.only(-1 if scheme is Scheme.LAST else 0)
        if scheme in (Scheme.PLAN, Scheme.PLAN_SCALED):
            asked, is_meo = request.only(0), False
        factor = weight(asked, self.kinds, self.rules.reading, is_meo=is_meo)
        return WaitingRequest(request=request, needs=tuple(needs), indices=tuple(indices), weight=factor)

    def _discard_late(self, now_s: int) -> None:
        kept = []
        for each in self.waiting:
            if each.plan is not None or each.last_start_s >= now_s:
                kept.append(each)
            else:
                self.outcome.discarded.append(each.request)
        self.waiting = kept

    def take(self, service: Service) -> None:
        self.machines.take(
            service.waiting.needs[service.which][0], service.places, service.start_s, service.end_s
        )

    def give_back(self, service: Service) -> None:
        need = service.waiting.needs[service.which][0]
        self.machines.give_back(need, service.places, service.start_s, service.end_s)

    def scale_up(self, served: list[Service]) -> None:
        """Algorithm 3, ScaleUp: the request whose next option saves most for what it adds gets it, if it can
        begin at the same instant; else it stays as it is."""
        open_to_more = [each for each in served if each.which + 1 < len(each.waiting.needs)]
        while open_to_more:
            best = max(open_to_more, key=self._gain)
            if not self._step_up(best) or best.which + 1 == len(best.waiting.needs):
                open_to_more.remove(best)

    def _gain(self, service: Service) -> float:
        options = service.request.options
        after = options[service.waiting.indices[service.which + 1]]
        return scaling_factor(service.option, after, self.kinds.names)

    def _step_up(self, service: Service) -> bool:
        self.give_back(service)
        need, count, duration_s = service.waiting.needs[service.which + 1]
        end_s = service.start_s + duration_s
        places = None
        if end_s <= service.request.finish_by_s:
            places = self.machines.place(need, count, service.start_s, end_s)
        if places is not None:
            service.which, service.places, service.end_s = service.which + 1, places, end_s
        self.take(service)
        return places is not None


class Listed(Provisioner):
    """The paper's schemes: by priority, each gets what the scheme finds for it, or waits."""

    def __init__(self, nodes: Sequence[Node], rules: Rules) -> None:
        super().__init__(nodes, rules)
        self._full: dict[int, int] = {}

    def options_of(self, request: Request) -> Sequence[int]:
        last = len(request.options) - 1
        match self.rules.scheme:
            case Scheme.FIRST:
                return (0,)
            case Scheme.LAST:
                return (last,)
            case Scheme.GREEDY_LAST:
                return range(last, -1, -1)
            case _:
                return range(last + 1)

    def priorities(self, now_s: int) -> list[WaitingRequest]:
        """Those that wait, the highest factor first, then by arrival."""

        def key(each: WaitingRequest) -> tuple[float, int]:
            return -each.weight / max(1, each.request.finish_by_s - now_s), each.request.arrival_s

        return sorted(self.waiting, key=key)

    def _serve(self, now_s: int) -> None:
        self._full = {}
        self.machines.forget_failures()
        looks_at = 1 if self.rules.scheme is Scheme.ADAPTIVE else None
        served, left = [], []
        for each in self.priorities(now_s):
            found = None
            for which in range(len(each.needs))[:looks_at]:
                found = self._find(each, which, now_s)
                if found is not None:
                    break
            if found is None:
                left.append(each)
            else:
                self.take(found)
                served.append(found)
        self.waiting = left
        if self.rules.scheme in (Scheme.ADAPTIVE, Scheme.ADAPTIVE_FALLBACK):
            self.scale_up(served)
        self.outcome.served += served

    def _discard_late(self, now_s: int) -> None:
        if self.rules.scheme is Scheme.ADAPTIVE:
            # It only ever begins with the first option.
            late = [
                each
                for each in self.waiting
                if not each.needs or each.indices[0] != 0 or _is_late(each, now_s)
            ]
            self.outcome.discarded += [each.request for each in late]
            gone = set(map(id, late))
            self.waiting = [each for each in self.waiting if id(each) not in gone]
            return
        super()._discard_late(now_s)

    def _find(self, each: WaitingRequest, which: int, now_s: int) -> Service | None:
        need, count, duration_s = each.needs[which]
        last_s = each.request.finish_by_s - duration_s
        if last_s < now_s:
            return None
        if self.rules.starts is Starts.PLANNED:
            place = self.machines.earliest(need, count, duration_s, now_s, last_s)
            if place is None:
                return None
            return Service(each, which, place[0], place[0] + duration_s, place[1])
        # Nothing begins later than now, so who has room now has it for as long as he wants.
        if count >= self._full.get(need, count + 1):
            return None
        places = self.machines.place(need, count, now_s, now_s + duration_s)
        if places is None:
            self._full[need] = count
            return None
        return Service(each, which, now_s, now_s + duration_s, places)


def _is_late(each: WaitingRequest, now_s: int) -> bool:
    return each.request.finish_by_s - each.needs[0][2] < now_s
