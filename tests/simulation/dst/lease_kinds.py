"""Leases of all kinds beside plain reservations: open for an event, with unlike roles, in pieces, with
options, and such as may yield to others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC
from random import Random

from outrider.metadata.policies import parse_policies
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import parse_workspace
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Answer
from outrider.service.ports import FoundImage
from outrider.service.requests import Caller, Reserve, Trigger
from tests.simulation.dst.clockwork import Clockwork
from tests.simulation.dst.knobs import Knobs
from tests.simulation.dst.office import Office
from tests.simulation.dst.people import MARGIN_S, USERS, People, Told

YIELDING = parse_policies(
    b"version: 1\nrules: [{name: all}]\nleases: {preemption: {}}\n", file="policies.yaml"
).leases
"""What lets leases that may yield do so."""
CALM_REQUESTS = 3
CHANGED_SHARE = 0.3


class LeaseKinds:
    """Requests for them, at random instants: most while there is trouble, some when all is calm."""

    def __init__(self, clock: Clockwork, seed: int, knobs: Knobs, office: Office, people: People) -> None:
        self._clock = clock
        self._random = Random(seed * 49_979_687 + 3)
        self._knobs = knobs
        self._office = office
        self._people = people
        self._ways: tuple[Callable[[int], str], ...] = (
            self._open,
            self._in_pieces,
            self._with_options,
            self._yielding,
            self._yielding,
        )

    def plan(self) -> None:
        """Choose when somebody asks."""
        random, knobs = self._random, self._knobs
        for _ in range(2 + knobs.requests // 3):
            self._clock.after(random.randrange(knobs.troubled_s * 1000), lambda: self._reserve(0))
        for _ in range(CALM_REQUESTS):
            at_ms = knobs.troubled_s * 1000 + random.randrange(60_000)
            self._clock.after(at_ms, lambda: self._reserve(MARGIN_S + 300))

    def _reserve(self, ahead_s: int) -> None:
        random = self._random
        caller = random.choice(USERS)
        request = self._with_roles(ahead_s) if random.random() < 0.2 else self._of_one_image(ahead_s)
        self._people.send(caller, self._people.reserve(request), self._answered)

    def _answered(self, answer: Answer) -> None:
        """What was accepted is changed now and then, and the event comes for which it waits."""
        if isinstance(answer, Decision) and answer.result == "accepted":
            for name in [each.name for each in answer.occurrences if each.name] or [answer.name]:
                self._go_on(self._people.told[name])

    def _go_on(self, told: Told) -> None:
        random = self._random
        if not told.is_open:
            if random.random() < CHANGED_SHARE:
                self._clock.after(random.randrange(90_000), lambda: self._people.modify(told))
            return
        if random.random() < 0.8:
            in_s = told.start_s - self._office.now_s() + random.randrange(max(1, told.end_s - told.start_s))
            self._clock.after(max(0, in_s) * 1000, lambda: self._trigger(told.caller, told.name))

    def _trigger(self, caller: Caller, name: str) -> None:
        self._people.send(caller, Trigger(name=name))
        if self._random.random() < 0.3:
            in_ms = self._random.randrange(200_000)
            self._clock.after(in_ms, lambda: self._people.send(caller, Trigger(name=name, is_end=True)))

    def _of_one_image(self, ahead_s: int) -> Reserve:
        random, knobs = self._random, self._knobs
        number, way = random.randrange(len(knobs.images)), random.choice(self._ways)
        ahead_s += random.choice((0, 40, 90, 180, 400))
        whole = not knobs.allows_parts or random.random() < 0.5
        cpus = knobs.cpus if whole else random.randint(1, knobs.cpus)
        text = (
            f"version: 1\nmetadata: {{name: ws{number}, image: {{uri: 'http://site/image{number}'}}}}\n"
            f"deployment: {{nodes: {self._some_nodes()}, cpus: {cpus}, {way(ahead_s)}}}\n"
        )
        request = self._read(text, number)
        deployment = request.workspace.deployment
        assert deployment is not None
        images = tuple(
            None if each.image is None else self._found(each.image.uri) for each in deployment.options
        )
        return self._people.privacy.asked(replace(request, option_images=images))

    def _with_roles(self, ahead_s: int) -> Reserve:
        """A head and one or two workers, which have an image of their own or the head's."""
        random, knobs = self._random, self._knobs
        number, other = random.randrange(len(knobs.images)), random.randrange(len(knobs.images))
        workers = random.randint(1, min(2, knobs.nodes - 1))
        own = f"image: {{uri: 'http://site/image{other}'}}, " if random.random() < 0.7 else ""
        text = (
            f"version: 1\nmetadata:\n  name: ws{number}\n  image: {{uri: 'http://site/image{number}'}}\n"
            f"  roles:\n    - {{name: worker, hosts: 'w[1-{workers}]', {own}cpus: 1}}\n"
            f"    - {{name: head, hosts: h1, cpus: {knobs.cpus}}}\n"
            f"deployment: {{nodes: {workers + 1}, duration: {self._some_time()}, "
            f"start: now+{ahead_s + random.choice((10, 40, 90, 180, 400))}s}}\n"
        )
        request = self._read(text, number)
        images = (self._people.image(other) if own else None, None)
        return self._people.privacy.asked(replace(request, role_images=images))

    def _read(self, text: str, number: int) -> Reserve:
        circumstances = Circumstances(now_s=self._office.now_s(), zone=UTC)
        file = parse_workspace(text.encode(), circumstances, file="ws.yaml")
        return Reserve(workspace=file, image=self._people.image(number))

    def _found(self, uri: str) -> FoundImage:
        return self._people.image(int(uri.rpartition("image")[2]))

    def _open(self, ahead_s: int) -> str:
        random = self._random
        window_s = random.choice((100, 300, 600))
        when = f", when_time: now+{ahead_s + window_s // 2}s" if random.random() < 0.3 else ""
        return (
            f"duration: {self._some_time()}, open_from: now+{ahead_s}s, "
            f"open_until: now+{ahead_s + window_s}s, ready_within: {random.choice((60, 90, 150))}s{when}"
        )

    def _in_pieces(self, ahead_s: int) -> str:
        duration_s = self._random.choice((120, 240))
        last_s = ahead_s + duration_s + self._random.choice((100, 400, 800))
        return f"duration: {duration_s}s, start: now+{ahead_s}s, finish_by: now+{last_s}s, least_piece: 60s"

    def _with_options(self, ahead_s: int) -> str:
        random = self._random
        other = random.randrange(len(self._knobs.images))
        image = f", image: {{uri: 'http://site/image{other}'}}" if random.random() < 0.4 else ""
        ways = f"{{nodes: 1, duration: 300s}}, {{nodes: {self._some_nodes()}, duration: 60s{image}}}"
        last_s = ahead_s + 300 + random.choice((60, 300))
        return f"duration: 300s, start: now+{ahead_s}s, finish_by: now+{last_s}s, options: [{ways}]"

    def _yielding(self, ahead_s: int) -> str:
        return f"duration: {self._some_time()}, start: now+{ahead_s}s, preemptible: true"

    def _some_nodes(self) -> int:
        return self._random.randint(1, self._knobs.nodes)

    def _some_time(self) -> str:
        return f"{self._random.choice((30, 60, 120, 300))}s"
