"""Jobs held or released, as their images are where they may start or are not, and what users are told.

Nothing is released to nodes that are not known to have its image. What was ordered and is not seen
at later looks is ordered again.
"""

from __future__ import annotations

from outrider.rms.base import JobState
from outrider.service.desk.batch.job_effects import TicketFields, hold_effect, release_effect
from outrider.service.desk.jobs.job import Led, Stage
from outrider.service.desk.jobs.notes import JobNotes, note_of
from outrider.service.desk.jobs.orders import JobOrders
from outrider.service.desk.jobs.queues import WAITING, LedJobs
from outrider.service.desk.jobs.transfers import Hauling
from outrider.service.desk.state.site import Site
from outrider.service.meter import Log, Meter

ORDER_LOOKS = 2
"""After so many looks that do not show what was ordered it is ordered again."""
ANSWER_S = 2
"""So long those that have an image are waited for, so that a job is released to all of them at once: what
it is released to first is where the batch system puts it."""
TICKET_S = 30 * 86_400
SETTLED_AT_ONCE = 100


class Settling:
    """What is to be done about jobs of which something has changed."""

    def __init__(
        self,
        site: Site,
        jobs: LedJobs,
        hauling: Hauling,
        orders: JobOrders,
        notes: JobNotes,
        log: Log,
        meter: Meter,
    ) -> None:
        self._site = site
        self._jobs = jobs
        self._hauling = hauling
        self._orders = orders
        self._notes = notes
        self._log = log
        self._meter = meter

    def run(self) -> None:
        """The next of those that have changed."""
        touched = self._jobs.take(self._jobs.touched, SETTLED_AT_ONCE)
        if not touched:
            return
        ends = self._hauling.lane.ends(self._hauling.slots(), self._site.now_s)
        for led in touched:
            self._settle(led)
            self._expect(led, ends)
            self._tell(led)

    def _settle(self, led: Led) -> None:
        """Hold or release a job, as its image is where it may start, or is not."""
        if led.stage is Stage.RUNNING or led.job.state not in WAITING or led.bound:
            return
        usable = self._jobs.usable(led.ready)
        if len(usable) >= led.job.nodes_wanted:
            if led.released is None and self._are_others_asked(led, usable):
                return
            if led.stage is Stage.STAGING:
                self._staged(led)
            self._release(led, self._jobs.names(usable))
        elif led.job.state is JobState.PENDING or led.released is not None:
            if led.stage is Stage.STAGED:
                led.stage = Stage.STAGING
            self._hold(led)

    def _are_others_asked(self, led: Led, usable: set[int]) -> bool:
        """Whether other nodes that have its image are about to say so."""
        others = {node for node, life in led.copies.items() if life.transfer is None}
        if self._jobs.usable(others) <= usable:
            led.enough_s = None
            return False
        if led.enough_s is None:
            led.enough_s = self._site.now_s
            self._jobs.look_again(led, ANSWER_S)
        return self._site.now_s < led.enough_s + ANSWER_S

    def _staged(self, led: Led) -> None:
        led.stage, led.words, led.trouble, led.ready_s = Stage.STAGED, "", "", self._site.now_s
        waited_s = self._site.now_s - led.since_s
        self._meter.count("outrider_jobs_staged_total")
        self._meter.observe("outrider_job_wait_seconds", waited_s)
        words = f"its image is where it may start, {waited_s} s after it was submitted"
        self._jobs.note(led, "staged", words)
        self._log.info("job is staged", job=led.key, seconds=waited_s)

    def _release(self, led: Led, nodes: tuple[str, ...]) -> None:
        if led.released is not None and led.looks == 0 and set(nodes) > set(led.released):
            # More and more nodes have it: that can be said once for all of them.
            return
        is_seen = led.job.state is JobState.PENDING
        is_due = not led.is_ordered or (led.looks >= ORDER_LOOKS and not is_seen and self._is_over(led))
        if led.released == nodes and (not is_due or led.is_left_to_others):
            return
        led.is_left_to_others, led.enough_s = False, None
        led.released, led.is_ordered, led.looks, led.grace_s = nodes, True, 0, 0
        assert led.image is not None
        ticket = TicketFields(
            job="-" if led.is_array else led.key,
            uid=led.job.uid,
            digest=led.image.digest,
            expires_s=self._site.now_s + TICKET_S,
        )
        self._orders.order(release_effect(led.key, nodes, ticket, self._site.now_s))
        self._log.info("job is released", job=led.key, node=",".join(nodes[:8]))

    def _hold(self, led: Led) -> None:
        if led.grace_s > self._site.now_s:
            return
        is_seen = led.job.state is not JobState.PENDING
        is_due = not led.is_ordered or (led.looks >= ORDER_LOOKS and not is_seen and self._is_over(led))
        if led.released is None and not is_due:
            return
        led.released, led.is_ordered, led.looks = None, True, 0
        self._orders.order(hold_effect(led.key, "its image is not on its nodes yet", self._site.now_s))
        self._log.info("job is held", job=led.key)

    def _is_over(self, led: Led) -> bool:
        """Whether nothing waits any more for its turn to be asked of the batch system for a job: of a burst
        many do, while looks show what came of the first."""
        return not self._orders.waits(led.key)

    def _expect(self, led: Led, ends: dict[int, int]) -> None:
        """When a job's image is expected on enough nodes."""
        if led.stage is not Stage.STAGING:
            return
        now_s = self._site.now_s
        instants = sorted(
            now_s
            if node in led.ready or life.transfer is None
            else max(now_s, ends.get(life.transfer, life.ready_s))
            for node, life in led.copies.items()
        )
        if len(instants) >= led.job.nodes_wanted:
            led.ready_s = instants[led.job.nodes_wanted - 1]

    def _tell(self, led: Led) -> None:
        now_s = self._site.now_s
        was_overdue = led.is_overdue
        text = note_of(led, self._jobs.names(led.ready), self._site.settings.longest_wait_s, now_s)
        if led.is_overdue and not was_overdue:
            self._jobs.note(led, "overdue", text)
        self._notes.consider(led, text, now_s)
