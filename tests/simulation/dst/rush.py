"""A rush for the link when all is well: jobs and a reservation want an image that nobody has yet.

By then every node has most of the other images, and nothing would be in anybody's way.
"""

from __future__ import annotations

from random import Random

from tests.simulation.dst.clockwork import Clockwork
from tests.simulation.dst.jobs import Jobs
from tests.simulation.dst.knobs import Knobs
from tests.simulation.dst.people import MARGIN_S, USERS, People

SPARE_S = (2, 5, 10, 30)
"""How much later than with the whole link its image could be there the reservation begins."""


class Rush:
    """In every second world."""

    def __init__(self, clock: Clockwork, seed: int, knobs: Knobs, jobs: Jobs, people: People) -> None:
        self._clock = clock
        self._random = Random(seed * 7919 + 2)
        self._knobs = knobs
        self._jobs = jobs
        self._people = people

    def plan(self) -> None:
        """Choose when: jobs first, and the reservation when their images are on their way."""
        random, knobs = self._random, self._knobs
        if random.random() < 0.5:
            return
        at_ms = (knobs.troubled_s + MARGIN_S + random.randrange(200)) * 1000
        number = len(knobs.images)
        for _ in range(random.choice((1, 2, 4))):
            self._jobs.submit_at(at_ms + random.randrange(5_000), number)
        at_ms += (knobs.settings.look_every_s + random.randrange(20)) * 1000
        self._clock.after(at_ms, lambda: self._reserve(number + random.randrange(2)))

    def _reserve(self, number: int) -> None:
        random, settings = self._random, self._knobs.settings
        nodes = random.randint(1, min(3, self._knobs.nodes))
        copies = 1 if settings.shipping == "relay" else nodes
        image_s = self._people.image(number).size_bytes // settings.link_rate_bytes_per_s
        whole_s = copies * (image_s + settings.spread_s)
        wish = self._people.wanted(
            number,
            nodes=nodes,
            cpus=1 if self._knobs.allows_parts else self._knobs.cpus,
            start_s=self._clock.now_s() + whole_s + random.choice(SPARE_S),
            duration_s=60,
        )
        self._people.send(random.choice(USERS), self._people.reserve(wish))
