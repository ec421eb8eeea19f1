"""Nodes chosen for jobs, and the copies that are kept for them there: taken, renewed and given back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from operator import and_

from outrider.core.besteffort.jobs.further import hold_further
from outrider.core.besteffort.jobs.own_room import drop_copy, keep_own_room
from outrider.core.besteffort.jobs.placement import (
    JobPlacement,
    NoPlacement,
    PlacementRequest,
    can_keep,
    hold,
    let_go,
    place_job,
)
from outrider.core.besteffort.jobs.schedule import JobPlace, ScheduledJob
from outrider.core.model import Resources
from outrider.core.nodes.forecast import BusyForecast, Taken
from outrider.core.nodes.node_timeline import FOREVER
from outrider.core.nodes.timeline import mask_of
from outrider.core.nodes.together import earliest_together
from outrider.core.reservations.refusal import size
from outrider.rms.base import RmsJob, Sight
from outrider.service.desk.jobs.job import JobEntry, Stage
from outrider.service.desk.jobs.transfers import BestEffortTransfers
from outrider.service.desk.nodes.occupancy import Occupancy, packed
from outrider.service.desk.state.site import Site
from outrider.service.meter import Log
from outrider.service.ports import FoundImage

DAY_S = 86_400
UNLIMITED_S = 7 * DAY_S
"""A job without a limit is taken to run so long, as far as pools are concerned."""
RENEW_S = 600
"""So much longer than it has to a pool keeps an image, so that this need not be said at each look."""
CLAIM_S = 15
"""So long after a job has been seen to run its nodes keep what its prologs may still ask for."""
BETTER_S = 60
"""Other nodes are worth any transfer if a job starts there earlier by more than this."""


class JobPlacer:
    """Chooses for one job at a time, with all that was chosen before in mind."""

    def __init__(self, site: Site, best_effort: BestEffortTransfers, log: Log) -> None:
        self._site = site
        self._best_effort = best_effort
        self._log = log
        self._occupancy = Occupancy(site)
        self._busy: BusyForecast | None = None
        """None before the first look."""
        self._put_off: Sight | None = None
        """The last look, if nobody has wanted to know since what nodes do."""
        self._masks: dict[int, tuple[tuple[str, ...], int]] = {}
        """By its identity, a list of names that many jobs share, and its mask."""
        self._masks_before: dict[int, tuple[tuple[str, ...], int]] = {}
        """Those that were asked for before the last look: the others are forgotten."""
        self._wishes: dict[str, tuple[RmsJob, FoundImage, tuple[str, ...], PlacementRequest]] = {}
        self._failures: dict[PlacementRequest, NoPlacement] = {}
        self.searches = 0
        """How often nodes were searched for."""

    @property
    def forecast(self) -> BusyForecast:
        """What is taken of nodes, as far as it is known."""
        if self._put_off is not None:
            self.look(self._put_off)
        return self._occupancy.busy

    def put_off(self, sight: Sight) -> None:
        """What nodes do has been seen anew, and there is no job to find nodes for: with thousands of
        reservations a service begins sooner if nobody works out when their nodes are busy."""
        self._put_off = sight

    def look(self, sight: Sight) -> None:
        """What nodes do has been seen anew."""
        self._put_off = None
        self._occupancy.look(sight)
        self._busy = self._occupancy.busy
        self._masks, self._masks_before = {}, self._masks

    def begin(self) -> None:
        """All that wait are thought about anew, in their order: where each will be is expected again."""
        if self._busy is not None:
            self._busy.expect_nothing()

    def forget_failures(self) -> None:
        """Something may have changed: what there were no nodes for there may be nodes for now."""
        self._failures.clear()

    def choose(self, entry: JobEntry) -> bool:
        """Find nodes for a job, and have its image brought there. If there are none it says why."""
        site, wish = self._site, self._wish(entry)
        if isinstance(wish, str):
            entry.stage, entry.words = Stage.WAITING, wish
            return False
        anonymous = replace(wish, name="")
        way = self._failures.get(anonymous) or self._way(wish)
        if isinstance(way, NoPlacement):
            self._failures[anonymous] = way
            entry.stage, entry.words = Stage.WAITING, way.message
            return False
        self._failures.clear()
        entry.stage, entry.words = Stage.STAGING, ""
        self._take(entry, wish, way)
        self._log.info(
            "job is led",
            job=entry.key,
            node=",".join(site.book.timeline.nodes[node].name for node in way.nodes[:8]),
            image=wish.image.uri,
            transfers=len(way.missing),
            ready_s=way.ready_s,
        )
        return True

    def foresee(
        self, entry: JobEntry, nodes: int, limit_s: int, each: Resources, image: FoundImage
    ) -> JobPlacement | NoPlacement:
        """Where a job would start if it had that size, with as much on each node, and that image. Nothing is
        changed."""
        job = entry.job
        if each.amounts:
            job = replace(job, resources=job.resources.with_amounts(each))
        is_own = job is entry.job and image is entry.image
        wish = self._wish(entry) if is_own else self._make_wish(entry, job, image)
        if isinstance(wish, str):
            return NoPlacement(message=wish)
        spares = max(nodes, wish.spares)
        return self._way(replace(wish, nodes_wanted=nodes, copies=nodes, spares=spares, limit_s=limit_s))

    def whole(self, entry: JobEntry) -> ScheduledJob | str:
        """A job as the order of jobs looks at it; in words why it need not be looked at."""
        job = entry.job
        if entry.image is not None:
            wish = self._wish(entry)
            if isinstance(wish, str):
                return wish
            need, eligible, limit_s, image = wish.need, wish.eligible, wish.limit_s, wish.image.key
        else:
            packed_need = packed(self._site, job.resources)
            if packed_need is None:
                return f"no node has {job.resources}"
            need, image = packed_need, ""
            eligible = self._mask(job.eligible) if job.eligible else self._site.book.timeline.everyone
            limit_s = UNLIMITED_S if job.limit_s is None else job.limit_s
        return ScheduledJob(
            name=entry.key,
            nodes_wanted=job.nodes_wanted,
            need=need,
            limit_s=limit_s,
            eligible=eligible,
            image=image,
        )

    def instants(self, entry: JobEntry) -> list[tuple[int, int]]:
        """When a job's image can be where: where it is or comes to, and where it could be brought."""
        wish, site = self._wish(entry), self._site
        if isinstance(wish, str):
            return []
        lane, slots = self._best_effort.lane, self._best_effort.slots()
        holders = site.book.pools.mask_with(wish.image.key)
        times = {site.now_s}
        if lane.has(wish.image):
            ends = lane.ends(slots, site.now_s)
            times.update(
                ends.get(each.number, site.now_s) for each in lane.all() if each.image.key == wish.image.key
            )
        brought_s = lane.end_if_added(wish.image, 1, slots, site.now_s, user=wish.user)
        found = [(at_s, holders) for at_s in sorted(times)] if holders else []
        return [*found, (brought_s, site.book.timeline.everyone)]

    def in_turn(self, entry: JobEntry) -> tuple[JobPlace, JobPlacement | None] | None:
        """The earliest place of a job where Outrider decides when it starts: on nodes to which its image was
        brought for it, or on others if it starts there earlier by more than its image takes to get there; how
        it comes to those. What comes later and has no nodes yet would otherwise go first, on these."""
        wish, now_s = self._wish(entry), self._site.now_s
        if isinstance(wish, str):
            entry.words = wish
            return None
        here = self._together(entry, wish) if entry.copies else None
        if here is not None and here.start_s <= max(now_s, here.ready_s):
            return here, None
        way = self._way(wish)
        if isinstance(way, NoPlacement):
            entry.words = way.message
            return None if here is None else (here, None)
        nodes = way.nodes[: wish.nodes_wanted]
        found = earliest_together(
            self.forecast,
            need=wish.need,
            count=wish.nodes_wanted,
            duration_s=wish.limit_s,
            eligible=mask_of(nodes, len(self._site.book.timeline.nodes)),
            now_s=now_s,
            from_s=way.start_s,
        )
        better_s = min(BETTER_S, max(0, way.ready_s - now_s))
        if found is None or (here is not None and here.start_s <= found[0] + better_s):
            return None if here is None else (here, None)
        place = JobPlace(start_s=found[0], ready_s=max(now_s, way.ready_s), nodes=found[1])
        return place, replace(way, start_s=found[0], until_s=max(way.until_s, wish.until_s(found[0])))

    def take_in_turn(self, entry: JobEntry, way: JobPlacement) -> None:
        """Bring a job's image to the nodes of its place."""
        wish = self._wish(entry)
        assert not isinstance(wish, str)
        for node in [node for node in entry.copies if node not in way.nodes]:
            self.drop(entry, node)
        self._hold(entry, wish, way)

    def _together(self, entry: JobEntry, wish: PlacementRequest) -> JobPlace | None:
        """When a job could start on some of the nodes to which its image was brought for it."""
        now_s = self._site.now_s
        ends = self._best_effort.lane.ends(self._best_effort.slots(), now_s)
        there_s = {node: entry.there_s(node, ends, now_s) for node in entry.copies}
        found = earliest_together(
            self.forecast,
            need=wish.need,
            count=wish.nodes_wanted,
            duration_s=wish.limit_s,
            eligible=mask_of(entry.copies, len(self._site.book.timeline.nodes)) & self._site.book.available,
            now_s=now_s,
            there_s=there_s,
        )
        if found is None:
            return None
        start_s, nodes = found
        return JobPlace(start_s=start_s, ready_s=max(there_s[node] for node in nodes), nodes=nodes)

    def stand(self, entry: JobEntry, *, may_improve: bool) -> bool:
        """Count a job that was led somewhere as being there, for those that are chosen for later.

        If it would start much earlier elsewhere and `may_improve`, its image is brought there, too.
        True if it was tried.
        """
        busy, wish = self._busy, self._wish(entry)
        if busy is None or isinstance(wish, str):
            return False
        starts = self._starts(entry, wish)
        # When it starts on the nodes that it was led to; never, if too few of them can be used.
        here = starts[wish.nodes_wanted - 1][0] if len(starts) >= wish.nodes_wanted else FOREVER
        entry.start_s = here if here < FOREVER else None
        if here == FOREVER:
            return False
        is_tried = may_improve and self._may_be_better(wish, here)
        if is_tried and self._improve(entry, wish, here):
            # Where it stands has been counted with its new nodes.
            return True
        self._stand_on(wish, [node for _, node in starts[: wish.nodes_wanted]], here)
        return is_tried

    def _may_be_better(self, wish: PlacementRequest, here_s: int) -> bool:
        """Whether enough nodes may be free so early that a transfer there would be worth it."""
        assert self._busy is not None
        now_s = self._site.now_s
        if here_s <= now_s + BETTER_S:
            return False
        earliest = self._busy.openings(wish.need, now_s, wish.eligible & self._site.book.available)
        for number, (bound_s, _) in enumerate(earliest, start=1):
            if bound_s + BETTER_S >= here_s:
                return False
            if number == wish.nodes_wanted:
                return True
        return False

    def _improve(self, entry: JobEntry, wish: PlacementRequest, here_s: int) -> bool:
        """Bring a waiting job's image to other nodes, too, if it would start there much earlier."""
        way = self._way(wish)
        if (
            isinstance(way, NoPlacement)
            or way.start_s + BETTER_S >= here_s
            or not set(way.nodes) - set(entry.copies)
        ):
            return False
        if len(entry.copies) + len(way.missing) > entry.job.nodes_wanted + self._site.settings.most_copies:
            return False
        self._take(entry, wish, way)
        self._log.info("job is steered to other nodes, too", job=entry.key, earlier_s=here_s - way.start_s)
        return True

    def renew(self, entry: JobEntry) -> list[int]:
        """Keep what a job waits with until it would be over; the nodes whose pools have no room for that."""
        site, wish = self._site, self._wish(entry)
        if isinstance(wish, str):
            return []
        start_s = max(site.now_s, entry.start_s or 0)
        until_s = start_s + wish.limit_s + wish.grace_s
        if until_s <= entry.until_s:
            return []
        until_s += RENEW_S
        full: dict[int, None] = {}
        for each in entry.parts:
            each.until_s = until_s
            for node, life in each.copies.items():
                # One after the other: what one is kept for is not there for the next.
                if node in full or not can_keep(site.book, node, life, until_s, site.now_s):
                    full[node] = None
                    continue
                site.book.pools.set_user(node, life, each.owner, until_s)
                keep_own_room(site.book, each.owner, node, until_s)
                self._best_effort.place(each, node, life)
        return list(full)

    def start(self, entry: JobEntry, job: RmsJob) -> None:
        """A job runs: what it has is kept by its instances from now on, and counted until its limit."""
        site = self._site
        limit_s = UNLIMITED_S if job.limit_s is None else job.limit_s
        start_s = site.now_s if job.start_s is None else job.start_s
        until_s = max(start_s + limit_s, site.now_s) + site.settings.grace_s
        names = site.book.timeline.nodes
        for node in [node for node in entry.copies if names[node].name not in job.nodes]:
            self.drop(entry, node)
        for each in entry.parts:
            each.until_s = until_s
            for node, life in each.copies.items():
                drop_copy(site.book, each.owner, node)
                keep_own_room(site.book, each.owner, node, until_s)
                self._best_effort.part(each, node, is_stopped=False, after_s=CLAIM_S)
                if each.owner in life.users:
                    site.book.pools.set_user(node, life, each.owner, until_s)

    def drop(self, entry: JobEntry, node: int) -> None:
        """A job does not count on a node any more: on none of its images there."""
        for each in entry.parts:
            if node in each.copies:
                self._drop_one(each, node)

    def _drop_one(self, entry: JobEntry, node: int) -> None:
        life = entry.copies.pop(node)
        entry.here.discard(node)
        cargo = self._best_effort.lane.find(life.transfer)
        is_unwanted = let_go(
            self._site.book, self._best_effort.lane, entry.owner, node, life, self._site.now_s
        )
        self._best_effort.part(entry, node, is_stopped=is_unwanted)
        if cargo is not None:
            self._best_effort.left(cargo)

    def forget(self, entry: JobEntry) -> None:
        """A job is not led any more."""
        self.drop_all(entry)
        self._wishes.pop(entry.key, None)

    def drop_all(self, entry: JobEntry) -> None:
        for node in list(entry.copies):
            self.drop(entry, node)

    def _take(self, entry: JobEntry, wish: PlacementRequest, way: JobPlacement) -> None:
        self._hold(entry, wish, way)
        self._stand_on(wish, way.nodes[: wish.nodes_wanted], way.start_s)

    def _hold(self, entry: JobEntry, wish: PlacementRequest, way: JobPlacement) -> None:
        site = self._site
        # What it has already is kept as it is, and renewed with the rest.
        way = replace(way, lives=tuple(each for each in way.lives if each[0] not in entry.copies))
        held = hold(site.book, self._best_effort.lane, wish, way, site.now_s)
        entry.until_s = max(entry.until_s, way.until_s)
        entry.ready_s, entry.start_s = way.ready_s, way.start_s
        entry.copies |= held
        for node, life in held.items():
            self._best_effort.join(entry, node, life)
        for each in entry.further:
            assert each.image is not None
            lacking = [node for node in way.nodes if node not in each.copies]
            lane, image = self._best_effort.lane, each.image.image
            held = hold_further(
                site.book,
                lane,
                image,
                each.owner,
                lacking,
                ready_s=way.ready_s,
                until_s=way.until_s,
                now_s=site.now_s,
            )
            each.until_s = entry.until_s
            each.copies |= held
            for node, life in held.items():
                self._best_effort.join(each, node, life)

    def _stand_on(self, wish: PlacementRequest, nodes: Sequence[int], start_s: int) -> None:
        assert self._busy is not None
        end_s = start_s + wish.limit_s
        self._busy.take(Taken(nodes=tuple(nodes), start_s=start_s, end_s=end_s, amount=wish.need))

    def _way(self, wish: PlacementRequest) -> JobPlacement | NoPlacement:
        site = self._site
        if self._busy is None:
            return NoPlacement(message="the batch system has not been seen yet")
        pools, images = site.book.pools, (wish.image, *wish.further)
        holders = reduce(and_, (pools.mask_with(each.key) for each in images))
        full = mask_of(
            self._best_effort.claims.full(
                wish.user, {each.key: each.size_bytes for each in images}, pools.pools, site.now_s
            ),
            len(pools.pools),
        )
        eligible = wish.eligible & ~(full & ~holders)
        if (eligible & site.book.available).bit_count() < wish.nodes_wanted and eligible != wish.eligible:
            self._best_effort.claims.refuse(wish.user)
            return NoPlacement(message=self._bound(wish))
        wish = replace(wish, eligible=eligible)
        self.searches += 1
        return place_job(
            site.book,
            self._best_effort.lane,
            self._best_effort.slots(),
            self._busy,
            wish,
            site.now_s,
            carried=frozenset(site.moving),
        )

    def _bound(self, wish: PlacementRequest) -> str:
        held = size(self._best_effort.claims.held_by(wish.user))
        share = self._site.settings.user_share_percent
        return (
            f"its user's other jobs that wait keep {held} of images on the nodes, and one user may keep "
            f"{share} % of what other users leave (jobs.user_share): its image comes when some of them have "
            "started or are cancelled"
        )

    def _starts(self, entry: JobEntry, wish: PlacementRequest) -> list[tuple[int, int]]:
        """When a job could start on each of the nodes that it was led to and that can be used, in order."""
        available = self._site.book.available
        return sorted(
            (self._free_s(wish, node, max(each.copies[node].ready_s for each in entry.parts)), node)
            for node in entry.copies
            if available >> node & 1
        )

    def _free_s(self, wish: PlacementRequest, node: int, there_s: int) -> int:
        assert self._busy is not None
        return self._busy.free_from(node, wish.need, max(there_s, self._site.now_s), wish.limit_s)

    def _mask(self, names: tuple[str, ...]) -> int:
        """The nodes of these names. Thousands of jobs may share a list of thousands of names."""
        found = self._masks.get(id(names))
        if found is None:
            found = self._masks_before.get(id(names))
            if found is None:
                timeline = self._site.book.timeline
                nodes = [timeline.number_of[name] for name in names if name in timeline.number_of]
                # With the names, lest another list be taken for this one.
                found = names, mask_of(nodes, len(timeline.nodes))
            self._masks[id(names)] = found
        return found[1]

    def _wish(self, entry: JobEntry) -> PlacementRequest | str:
        """What the core is asked; in words why it need not be. The same as long as nothing has changed."""
        job, image = entry.job, entry.image
        assert image is not None
        if entry.bad:
            return self._make_wish(entry, job, image)
        copiers = self._best_effort.copiers(image.format)
        known = self._wishes.get(entry.key)
        if known is not None and known[0] is job and known[1] is image and known[2] is copiers:
            return known[3]
        wish = self._make_wish(entry, job, image)
        if not isinstance(wish, str):
            self._wishes[entry.key] = job, image, copiers, wish
        return wish

    def _make_wish(self, entry: JobEntry, job: RmsJob, image: FoundImage) -> PlacementRequest | str:
        site = self._site
        timeline = site.book.timeline
        need = packed(site, job.resources)
        if need is None:
            return f"no node has {job.resources}"
        eligible = timeline.everyone
        if job.eligible:
            eligible = self._mask(job.eligible)
        for node, until_s in entry.bad.items():
            if until_s > site.now_s:
                eligible &= ~(1 << node)
        most = max(job.nodes_wanted, 0 if entry.is_scheduled else site.settings.most_copies)
        return PlacementRequest(
            name=entry.owner,
            image=image.image,
            nodes_wanted=job.nodes_wanted,
            copies=max(job.nodes_wanted, min(job.tasks * job.nodes_wanted, most)),
            spares=most,
            need=need,
            limit_s=UNLIMITED_S if job.limit_s is None else job.limit_s,
            grace_s=site.settings.grace_s,
            eligible=eligible,
            user=job.uid,
            copying=self._mask(self._best_effort.copiers(image.format)),
            further=tuple(each.image.image for each in entry.further if each.image is not None),
        )
