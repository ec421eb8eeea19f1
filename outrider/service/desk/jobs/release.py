"""Jobs held or released, as their images are where they may start or are not, and what users are told.

Nothing is released to nodes that are not known to have its image. What was ordered and is not seen
at later looks is ordered again.
"""

from __future__ import annotations

from outrider.metadata.notation.hostlists import fold
from outrider.rms.base import JobState
from outrider.service.answers.jobs import Verdict
from outrider.service.answers.reply import Trouble
from outrider.service.desk.batch.job_effects import TicketFields, hold_effect, release_effect
from outrider.service.desk.jobs.in_reservation import JobsInReservations
from outrider.service.desk.jobs.interruption.machine_moves import is_being_moved
from outrider.service.desk.jobs.job import WAITING, JobEntry, JobQueues, Stage
from outrider.service.desk.jobs.notes import JobNotes, note_of, start_of
from outrider.service.desk.jobs.orders import JobOrders
from outrider.service.desk.jobs.transfers import BestEffortTransfers
from outrider.service.desk.nodes.owners import key_of
from outrider.service.desk.state.site import Site
from outrider.service.meter import Log, Meter
from outrider.service.requests import AskStart, Caller

ORDER_LOOKS = 2
"""After so many looks that do not show what was ordered it is ordered again."""
ANSWER_S = 2
"""So long those that have an image are waited for, so that a job is released to all of them at once: what
it is released to first is where the batch system puts it."""
TICKET_S = 30 * 86_400
SETTLED_AT_ONCE = 100


class JobRelease:
    """What is to be done about jobs of which something has changed."""

    def __init__(
        self,
        site: Site,
        jobs: JobQueues,
        bound: JobsInReservations,
        best_effort: BestEffortTransfers,
        orders: JobOrders,
        notes: JobNotes,
        log: Log,
        meter: Meter,
    ) -> None:
        self._site = site
        self._jobs = jobs
        self._bound = bound
        self._best_effort = best_effort
        self._orders = orders
        self._notes = notes
        self._log = log
        self._meter = meter

    def run(self) -> None:
        """The next of those that have changed, unless the batch system has enough to do."""
        if self._orders.is_behind:
            return
        touched = self._jobs.take(self._jobs.touched, SETTLED_AT_ONCE)
        if not touched:
            return
        ends = self._best_effort.lane.ends(self._best_effort.slots(), self._site.now_s)
        for entry in touched:
            self._settle(entry)
            self._expect(entry, ends)
            self._tell(entry)

    def may_start(self, request: AskStart, caller: Caller) -> Verdict | Trouble:
        """Whether a job that is about to start on some nodes has its image on all of them."""
        if not caller.is_admin:
            return Trouble(code="not-allowed", message="only the batch system asks whether jobs may start")
        entry = self._jobs.entries.get(request.job)
        if entry is None or not entry.has_image or entry.job.is_hint:
            return self._start_in_reservation(request)
        digest = "" if entry.image is None else entry.image.digest
        names = set(self._jobs.names(entry.ready))
        lacking = sorted(set(request.nodes) - names)
        if not lacking and entry.image is not None:
            return Verdict(verdict="go", digest=digest)
        what = "its image" if entry.image is None else f"image {entry.image.uri}"
        where = f" on {fold(lacking)}" if lacking else ""
        return Verdict(verdict="wait", words=f"{what} is not known to be there yet{where}", digest=digest)

    def _start_in_reservation(self, request: AskStart) -> Verdict:
        live = self._site.live.get(self._bound.reservation_of(request.job))
        lacking = [] if live is None else sorted(set(request.nodes) - live.ready)
        if live is None or not lacking:
            return Verdict(verdict="go")
        words = f"image {live.document.uri} of reservation {live.name} is not on {fold(lacking)} yet"
        return Verdict(verdict="wait", words=words, digest=live.document.digest)

    def _settle(self, entry: JobEntry) -> None:
        """Hold or release a job, as its image is where it may start, or is not."""
        if entry.stage is Stage.RUNNING or entry.job.state not in WAITING or entry.bound:
            return
        if entry.options.asked is not None:
            # It is held, and looks for nodes when it has its new size.
            return
        if entry.job.saved_on and is_being_moved(self._site, entry.job):
            return
        usable = self._jobs.usable(entry.ready)
        if entry.job.is_hint:
            # It starts when and where the batch system likes, with its image or without.
            if len(usable) >= entry.job.nodes_wanted and entry.stage is Stage.STAGING:
                self._staged(entry)
            return
        if entry.is_scheduled:
            self._settle_in_turn(entry, usable)
            return
        if len(usable) >= entry.job.nodes_wanted:
            if entry.released is None and self._are_others_asked(entry, usable):
                return
            if entry.stage is Stage.STAGING:
                self._staged(entry)
            self._release(entry, self._jobs.names(usable))
        elif entry.job.state is JobState.PENDING or entry.released is not None:
            if entry.stage is Stage.STAGED:
                entry.stage = Stage.STAGING
            self._hold(entry)

    def _settle_in_turn(self, entry: JobEntry, usable: set[int]) -> None:
        """Release a job whose turn it is to exactly its nodes, once its image is on all of them."""
        if entry.stage is Stage.STAGING and len(usable) >= entry.job.nodes_wanted:
            self._staged(entry)
        granted = set(entry.granted)
        if granted and (granted <= usable if entry.has_image else granted == self._jobs.usable(granted)):
            if entry.released != self._jobs.names(granted):
                entry.granted_s = self._site.now_s
            self._release(entry, self._jobs.names(granted))
        elif entry.job.state is JobState.PENDING or entry.released is not None:
            self._hold(entry)

    def _are_others_asked(self, entry: JobEntry, usable: set[int]) -> bool:
        """Whether other nodes that have its image are about to say so."""
        others = {
            node
            for node in entry.copies
            if all(node in each.copies and each.copies[node].transfer is None for each in entry.parts)
        }
        if self._jobs.usable(others) <= usable:
            entry.enough_s = None
            return False
        if entry.enough_s is None:
            entry.enough_s = self._site.now_s
            self._jobs.look_again(entry, ANSWER_S)
        return self._site.now_s < entry.enough_s + ANSWER_S

    def _staged(self, entry: JobEntry) -> None:
        entry.stage, entry.words, entry.trouble, entry.ready_s = Stage.STAGED, "", "", self._site.now_s
        waited_s = self._site.now_s - entry.since_s
        self._meter.count("outrider_jobs_staged_total")
        self._meter.observe("outrider_job_wait_seconds", waited_s)
        words = f"its image is where it may start, {waited_s} s after it was submitted"
        self._jobs.note(entry, "staged", words)
        self._log.info("job is staged", job=entry.key, seconds=waited_s)

    def _release(self, entry: JobEntry, nodes: tuple[str, ...]) -> None:
        if entry.released is not None and entry.looks == 0 and set(nodes) > set(entry.released):
            # More and more nodes have it: that can be said once for all of them.
            return
        is_seen = entry.job.state is JobState.PENDING
        is_due = not entry.is_ordered or (entry.looks >= ORDER_LOOKS and not is_seen and self._is_over(entry))
        if entry.released == nodes and (not is_due or entry.is_left_to_others):
            return
        entry.is_left_to_others, entry.enough_s = False, None
        entry.released, entry.is_ordered, entry.looks, entry.grace_s = nodes, True, 0, 0
        ticket = None
        if entry.image is not None:
            ticket = TicketFields(
                job=key_of("-" if entry.is_array else entry.key, len(entry.further)),
                uid=entry.job.uid,
                digest=entry.image.digest,
                expires_s=self._site.now_s + TICKET_S,
            )
        self._orders.order(release_effect(entry.key, nodes, ticket, self._site.now_s))
        self._log.info("job is released", job=entry.key, node=",".join(nodes[:8]))

    def _hold(self, entry: JobEntry) -> None:
        if entry.grace_s > self._site.now_s:
            return
        is_seen = entry.job.state is not JobState.PENDING
        is_due = not entry.is_ordered or (entry.looks >= ORDER_LOOKS and not is_seen and self._is_over(entry))
        if entry.released is None and not is_due:
            return
        entry.released, entry.is_ordered, entry.looks = None, True, 0
        words = "waits for its turn" if entry.is_scheduled else "its image is not on its nodes yet"
        self._orders.order(hold_effect(entry.key, words, self._site.now_s, has_image=entry.has_image))
        self._log.info("job is held", job=entry.key)

    def _is_over(self, entry: JobEntry) -> bool:
        """Whether nothing waits any more for its turn to be asked of the batch system for a job: of a burst
        many do, while looks show what came of the first."""
        return not self._orders.waits(entry.key)

    def _expect(self, entry: JobEntry, ends: dict[int, int]) -> None:
        """When a job's image is expected on enough nodes."""
        if entry.stage is not Stage.STAGING:
            return
        now_s = self._site.now_s
        instants = sorted(entry.there_s(node, ends, now_s) for node in entry.copies)
        if len(instants) >= entry.job.nodes_wanted:
            entry.ready_s = instants[entry.job.nodes_wanted - 1]

    def _tell(self, entry: JobEntry) -> None:
        if entry.job.is_hint:
            return
        now_s = self._site.now_s
        was_overdue = entry.is_overdue
        planned = self._jobs.names(set(entry.planned))
        longest_s = self._site.settings.longest_wait_s
        text = note_of(entry, self._jobs.names(entry.ready), longest_s, now_s, planned)
        if entry.is_overdue and not was_overdue:
            self._jobs.note(entry, "overdue", text)
        self._notes.consider(entry, text, now_s, start_of(entry, now_s))
