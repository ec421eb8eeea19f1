"""Best-effort jobs led to nodes that have their images: what is decided about each, and when.

The batch system is the truth about jobs and the pools are the truth about images: at each look the
two are compared, and what is to be done follows from that alone. So a job that was requeued, a
service that was killed and an order that was lost are no special cases. Nothing is released to
nodes that are not known to have its image, and nothing is ever cancelled here.
"""

from __future__ import annotations

from collections.abc import Iterator

from outrider.metadata.errors import TextError
from outrider.metadata.joblines import parse_job_lines
from outrider.rms.base import JobState, RmsJob, Sight
from outrider.service.desk.events import EventRouter
from outrider.service.desk.jobs.copies import Deliveries
from outrider.service.desk.jobs.image_lookup import JobImages
from outrider.service.desk.jobs.in_reservation import Binding
from outrider.service.desk.jobs.job import JobImage, Led, Stage
from outrider.service.desk.jobs.notes import LOOKUP_S, JobNotes
from outrider.service.desk.jobs.orders import JobOrders
from outrider.service.desk.jobs.placement import Choosing
from outrider.service.desk.jobs.queues import WAITING, LedJobs
from outrider.service.desk.jobs.release import ORDER_LOOKS, Settling
from outrider.service.desk.jobs.review import Reviewing
from outrider.service.desk.jobs.transfers import Hauling
from outrider.service.desk.nodes.earlier_pins import FIND_OUT_S
from outrider.service.desk.nodes.events import News
from outrider.service.desk.nodes.orders import Staff
from outrider.service.desk.reservations.copies import Copies
from outrider.service.desk.state.agenda import Agenda
from outrider.service.desk.state.site import Site
from outrider.service.images.slowness import host_of
from outrider.service.meter import Log, Meter
from outrider.service.ports import DropLookup, Readers, ResolveImage, TellUser

READ_AT_ONCE = 50
CONSIDERED_AT_ONCE = 200
CHOSEN_AT_ONCE = 20
"""Jobs for which nodes are searched for in one go."""
FAILURE_COSTS = 5
"""Where there are no nodes for a job, all were looked at: that counts as so many."""
RETRY_S = 60
GRACE_S = FIND_OUT_S
"""How long a job that an earlier service has led somewhere is left as it is."""
GONE = (JobState.RUNNING, JobState.SUSPENDED)


class Leading:
    """All jobs that name an image and have no reservation."""

    def __init__(
        self,
        site: Site,
        staff: Staff,
        agenda: Agenda,
        copies: Copies,
        events: EventRouter,
        hauling: Hauling,
        orders: JobOrders,
        log: Log,
        meter: Meter,
    ) -> None:
        self._site = site
        self._earlier = staff.earlier
        self._hauling = hauling
        self._orders = orders
        self._binding = Binding(site, orders, log)
        self._choosing = Choosing(site, hauling, log)
        self._jobs = LedJobs(site, agenda, self._choosing, log)
        self.images = JobImages()
        self.notes = JobNotes()
        self._reviewing = Reviewing(site, self._jobs, self._choosing)
        self._settling = Settling(site, self._jobs, hauling, orders, self.notes, log, meter)
        self._deliveries = Deliveries(site, staff, self._jobs, copies, events, hauling, self._choosing, log)
        self._asking: dict[ResolveImage, dict[str, None]] = {}
        """By question, the jobs that wait for its answer."""

    @property
    def led(self) -> dict[str, Led]:
        """All jobs by their keys."""
        return self._jobs.led

    def seen(self, sight: Sight) -> None:
        """A look at the batch system: jobs have come, started, gone."""
        is_first = self._earlier.looked(self._site.now_s)
        everybody = frozenset(job.key for job in sight.jobs)
        self._orders.saw(everybody)
        self._binding.forget_others(everybody)
        ours = {job.key for job in sight.jobs if job.metadata is not None and job.reservation is None}
        for key in [key for key in self.led if key not in ours]:
            self._forget(self.led[key])
        self._choosing.look(sight)
        foreign = frozenset(each.name for each in sight.reservations if not each.is_ours)
        for job in sight.jobs:
            if job.reservation is not None:
                self._binding.seen(job, foreign)
            elif job.metadata is not None:
                self._see(job, is_first=is_first)
        self._reviewing.begin()

    def heard(self, news: list[News]) -> None:
        """What a node has said of jobs' images."""
        self._deliveries.heard(news)

    def resolved(self, call: ResolveImage, result: object) -> None:
        """What is at an image's address."""
        self.images.answered(call, result, self._site.now_s)
        for key in self._asking.pop(call, ()):
            led = self.led.get(key)
            if led is not None and led.stage is Stage.RESOLVING and led.lines is not None:
                self._resolve(led)

    def lookups(self) -> Iterator[ResolveImage | DropLookup]:
        """What is to be looked up now, or no longer; the jobs that wait for it say so."""
        now_s = self._site.now_s
        for call in self.images.calls(now_s):
            if isinstance(call, ResolveImage):
                for key in self._asking.get(call, ()):
                    led = self.led.get(key)
                    if led is not None:
                        led.lookup_s = now_s
                        self._jobs.look_again(led, LOOKUP_S)
            yield call

    def told(self, call: TellUser, result: object) -> None:
        led = self.led.get(call.job)
        self.notes.told(call, result, led)
        if result is not None and led is not None:
            self._jobs.touch(led)

    def carried(self, job: str) -> None:
        """The batch system has done what it was asked for a job."""
        led = self.led.get(job)
        if led is not None:
            led.looks = 0
            is_held_by_others = led.job.state is JobState.HELD and not led.job.is_held_by_us
            led.is_left_to_others = led.released is not None and is_held_by_others

    def refused(self, job: str, words: str) -> None:
        """The batch system will not do it: that is seen, and said, until the next look."""
        led = self.led.get(job)
        if led is not None:
            led.is_ordered, led.looks = False, 0
            led.words = f"the batch system refuses to release it: {words}"
            self._jobs.touch(led)

    def turn(self, job: str) -> None:
        """The agenda says that it is time for a job."""
        led = self.led.get(job)
        if led is not None and led.stage in (Stage.RESOLVING, Stage.STAGING):
            # It may be time to say whom it waits for, or to wait for no more nodes.
            self._jobs.touch(led)
        if led is None or led.retry_s is None or led.retry_s > self._site.now_s:
            return
        led.retry_s = None
        if led.stage is Stage.REFUSED and led.lines is not None:
            led.stage = Stage.RESOLVING
            self._resolve(led)
        elif led.stage is Stage.WAITING:
            self._jobs.to_choose.add(led.key, led.job.uid)
        self._jobs.touch(led)

    def run(self) -> None:
        """What is due, but no more in one go than others can wait for: read what jobs want, review them,
        choose nodes, move images, release, tell."""
        for led in self._jobs.take(self._jobs.to_read, READ_AT_ONCE):
            self._read(led)
        if self._reviewing.is_under_way:
            self._reviewing.go_on()
        if not self._reviewing.is_under_way:
            self._choose_some()
        self._hauling.run()
        self._settling.run()

    @property
    def is_busy(self) -> bool:
        """Whether something was left to be done at once."""
        return self._jobs.is_busy or self._reviewing.is_under_way

    def next_s(self) -> int | None:
        """When to be asked again: at once, if anything was left."""
        now_s = self._site.now_s
        if self.is_busy:
            return now_s
        instants = [self._hauling.next_s(), self.notes.next_s(now_s)]
        return min((at_s for at_s in instants if at_s is not None), default=None)

    def reservation_of(self, job: str) -> str:
        """Our reservation that a job waits in; empty if it waits in none."""
        return self._binding.reservation_of(job)

    def names(self, nodes: set[int]) -> tuple[str, ...]:
        return self._jobs.names(nodes)

    def _see(self, job: RmsJob, *, is_first: bool) -> None:
        led = self.led.get(job.key)
        if led is not None and led.job is job and not led.bound:
            led.looks += 1
            return
        if led is not None and led.job.metadata != job.metadata:
            self._forget(led)
            led = None
        if led is None:
            led = self.led[job.key] = Led(job=job, since_s=min(job.submitted_s, self._site.now_s))
            if is_first and job.state is JobState.PENDING:
                led.grace_s = self._site.now_s + GRACE_S
                self._earlier.keep_for_job(led.key, led.grace_s)
                self._jobs.retry(led, GRACE_S)
        led.job = job
        led.is_array = led.is_array or job.tasks > 1
        led.looks += 1
        if led.bound and led.looks > ORDER_LOOKS:
            led.bound = ""
            self._jobs.wait_for_nodes(led)
        if job.state in GONE and led.stage is not Stage.RUNNING:
            self._drop_lookup(led)
            led.stage, led.words, led.retry_s = Stage.RUNNING, "", None
            self._choosing.start(led, job)
        elif job.state in WAITING and led.stage is Stage.RUNNING:
            self._again(led)
        elif job.state in WAITING and led.stage is Stage.RESOLVING and led.lines is None:
            # Also one that was just starting when it was seen first, and came back.
            self._jobs.to_read.add(led.key, led.job.uid)
        if job.state is not JobState.HELD or job.is_held_by_us:
            led.is_left_to_others = False

    def _again(self, led: Led) -> None:
        """A job that has run waits again: wherever its image is by now."""
        self._choosing.drop_all(led)
        led.since_s, led.released, led.is_ordered = self._site.now_s, None, False
        led.stage = Stage.RESOLVING
        if led.lines is None:
            self._jobs.to_read.add(led.key, led.job.uid)
        else:
            self._resolve(led)

    def _forget(self, led: Led) -> None:
        """A job has ended, or has got a reservation."""
        self._drop_lookup(led)
        self._earlier.forget_job(led.key)
        self._jobs.forget(led)
        self._orders.drop(led.key)
        self.notes.forget(led.key)

    def _drop_lookup(self, led: Led) -> None:
        """A job does not wait any more for what its image is; if no other does, nobody asks for it."""
        if led.lines is None or led.stage is not Stage.RESOLVING:
            return
        question = _question(led)
        jobs = self._asking.get(question, {})
        jobs.pop(led.key, None)
        if not jobs:
            self._asking.pop(question, None)
            self.images.drop(question)

    def _read(self, led: Led) -> None:
        if led.stage is not Stage.RESOLVING:
            # It has started meanwhile.
            return
        try:
            led.lines = parse_job_lines(led.job.metadata or "")
        except TextError as error:
            led.stage = Stage.REFUSED
            led.words = f"{error}; cancel it and submit it anew"
            self._jobs.note_refusal(led, led.words)
            self._jobs.touch(led)
            return
        self._resolve(led)

    def _resolve(self, led: Led) -> None:
        assert led.lines is not None
        question = _question(led)
        found = self.images.ask(question, self._site.now_s)
        if found is None:
            self._asking.setdefault(question, {})[led.key] = None
            led.lookup, led.lookup_s = host_of(question.uri), self.images.asked_s(question)
            return
        led.lookup, led.lookup_s = "", None
        lines, image = led.lines, found.image
        words = found.words
        if image is not None and lines.size_bytes not in (None, image.size_bytes):
            words = f"{lines.image} has {image.size_bytes} bytes, not {lines.size_bytes}: correct the size"
        if image is None or words:
            self._jobs.refuse(led, words, RETRY_S)
        else:
            led.image = JobImage(
                uri=image.uri or lines.image,
                digest=image.digest,
                size_bytes=image.size_bytes,
                format=lines.format or image.format,
                readers=Readers(uids=(led.job.uid,)) if lines.is_private else None,
            )
            led.words = ""
            self._jobs.wait_for_nodes(led)
        self._jobs.touch(led)

    def _choose_some(self) -> None:
        """Nodes for the next of those that wait. What there are none for, others wait for in vain, too,
        until something is chosen: that is known without another search."""
        if not self._jobs.to_choose:
            return
        self._choosing.forget_failures()
        cost = 0
        for _ in range(CONSIDERED_AT_ONCE):
            for led in self._jobs.take(self._jobs.to_choose, 1):
                if led.stage is Stage.WAITING:
                    searches = self._choosing.searches
                    is_chosen = self._choose(led)
                    cost += (self._choosing.searches - searches) * (1 if is_chosen else FAILURE_COSTS)
            if cost >= CHOSEN_AT_ONCE or not self._jobs.to_choose:
                return

    def _choose(self, led: Led) -> bool:
        """Nodes for a job, unless it may run in a reservation of its user's; whether there are any."""
        assert led.image is not None
        self._jobs.touch(led)
        if led.job.state not in WAITING:
            return False
        led.bound = self._binding.bind(led, led.image) if led.job.state is JobState.HELD else ""
        if led.bound:
            led.looks = 0
            led.words = f"it is to run in reservation {led.bound}"
            return True
        if self._choosing.choose(led):
            names = ", ".join(self.names(set(led.copies))[:8])
            self._jobs.note(led, "planned", f"its image {led.image.uri} is to be on {names}")
            return True
        if led.bad:
            # Wherever it was tried it has failed, and there is nowhere else: no node may be to blame.
            soon_s = self._site.now_s + RETRY_S
            led.bad = {node: min(until_s, soon_s) for node, until_s in led.bad.items()}
        return False


def _question(led: Led) -> ResolveImage:
    assert led.lines is not None
    lines = led.lines
    return ResolveImage(uri=lines.image, digest=lines.digest, is_private=lines.is_private, uid=led.job.uid)
