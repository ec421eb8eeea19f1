"""Best-effort jobs led to nodes that have their images: what is decided about each, and when.

The batch system is the truth about jobs and the pools are the truth about images: at each look the
two are compared, and what is to be done follows from that alone. So a job that was requeued, a
service that was killed and an order that was lost are no special cases. Nothing is released to
nodes that are not known to have its image, and nothing is ever cancelled here.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress

from outrider.core.nodes.forecast import BusyForecast
from outrider.metadata.errors import TextError
from outrider.metadata.joblines import parse_job_lines
from outrider.rms.base import JobState, JobUse, RmsJob, Sight
from outrider.service.desk.batch.job_effects import RESIZE, is_of_machine, is_of_yielding, release_effect
from outrider.service.desk.events import EventRouter
from outrider.service.desk.jobs.copies import JobCopies
from outrider.service.desk.jobs.image_lookup import JobLookups, further_images
from outrider.service.desk.jobs.in_reservation import JobsInReservations
from outrider.service.desk.jobs.interruption.holder_use import HolderUse
from outrider.service.desk.jobs.interruption.machine_moves import (
    give_up_move,
    give_up_overtaken,
    leave_drained,
)
from outrider.service.desk.jobs.interruption.pieces import cut_jobs
from outrider.service.desk.jobs.interruption.yielding import JobYielding
from outrider.service.desk.jobs.job import WAITING, JobEntry, JobQueues, Stage
from outrider.service.desk.jobs.notes import JobNotes
from outrider.service.desk.jobs.options.sizes import JobSizes
from outrider.service.desk.jobs.ordering.schedule import JobTurns
from outrider.service.desk.jobs.ordering.worth import in_order
from outrider.service.desk.jobs.orders import IsCarrying, JobOrders
from outrider.service.desk.jobs.placement import JobPlacer
from outrider.service.desk.jobs.release import ORDER_LOOKS, JobRelease
from outrider.service.desk.jobs.transfers import BestEffortTransfers
from outrider.service.desk.nodes.earlier_pins import FIND_OUT_S
from outrider.service.desk.nodes.events import News
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.preemptible_jobs import PreemptibleJobs, refusal_of
from outrider.service.desk.reservations.copies import ReservationCopies
from outrider.service.desk.reservations.repair import ReservationRepair
from outrider.service.desk.state.agenda import Agenda
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.troubles import Troubles
from outrider.service.meter import Log, Meter
from outrider.service.ports import FoundImage, ResolveImage, TellUser
from outrider.store.records import Effect

READ_AT_ONCE = 50
REVIEWED_AT_ONCE = 50
MOST_IMPROVED = 10
"""Jobs for which a better place is looked for in one go."""
IMPROVED_PER_S = 20
"""So many jobs are looked at for a better place within a second, on average: where thousands wait, it
is each one's turn every few minutes."""
CONSIDERED_AT_ONCE = 200
CHOSEN_AT_ONCE = 20
"""Jobs for which nodes are searched for in one go."""
FAILURE_COSTS = 5
"""Where there are no nodes for a job, all were looked at: that counts as so many."""
RETRY_S = 60
GRACE_S = FIND_OUT_S
"""How long a job that an earlier service has led somewhere is left as it is."""
GONE = (JobState.RUNNING, JobState.SUSPENDED)


class JobManager:
    """All jobs that name an image and have no reservation."""

    def __init__(
        self,
        site: Site,
        node_orders: NodeOrders,
        agenda: Agenda,
        copies: ReservationCopies,
        events: EventRouter,
        best_effort: BestEffortTransfers,
        orders: JobOrders,
        preemptible: PreemptibleJobs,
        repair: ReservationRepair,
        troubles: Troubles,
        is_carrying: IsCarrying,
        log: Log,
        meter: Meter,
    ) -> None:
        self._site = site
        self._earlier = node_orders.earlier
        self._best_effort = best_effort
        self._orders = orders
        self._preemptible = preemptible
        self._bound = JobsInReservations(site, orders, log)
        self._holders = HolderUse(site)
        self._placer = JobPlacer(site, best_effort, log)
        self.queues = JobQueues(site, agenda, log)
        self.images = JobLookups(site, self.queues)
        self.notes = JobNotes(site.settings.note_every_s)
        self.yielding = JobYielding(site, preemptible, self.queues, repair, troubles, is_carrying, log, meter)
        self.turns = JobTurns(site, agenda, self.queues, self._placer, log)
        self._has_turns = site.settings.schedule is not None
        self._sizes = JobSizes(site, self.queues, self._placer, orders, log)
        self.release = JobRelease(site, self.queues, self._bound, best_effort, orders, self.notes, log, meter)
        self._copies = JobCopies(
            site, node_orders, self.queues, copies, events, best_effort, self._placer, log
        )
        self._to_review: deque[str] = deque()
        """What is left of the review that is under way."""
        self._is_review_wanted = False

    @property
    def entries(self) -> dict[str, JobEntry]:
        """All jobs by their keys."""
        return self.queues.entries

    @property
    def forecast(self) -> BusyForecast:
        """What is taken of nodes, as far as it is known."""
        return self._placer.forecast

    def seen(self, sight: Sight) -> None:
        """A look at the batch system: jobs have come, started, gone."""
        is_first = self._earlier.looked(self._site.now_s)
        everybody = frozenset(job.key for job in sight.jobs)
        self._orders.saw(everybody)
        self._bound.forget_others(everybody)
        self.turns.look(sight)
        ours = {job.key for job in sight.jobs if self._is_led(job)}
        for key in [key for key in self.entries if key not in ours]:
            self._forget(self.entries[key])
        if ours or self.entries:
            self._placer.look(sight)
        else:
            self._placer.put_off(sight)
        foreign = frozenset(each.name for each in sight.reservations if not each.is_ours)
        for job in sight.jobs:
            if job.reservation is not None:
                self._bound.seen(job, foreign)
            elif job.key in ours:
                self._see(job, is_first=is_first)
            elif self.turns.is_given_back(job):
                self._orders.order(release_effect(job.key, (), None, self._site.now_s))
        self.yielding.seen(cut_jobs(self._site, sight, self._preemptible))
        leave_drained(self._site, self.entries, sight)
        self._holders.seen(sight)
        self._is_review_wanted = True

    def heard(self, news: list[News]) -> None:
        """What a node has said of jobs' images."""
        self._copies.heard(news)

    def resolved(self, call: ResolveImage, result: object) -> None:
        """What is at an image's address."""
        for entry in self.images.answered(call, result):
            self._resolve(entry)

    def told(self, call: TellUser, result: object) -> None:
        entry = self.entries.get(call.job)
        self.notes.told(call, result, entry)
        if result is not None and entry is not None:
            self.queues.touch(entry)

    def carried(self, effect: Effect, job: str, use: JobUse | None = None) -> None:
        """The batch system has done what it was asked for a job, or has told what it had."""
        if use is not None:
            self._holders.told(effect, use)
            return
        if is_of_yielding(effect.subject):
            self.yielding.carried(effect)
            return
        if is_of_machine(effect.subject):
            return
        entry = self.entries.get(job)
        if entry is not None:
            entry.looks = 0
            is_held_by_others = entry.job.state is JobState.HELD and not entry.job.is_held_by_us
            entry.is_left_to_others = entry.released is not None and is_held_by_others

    def refused(self, effect: Effect, job: str, words: str) -> None:
        """The batch system will not do it: that is seen, and said, until the next look."""
        if is_of_yielding(effect.subject):
            self.yielding.refused(effect, words)
            return
        if is_of_machine(effect.subject):
            uid = self.entries[job].job.uid if job in self.entries else 0
            self._site.note("machine", f"job {job}", "refused", words, uid=uid)
            give_up_move(self._site, effect)
            return
        entry = self.entries.get(job)
        if entry is not None and effect.kind == RESIZE:
            entry.is_ordered, entry.looks = False, 0
            self._sizes.refused(entry, words)
        elif entry is not None:
            entry.is_ordered, entry.looks = False, 0
            entry.words = f"the batch system refuses to release it: {words}"
            self.queues.touch(entry)

    def turn(self, job: str) -> None:
        """The agenda says that it is time for a job."""
        entry = self.entries.get(job)
        if entry is not None and entry.stage in (Stage.RESOLVING, Stage.STAGING):
            # It may be time to say whom it waits for, or to wait for no more nodes.
            self.queues.touch(entry)
        if entry is not None and entry.is_scheduled:
            self.turns.want()
        if entry is None or entry.retry_s is None or entry.retry_s > self._site.now_s:
            return
        entry.retry_s = None
        if entry.lines is not None and (entry.stage is Stage.REFUSED or entry.is_unmade):
            entry.stage = Stage.RESOLVING
            self._resolve(entry)
        elif entry.is_scheduled and not entry.granted:
            self.queues.to_schedule[entry.key] = None
        elif entry.stage is Stage.WAITING and not entry.is_scheduled:
            self.queues.to_choose.add(entry.key, entry.job.uid)
        self.queues.touch(entry)

    def run(self) -> None:
        """What is due, but no more in one go than others can wait for: read what jobs want, review them,
        choose nodes, move images, release, tell."""
        self.yielding.run()
        for entry in self.queues.take(self.queues.to_read, READ_AT_ONCE):
            self._read(entry)
        if self._is_reviewing:
            self._review_some()
        if not self._is_reviewing:
            self.turns.go_on()
            if not self.turns.is_under_way:
                self._choose_some()
        self._best_effort.run()
        self.release.run()

    @property
    def is_reading(self) -> bool:
        """Whether it is not known yet of each job what it wants."""
        return bool(self.queues.to_read)

    @property
    def is_busy(self) -> bool:
        """Whether something was left to be done at once."""
        queues = self.queues
        is_left = bool(queues.to_read or queues.to_choose or (queues.touched and not self._orders.is_behind))
        return is_left or self._is_reviewing or self.turns.is_due

    def next_s(self) -> int | None:
        """When to be asked again: at once, if anything was left."""
        now_s = self._site.now_s
        if self.is_busy:
            return now_s
        instants = [self._best_effort.next_s(), self.notes.next_s(now_s), self.yielding.next_s()]
        instants.append(now_s + 1 if self.queues.touched else None)
        return min((at_s for at_s in instants if at_s is not None), default=None)

    def names(self, nodes: set[int]) -> tuple[str, ...]:
        return self.queues.names(nodes)

    def _is_led(self, job: RmsJob) -> bool:
        """Whether it has an image that we bring, or waits for its turn without one."""
        if job.reservation is not None:
            return False
        if job.metadata is not None:
            return True
        is_held_by_others = job.state is JobState.HELD and not job.is_held_by_us
        return job.state in WAITING and not is_held_by_others and self.turns.wants(job)

    def _see(self, job: RmsJob, *, is_first: bool) -> None:
        entry = self.entries.get(job.key)
        if entry is not None and entry.job is job and not entry.bound:
            entry.looks += 1
            if self._has_turns:
                self._change_mode(entry, job)
                self.turns.see(entry)
            return
        if entry is not None and (entry.job.metadata, entry.job.uid) != (job.metadata, job.uid):
            # Also a batch system that has forgotten its last jobs gives out their numbers once more.
            self._forget(entry)
            entry = None
        is_new = entry is None
        if entry is None:
            entry = self.entries[job.key] = JobEntry(job=job, since_s=min(job.submitted_s, self._site.now_s))
            entry.options.is_taken_up = is_first
            if is_first and job.state is JobState.PENDING:
                entry.grace_s = self._site.now_s + GRACE_S
                self._earlier.keep_for_job(entry.key, entry.grace_s)
                self.queues.retry(entry, GRACE_S)
        if self._has_turns:
            self._change_mode(entry, job)
        if not is_new and entry.may_have_options:
            self._sizes.seen(entry, job)
        waits_on = entry.job.state in WAITING and job.state in WAITING
        if waits_on and entry.job.eligible != job.eligible:
            self._lead_elsewhere(entry)
        entry.job = job
        entry.is_array = entry.is_array or job.tasks > 1
        entry.looks += 1
        if entry.bound and entry.looks > ORDER_LOOKS:
            entry.bound = ""
            self.queues.wait_for_nodes(entry)
        if job.state in GONE and entry.stage is not Stage.RUNNING:
            self.images.drop(entry)
            entry.stage, entry.words, entry.retry_s, entry.yields_to = Stage.RUNNING, "", None, ""
            if job.can_save:
                give_up_overtaken(self._site, job)
                if entry.lines is None:
                    # It ran before this service: whether in a machine has to be known all the same.
                    self.queues.to_read.add(entry.key, entry.job.uid)
            self._placer.start(entry, job)
        elif job.state in WAITING and entry.stage is Stage.RUNNING:
            self._again(entry)
        elif job.state in WAITING and entry.stage is Stage.RESOLVING and not entry.has_image:
            self.queues.wait_for_nodes(entry)
            self.queues.touch(entry)
        elif job.state in WAITING and entry.stage is Stage.RESOLVING and entry.lines is None:
            # Also one that was just starting when it was seen first, and came back.
            self.queues.to_read.add(entry.key, entry.job.uid)
        if job.state is not JobState.HELD or job.is_held_by_us:
            entry.is_left_to_others = False
        if self._has_turns:
            self.turns.see(entry)
            self.turns.put_again(entry)

    def _lead_elsewhere(self, entry: JobEntry) -> None:
        """It may run on other nodes now: its saved machine was moved, or its user wants it elsewhere."""
        if entry.stage in (Stage.STAGING, Stage.STAGED):
            self._placer.drop_all(entry)
            self.queues.wait_for_nodes(entry)

    def _change_mode(self, entry: JobEntry, job: RmsJob) -> None:
        """A job came to another queue, or all were handed back or taken over."""
        wants = self.turns.wants(job)
        if wants == entry.is_scheduled:
            return
        entry.is_scheduled = wants
        self.turns.forget(entry.key)
        if wants:
            self._sizes.in_turn(entry)
        entry.granted = entry.planned = ()
        if entry.stage in (Stage.WAITING, Stage.STAGING, Stage.STAGED):
            self._placer.drop_all(entry)
            self.queues.wait_for_nodes(entry)
            self.queues.touch(entry)

    def _again(self, entry: JobEntry) -> None:
        """A job that has run waits again: wherever its image is by now."""
        self._placer.drop_all(entry)
        entry.since_s, entry.released, entry.is_ordered = self._site.now_s, None, False
        entry.stage, entry.options.images = Stage.RESOLVING, {}
        if entry.lines is None:
            self.queues.to_read.add(entry.key, entry.job.uid)
        else:
            self._resolve(entry)

    def _forget(self, entry: JobEntry) -> None:
        """A job has ended, or has got a reservation."""
        self.images.drop(entry)
        self._earlier.forget_job(entry.key)
        self.turns.forget(entry.key)
        self._placer.forget(entry)
        self.queues.forget(entry)
        self._orders.forget(entry.key)
        self.notes.forget(entry.key)

    def _read(self, entry: JobEntry) -> None:
        if entry.stage is not Stage.RESOLVING:
            # It has started meanwhile, and was taken as it is.
            with suppress(TextError):
                entry.lines = parse_job_lines(entry.job.metadata or "")
            return
        try:
            lines = parse_job_lines(entry.job.metadata or "")
            is_plain = not (lines.is_machine or lines.is_preemptible)
            words = "" if is_plain else refusal_of(self._site.settings, lines, entry.job)
        except TextError as error:
            words = str(error)
        if words:
            entry.stage = Stage.REFUSED
            entry.words = f"{words}; cancel it and submit it again"
            self.queues.note_refusal(entry, entry.words)
            self.queues.touch(entry)
            return
        entry.lines = lines
        self._resolve(entry)

    def _resolve(self, entry: JobEntry) -> None:
        """Go on with a job once it is known what its images are."""
        images = self.images.of(entry)
        if images is not None:
            self._found(entry, images)
            self.queues.touch(entry)

    def _found(self, entry: JobEntry, images: dict[str, FoundImage | str]) -> None:
        """It is known what its images are. Without its own it waits; options without theirs are left out."""
        assert entry.lines is not None
        lines, image = entry.lines, images[""]
        if isinstance(image, FoundImage) and lines.size_bytes not in (None, image.size_bytes):
            image = f"{lines.image} has {image.size_bytes} bytes, not {lines.size_bytes}: correct the size"
        further = further_images(lines, images)
        if isinstance(image, str) or isinstance(further, str):
            self.queues.refuse(entry, str(image if isinstance(image, str) else further), RETRY_S)
            return
        entry.options.images = images
        entry.image, entry.words = image, ""
        entry.further = tuple(
            JobEntry(job=entry.job, since_s=entry.since_s, lines=lines, number=number, image=each)
            for number, each in enumerate(further, 1)
        )
        if lines.options:
            self._sizes.found(entry)
            if entry.is_scheduled:
                self._sizes.in_turn(entry)
        self.queues.wait_for_nodes(entry)

    @property
    def _is_reviewing(self) -> bool:
        return bool(self._to_review) or self._is_review_wanted

    def _review_some(self) -> None:
        """Review the next few of all jobs, after each look. Where each will probably be is thought about
        anew, so a review that has begun ends before another begins, and nothing is chosen in between."""
        if not self._to_review:
            self._placer.begin()
            self.turns.go_on()
            if self.turns.is_under_way:
                return
            self._is_review_wanted = False
            self._to_review.extend(in_order(self.entries, self._site.now_s))
        improved = 0
        for _ in range(min(REVIEWED_AT_ONCE, len(self._to_review))):
            entry = self.entries.get(self._to_review.popleft())
            if entry is not None:
                improved += self._review(entry, may_improve=improved < MOST_IMPROVED)

    def _review(self, entry: JobEntry, *, may_improve: bool) -> bool:
        """Whether what was chosen for a job is still right. True if a better place was looked for."""
        self.queues.touch(entry)
        if entry.stage is Stage.WAITING and not entry.is_scheduled:
            self.queues.to_choose.add(entry.key, entry.job.uid)
        if entry.stage not in (Stage.STAGING, Stage.STAGED):
            return False
        for node in self._placer.renew(entry):
            self._placer.drop(entry, node)
        self._copies.mend(entry)
        if entry.job.state not in WAITING or entry.is_scheduled:
            # It is where it was led to; or is thought about with all others, at once.
            return False
        now_s = self._site.now_s
        may_improve = may_improve and now_s >= entry.improve_s
        if may_improve and entry.may_have_options and self._sizes.decide(entry):
            return True
        is_tried = self._placer.stand(entry, may_improve=may_improve)
        if is_tried:
            entry.improve_s = now_s + len(self.entries) // IMPROVED_PER_S
        return is_tried

    def _choose_some(self) -> None:
        """Nodes for the next of those that wait. What there are none for, others wait for in vain, too,
        until something is chosen: that is known without another search."""
        if not self.queues.to_choose:
            return
        self._placer.forget_failures()
        cost = 0
        for _ in range(CONSIDERED_AT_ONCE):
            for entry in self.queues.take(self.queues.to_choose, 1):
                if entry.stage is Stage.WAITING:
                    searches = self._placer.searches
                    is_chosen = self._choose(entry)
                    cost += (self._placer.searches - searches) * (1 if is_chosen else FAILURE_COSTS)
            if cost >= CHOSEN_AT_ONCE or not self.queues.to_choose:
                return

    def _choose(self, entry: JobEntry) -> bool:
        """Nodes for a job, unless it may run in a reservation of its user's; whether there are any."""
        assert entry.image is not None
        self.queues.touch(entry)
        if entry.job.state not in WAITING:
            return False
        entry.bound = self._bound.bind(entry, entry.image) if entry.job.state is JobState.HELD else ""
        if entry.bound:
            entry.looks = 0
            entry.words = f"it is to run in reservation {entry.bound}"
            return True
        if entry.may_have_options and self._sizes.decide(entry):
            return False
        if self._placer.choose(entry):
            names = ", ".join(self.names(set(entry.copies))[:8])
            what = ", ".join(each.image.uri for each in entry.parts if each.image is not None)
            what = f"its images {what} are" if entry.further else f"its image {what} is"
            self.queues.note(entry, "planned", f"{what} to be on {names}")
            return True
        if entry.bad:
            # Wherever it was tried it has failed, and there is nowhere else: no node may be to blame.
            soon_s = self._site.now_s + RETRY_S
            entry.bad = {node: min(until_s, soon_s) for node, until_s in entry.bad.items()}
        return False
