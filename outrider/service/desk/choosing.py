"""Nodes chosen for jobs, and the copies that are kept for them there: taken, renewed and given back."""

from __future__ import annotations

from dataclasses import replace

from outrider.core.busy import Busy, Taken
from outrider.core.leading import NoWay, Way, Wish, can_keep, hold, lead, let_go
from outrider.core.timeline import FOREVER, mask_of
from outrider.rms.base import RmsJob, Sight
from outrider.service.desk.hauling import Hauling
from outrider.service.desk.led import Led, Stage
from outrider.service.desk.occupancy import busy_of, packed
from outrider.service.desk.site import Site
from outrider.service.meter import Log

DAY_S = 86_400
UNLIMITED_S = 7 * DAY_S
"""A job without a limit is taken to run so long, as far as pools are concerned."""
RENEW_S = 600
"""So much longer than it has to a pool keeps an image, so that this need not be said at each look."""
BETTER_S = 60
"""Other nodes are worth a transfer if a job starts there earlier by more than this."""


class Choosing:
    """Chooses for one job at a time, with all that was chosen before in mind."""

    def __init__(self, site: Site, hauling: Hauling, log: Log) -> None:
        self._site = site
        self._hauling = hauling
        self._log = log
        self._busy: Busy | None = None
        self._masks: dict[int, tuple[tuple[str, ...], int]] = {}
        """By its identity, a list of names that many jobs share, and its mask, until the next look."""

    def look(self, sight: Sight) -> None:
        """What nodes do has been seen anew."""
        self._busy = busy_of(self._site, sight)
        self._masks.clear()

    def choose(self, led: Led) -> bool:
        """Find nodes for a job, and have its image brought there. If there are none it says why."""
        site, wish = self._site, self._wish(led)
        if isinstance(wish, str):
            led.stage, led.words = Stage.WAITING, wish
            return False
        way = self._way(wish)
        if isinstance(way, NoWay):
            led.stage, led.words = Stage.WAITING, way.words
            return False
        led.stage, led.words = Stage.STAGING, ""
        self._take(led, wish, way)
        self._log.info(
            "job is led",
            job=led.key,
            node=",".join(site.book.timeline.nodes[node].name for node in way.nodes[:8]),
            image=wish.image.uri,
            transfers=len(way.missing),
            ready_s=way.ready_s,
        )
        return True

    def improve(self, led: Led) -> bool:
        """Bring a waiting job's image to other nodes, too, if it would start there much earlier."""
        site, busy, wish = self._site, self._busy, self._wish(led)
        if busy is None or isinstance(wish, str):
            return False
        here = self._expected(led, wish)
        led.start_s = here
        if here is None or here <= site.now_s + BETTER_S:
            return False
        way = self._way(wish)
        if isinstance(way, NoWay) or way.start_s + BETTER_S >= here or not set(way.nodes) - set(led.copies):
            return False
        if len(led.copies) + len(way.missing) > led.job.nodes_wanted + site.settings.most_copies:
            return False
        self._take(led, wish, way)
        self._log.info("job is led to other nodes, too", job=led.key, earlier_s=here - way.start_s)
        return True

    def stand(self, led: Led) -> None:
        """Count a job that was led somewhere as being there, for those that are chosen for later."""
        wish = self._wish(led)
        if self._busy is None or isinstance(wish, str) or not led.copies:
            return
        start_s = self._expected(led, wish)
        if start_s is not None:
            led.start_s = start_s
            nodes = sorted(
                led.copies, key=lambda node: (self._free_s(wish, node, led.copies[node].ready_s), node)
            )
            self._stand_on(wish, nodes[: wish.nodes_wanted], start_s)

    def renew(self, led: Led) -> list[int]:
        """Keep what a job waits with until it would be over; the nodes whose pools have no room for that."""
        site, wish = self._site, self._wish(led)
        if isinstance(wish, str):
            return []
        start_s = max(site.now_s, led.start_s or 0)
        until_s = start_s + wish.limit_s + wish.grace_s
        if until_s <= led.until_s:
            return []
        until_s += RENEW_S
        full = [
            node
            for node, life in led.copies.items()
            if not can_keep(site.book, node, life, until_s, site.now_s)
        ]
        led.until_s = until_s
        for node, life in led.copies.items():
            if node not in full:
                site.book.pools.set_user(node, life, led.owner, until_s)
                self._hauling.place(led, node, life)
        return full

    def start(self, led: Led, job: RmsJob) -> None:
        """A job runs: what it has is kept by its instances from now on, and counted until its limit."""
        site = self._site
        limit_s = UNLIMITED_S if job.limit_s is None else job.limit_s
        start_s = site.now_s if job.start_s is None else job.start_s
        led.until_s = max(start_s + limit_s, site.now_s) + site.settings.grace_s
        names = site.book.timeline.nodes
        for node, life in list(led.copies.items()):
            if names[node].name not in job.nodes:
                self.drop(led, node)
                continue
            self._hauling.part(led, node, is_stopped=False)
            if led.owner in life.users:
                site.book.pools.set_user(node, life, led.owner, led.until_s)

    def drop(self, led: Led, node: int) -> None:
        """A job does not count on a copy any more."""
        life = led.copies.pop(node)
        led.ready.discard(node)
        cargo = (
            self._hauling.lane.find(life.transfer)
            if life.transfer is not None and life.transfer < 0
            else None
        )
        is_unwanted = let_go(self._site.book, self._hauling.lane, led.owner, node, life, self._site.now_s)
        self._hauling.part(led, node, is_stopped=is_unwanted)
        if cargo is not None:
            self._hauling.left(cargo)

    def drop_all(self, led: Led) -> None:
        for node in list(led.copies):
            self.drop(led, node)

    def _take(self, led: Led, wish: Wish, way: Way) -> None:
        site = self._site
        # What it has already is kept as it is, and renewed with the rest.
        way = replace(way, lives=tuple(each for each in way.lives if each[0] not in led.copies))
        held = hold(site.book, self._hauling.lane, wish, way, site.now_s)
        led.until_s = max(led.until_s, way.until_s)
        led.ready_s, led.start_s = way.ready_s, way.start_s
        led.copies |= held
        for node, life in held.items():
            self._hauling.join(led, node, life)
        self._stand_on(wish, way.nodes[: wish.nodes_wanted], way.start_s)

    def _stand_on(self, wish: Wish, nodes: list[int] | tuple[int, ...], start_s: int) -> None:
        assert self._busy is not None
        for node in nodes:
            end_s = start_s + wish.limit_s
            self._busy.take(Taken(node=node, start_s=start_s, end_s=end_s, amount=wish.need))

    def _way(self, wish: Wish) -> Way | NoWay:
        site = self._site
        if self._busy is None:
            return NoWay(words="the batch system has not been seen yet")
        return lead(
            site.book,
            self._hauling.lane,
            self._hauling.slots(),
            self._busy,
            wish,
            site.now_s,
            carried=frozenset(site.moving),
        )

    def _expected(self, led: Led, wish: Wish) -> int | None:
        """When a job would start on the nodes that it was led to; None if never."""
        available = self._site.book.available
        starts = sorted(
            self._free_s(wish, node, life.ready_s)
            for node, life in led.copies.items()
            if available >> node & 1
        )
        if len(starts) < wish.nodes_wanted or starts[wish.nodes_wanted - 1] == FOREVER:
            return None
        return starts[wish.nodes_wanted - 1]

    def _free_s(self, wish: Wish, node: int, there_s: int) -> int:
        assert self._busy is not None
        return self._busy.free_from(node, wish.need, max(there_s, self._site.now_s), wish.limit_s)

    def _mask(self, names: tuple[str, ...]) -> int:
        """The nodes of these names. Thousands of jobs may share a list of thousands of names."""
        found = self._masks.get(id(names))
        if found is None:
            timeline = self._site.book.timeline
            nodes = [timeline.number_of[name] for name in names if name in timeline.number_of]
            # With the names, lest another list be taken for this one.
            found = self._masks[id(names)] = names, mask_of(nodes, len(timeline.nodes))
        return found[1]

    def _wish(self, led: Led) -> Wish | str:
        """What the core is asked; in words why it need not be."""
        site, job, image = self._site, led.job, led.image
        assert image is not None
        timeline = site.book.timeline
        need = packed(site, job.resources)
        if need is None:
            return f"no node has {job.resources}"
        eligible = timeline.everyone
        if job.eligible:
            eligible = self._mask(job.eligible)
        for node, until_s in led.bad.items():
            if until_s > site.now_s:
                eligible &= ~(1 << node)
        most = max(job.nodes_wanted, site.settings.most_copies)
        return Wish(
            name=led.owner,
            image=image.image,
            nodes_wanted=job.nodes_wanted,
            copies=max(job.nodes_wanted, min(job.tasks * job.nodes_wanted, most)),
            spares=most,
            need=need,
            limit_s=UNLIMITED_S if job.limit_s is None else job.limit_s,
            grace_s=site.settings.grace_s,
            eligible=eligible,
        )
