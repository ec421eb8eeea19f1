"""Best-effort jobs led to nodes that have their images: what is decided about each, and when.

The batch system is the truth about jobs and the pools are the truth about images: at each look the
two are compared, and what is to be done follows from that alone. So a job that was requeued, a
service that was killed and an order that was lost are no special cases. Nothing is released to
nodes that are not known to have its image, and nothing is ever cancelled here.
"""

from __future__ import annotations

from outrider.metadata.errors import TextError
from outrider.metadata.joblines import parse_job_lines
from outrider.rms.base import JobState, RmsJob, Sight
from outrider.service.desk.agenda import Agenda, Topic
from outrider.service.desk.binding import Binding
from outrider.service.desk.choosing import Choosing
from outrider.service.desk.copies import Copies
from outrider.service.desk.hauling import Hauling
from outrider.service.desk.jobeffects import TicketFields, hold_effect, release_effect
from outrider.service.desk.jobimages import JobImages
from outrider.service.desk.jobnotes import JobNotes, note_of
from outrider.service.desk.joborders import JobOrders
from outrider.service.desk.led import JobImage, Led, Stage, job_of_owner
from outrider.service.desk.news import Arrived, Failed, Missed, News
from outrider.service.desk.site import Site
from outrider.service.desk.staff import Staff
from outrider.service.meter import Log, Meter
from outrider.service.ports import Readers, ResolveImage, TellUser

MOST_AT_ONCE = 20
"""Jobs for which nodes are chosen in one go; the others follow a second later."""
MOST_FAILURES = 3
BARRED_S = 300
"""For so long a node is gone round to which an image could not be brought."""
RETRY_S = 60
WRONG_S = 600
"""After so long an image is tried again that was another one than its user had said."""
WRONG_BYTES = "wrong-bytes"
ORDER_LOOKS = 2
"""After so many looks that do not show what was ordered it is ordered again."""
GRACE_S = 90
"""How long a job that an earlier service has led somewhere is left as it is."""
TICKET_S = 30 * 86_400
WAITING = (JobState.HELD, JobState.PENDING)
GONE = (JobState.RUNNING, JobState.SUSPENDED)


class Leading:
    """All jobs that name an image and have no reservation."""

    def __init__(
        self,
        site: Site,
        staff: Staff,
        agenda: Agenda,
        copies: Copies,
        hauling: Hauling,
        orders: JobOrders,
        log: Log,
        meter: Meter,
    ) -> None:
        self._site = site
        self._staff = staff
        self._agenda = agenda
        self._copies = copies
        self._hauling = hauling
        self._orders = orders
        self._binding = Binding(site, orders, log)
        self._choosing = Choosing(site, hauling, log)
        self._log = log
        self._meter = meter
        self.led: dict[str, Led] = {}
        self.images = JobImages()
        self.notes = JobNotes()
        self._looked_s: int | None = None
        """When the batch system was seen first."""
        self._to_choose: dict[str, None] = {}
        self._touched: dict[str, None] = {}
        copies.lost_copy = self._lost
        copies.found_copy = self._found
        staff.spares = self._spares
        staff.knows_all = self._knows_all

    def seen(self, sight: Sight) -> None:
        """A look at the batch system: jobs have come, started, gone."""
        is_first = self._looked_s is None
        self._looked_s = self._site.now_s if self._looked_s is None else self._looked_s
        everybody = frozenset(job.key for job in sight.jobs)
        self._orders.saw(everybody)
        self._binding.forget_others(everybody)
        ours = {job.key for job in sight.jobs if job.metadata is not None and job.reservation is None}
        for key in [key for key in self.led if key not in ours]:
            self._forget(self.led[key])
        self._choosing.look(sight)
        for job in sight.jobs:
            if job.reservation is not None:
                self._binding.seen(job)
            elif job.metadata is not None:
                self._see(job, is_first=is_first)
        self._review()

    def heard(self, news: list[News]) -> None:
        """What a node has said of jobs' images."""
        for each in news:
            key = job_of_owner(each.owner)
            led = None if key is None else self.led.get(key)
            number = self._site.book.timeline.number_of.get(each.node)
            if led is None or number is None or number not in led.copies:
                continue
            self._touch(led)
            if isinstance(each, Arrived):
                self._arrived(led, number)
            elif isinstance(each, Missed):
                self._missed(led, number)
            elif isinstance(each, Failed):
                self._failed(led, number)
            else:
                self._hauling.moved(led, number)
                self._judge(led, number, each.node)

    def resolved(self, call: ResolveImage, result: object) -> None:
        """What is at an image's address."""
        self.images.answered(call, result, self._site.now_s)
        for led in list(self.led.values()):
            if led.stage is Stage.RESOLVING and led.lines is not None and _question(led) == call:
                self._resolve(led)

    def told(self, call: TellUser, result: object) -> None:
        led = self.led.get(call.job)
        self.notes.told(call, result, led)
        if result is not None and led is not None:
            self._touch(led)

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
            self._touch(led, settles=False)

    def turn(self, job: str) -> None:
        """The agenda says that it is time for a job."""
        led = self.led.get(job)
        if led is None or led.retry_s is None or led.retry_s > self._site.now_s:
            return
        led.retry_s = None
        if led.stage is Stage.REFUSED:
            led.stage = Stage.RESOLVING
            self._resolve(led)
        elif led.stage is Stage.WAITING:
            self._to_choose[led.key] = None
        self._touch(led)

    def run(self) -> None:
        """Everything that is due: choose nodes, move images, release, tell."""
        for key in list(self._to_choose)[:MOST_AT_ONCE]:
            del self._to_choose[key]
            led = self.led.get(key)
            if led is not None and led.stage is Stage.WAITING:
                self._choose(led)
        self._hauling.run()
        touched, self._touched = list(self._touched), {}
        if not touched:
            return
        ends = self._hauling.lane.ends(self._hauling.slots(), self._site.now_s)
        for key in touched:
            led = self.led.get(key)
            if led is not None:
                self._settle(led)
                self._expect(led, ends)
                self._tell(led)

    def next_s(self) -> int | None:
        """When to be asked again."""
        now_s = self._site.now_s
        instants = [self._hauling.next_s(), self.notes.next_s(now_s)]
        if self._to_choose or self._touched:
            instants.append(now_s + 1)
        return min((at_s for at_s in instants if at_s is not None), default=None)

    def reservation_of(self, job: str) -> str:
        """Our reservation that a job waits in; empty if it waits in none."""
        return self._binding.reservation_of(job)

    def names(self, nodes: set[int]) -> tuple[str, ...]:
        known = self._site.book.timeline.nodes
        return tuple(sorted(known[node].name for node in nodes))

    def _see(self, job: RmsJob, *, is_first: bool) -> None:
        led = self.led.get(job.key)
        if led is not None and led.job.metadata != job.metadata:
            self._forget(led)
            led = None
        if led is None:
            led = self.led[job.key] = Led(job=job, since_s=min(job.submitted_s, self._site.now_s))
            if is_first and job.state is JobState.PENDING:
                led.grace_s = self._site.now_s + GRACE_S
                self._retry(led, GRACE_S)
            if job.state in WAITING:
                self._read(led)
        led.job = job
        led.is_array = led.is_array or job.tasks > 1
        led.looks += 1
        if led.bound and led.looks > ORDER_LOOKS:
            led.bound, led.stage = "", Stage.WAITING
            self._to_choose[led.key] = None
        if job.state in GONE and led.stage is not Stage.RUNNING:
            led.stage, led.words, led.retry_s = Stage.RUNNING, "", None
            self._choosing.start(led, job)
        elif job.state in WAITING and led.stage is Stage.RUNNING:
            self._again(led)
        if job.state is not JobState.HELD or job.is_held_by_us:
            led.is_left_to_others = False
        self._touch(led)

    def _again(self, led: Led) -> None:
        """A job that has run waits again: wherever its image is by now."""
        self._choosing.drop_all(led)
        led.since_s, led.released, led.is_ordered = self._site.now_s, None, False
        led.stage = Stage.RESOLVING
        if led.lines is None:
            self._read(led)
        else:
            self._resolve(led)

    def _forget(self, led: Led) -> None:
        """A job has ended, or has got a reservation."""
        self._choosing.drop_all(led)
        self._orders.drop(led.key)
        self.notes.forget(led.key)
        self._to_choose.pop(led.key, None)
        del self.led[led.key]

    def _read(self, led: Led) -> None:
        try:
            led.lines = parse_job_lines(led.job.metadata or "")
        except TextError as error:
            led.stage = Stage.REFUSED
            led.words = f"{error}; cancel it and submit it anew"
            self._note(led, "refused", led.words)
            return
        self._resolve(led)

    def _resolve(self, led: Led) -> None:
        assert led.lines is not None
        found = self.images.ask(_question(led), self._site.now_s)
        if found is None:
            return
        lines, image = led.lines, found.image
        words = found.words
        if image is not None and lines.size_bytes not in (None, image.size_bytes):
            words = f"{lines.image} has {image.size_bytes} bytes, not {lines.size_bytes}: correct the size"
        if image is None or words:
            self._refuse(led, words, RETRY_S)
        else:
            led.image = JobImage(
                uri=lines.image,
                digest=image.digest,
                size_bytes=image.size_bytes,
                format=lines.format or image.format,
                readers=Readers(uids=(led.job.uid,)) if lines.is_private else None,
            )
            led.stage, led.words = Stage.WAITING, ""
            self._to_choose[led.key] = None
        self._touch(led)

    def _choose(self, led: Led) -> None:
        """Nodes for a job, unless it may run in a reservation of its user's."""
        assert led.image is not None
        if led.job.state not in WAITING:
            return
        led.bound = self._binding.bind(led, led.image) if led.job.state is JobState.HELD else ""
        if led.bound:
            led.looks = 0
            led.words = f"it is to run in reservation {led.bound}"
        elif self._choosing.choose(led):
            names = ", ".join(self.names(set(led.copies))[:8])
            self._note(led, "planned", f"its image {led.image.uri} is to be on {names}")
        elif led.bad:
            # Wherever it was tried it has failed, and there is nowhere else: no node may be to blame.
            soon_s = self._site.now_s + RETRY_S
            led.bad = {node: min(until_s, soon_s) for node, until_s in led.bad.items()}
        self._touch(led)

    def _arrived(self, led: Led, node: int) -> None:
        for each in self._hauling.arrived(led, node):
            name = self.names({node})[0]
            if self._staff.has_copy(name, each.owner):
                each.ready.add(node)
            elif node in each.copies:
                # It is asked at once, not when its transfer would have been asked after.
                self._hauling.place(each, node, each.copies[node])
                if each.owner in self._staff.members[name].needs:
                    self._staff.hurry(name, each.owner, self._site.now_s)
            self._touch(each)

    def _missed(self, led: Led, node: int) -> None:
        """An image that was counted on is not there."""
        life, image = led.copies[node], led.image
        assert image is not None
        self._log.warning("image is missing", node=self.names({node})[0], image=image.uri, job=led.key)
        if life.transfer is None:
            self._copies.lose(self.names({node})[0], image.digest, f"image {image.uri} was no longer there")
        led.ready.discard(node)
        self._mend(led)

    def _failed(self, led: Led, node: int) -> None:
        name = self.names({node})[0]
        member = self._staff.members[name]
        need = member.needs.get(led.owner)
        if need is None:
            return
        words = member.words or need.words
        if need.code == WRONG_BYTES:
            # At its address is another image: no node would get the right one.
            self._choosing.drop_all(led)
            self._refuse(led, words, WRONG_S)
            return
        led.trouble = f"it does not reach {name}: {words}"
        self._hauling.failed(led, node)
        if need.failures >= MOST_FAILURES or need.transfer is None:
            self._log.warning("job's image does not arrive", job=led.key, node=name, words=words)
            led.bad[node] = self._site.now_s + BARRED_S
            self._choosing.drop(led, node)
            self._mend(led)

    def _judge(self, led: Led, number: int, node: str) -> None:
        """Bytes arrive: what was wrong is over. Or none do, while the node still tries."""
        need = self._staff.members[node].needs.get(led.owner)
        # A node that waits for its source goes on saying how fast it was.
        is_quiet = self._hauling.is_quiet(led, number)
        if need is not None and need.rate and not is_quiet:
            led.trouble = ""
        elif is_quiet and not led.trouble:
            led.trouble = f"nothing comes to {node} at the moment"

    def _refuse(self, led: Led, words: str, after_s: int) -> None:
        """Its user has to do something; or it is right when it is tried again."""
        if led.words != words:
            self._note(led, "refused", words)
        led.stage, led.words, led.trouble = Stage.REFUSED, words, ""
        self._retry(led, after_s)

    def _lost(self, node: str, key: str) -> None:
        """A copy is gone, for whomever it was."""
        number = self._site.book.timeline.number_of[node]
        for led in list(self.led.values()):
            if led.image is not None and led.image.digest == key and number in led.copies:
                self._choosing.drop(led, number)
                self._mend(led)

    def _found(self, node: str, key: str) -> None:
        """A copy has come by itself, for whomever it was to be brought."""
        number = self._site.book.timeline.number_of[node]
        for led in self.led.values():
            life = led.copies.get(number)
            if led.image is not None and led.image.digest == key and life is not None:
                self._hauling.place(led, number, life)

    def _mend(self, led: Led) -> None:
        """Too few copies are left, or on their way: choose anew, with what there is."""
        self._touch(led)
        usable = self._usable(set(led.copies))
        if len(usable) < led.job.nodes_wanted and led.stage in (Stage.STAGING, Stage.STAGED):
            self._choosing.drop_all(led)
            led.stage = Stage.WAITING
            self._to_choose[led.key] = None

    def _review(self) -> None:
        """After each look: what was chosen before is still right, or is not."""
        improved = 0
        for led in list(self.led.values()):
            if led.stage in (Stage.STAGING, Stage.STAGED):
                for node in self._choosing.renew(led):
                    self._choosing.drop(led, node)
                self._mend(led)
                if led.job.state in WAITING and improved < MOST_AT_ONCE:
                    improved += self._choosing.improve(led)
                self._choosing.stand(led)
            elif led.stage is Stage.WAITING:
                self._to_choose[led.key] = None

    def _settle(self, led: Led) -> None:
        """Hold or release a job, as its image is where it may start, or is not."""
        if led.stage is Stage.RUNNING or led.job.state not in WAITING or led.bound:
            return
        usable = self._usable(led.ready)
        if len(usable) >= led.job.nodes_wanted:
            if led.stage is Stage.STAGING:
                self._staged(led)
            self._release(led, self.names(usable))
        elif led.job.state is JobState.PENDING or led.released is not None:
            if led.stage is Stage.STAGED:
                led.stage = Stage.STAGING
            self._hold(led)

    def _staged(self, led: Led) -> None:
        led.stage, led.words, led.trouble, led.ready_s = Stage.STAGED, "", "", self._site.now_s
        waited_s = self._site.now_s - led.since_s
        self._meter.count("outrider_jobs_staged_total")
        self._meter.observe("outrider_job_wait_seconds", waited_s)
        self._note(led, "staged", f"its image is where it may start, {waited_s} s after it was submitted")
        self._log.info("job is staged", job=led.key, seconds=waited_s)

    def _release(self, led: Led, nodes: tuple[str, ...]) -> None:
        if led.released is not None and led.looks == 0 and set(nodes) > set(led.released):
            # More and more nodes have it: that can be said once for all of them.
            return
        is_seen = led.job.state is JobState.PENDING
        is_due = not led.is_ordered or (led.looks >= ORDER_LOOKS and not is_seen)
        if led.released == nodes and (not is_due or led.is_left_to_others):
            return
        led.is_left_to_others = False
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
        is_due = not led.is_ordered or (led.looks >= ORDER_LOOKS and led.job.state is JobState.PENDING)
        if led.released is None and not is_due:
            return
        led.released, led.is_ordered, led.looks = None, True, 0
        self._orders.order(hold_effect(led.key, "its image is not on its nodes yet", self._site.now_s))
        self._log.info("job is held", job=led.key)

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
        text = note_of(led, self.names(led.ready), self._site.settings.longest_wait_s, now_s)
        if led.is_overdue and not was_overdue:
            self._note(led, "overdue", text)
        self.notes.consider(led, text, now_s)

    def _usable(self, nodes: set[int]) -> set[int]:
        available = self._site.book.available
        return {node for node in nodes if available >> node & 1}

    def _spares(self, owner: str) -> bool:
        """Whether a job may still count on a pin that nobody knows any more."""
        key = job_of_owner(owner)
        if key is None:
            return False
        led = self.led.get(key)
        return self._looked_s is None or (led is not None and self._site.now_s < led.grace_s)

    def _knows_all(self) -> bool:
        """Whether what an earlier service had brought for jobs is known to be wanted or not."""
        return self._looked_s is not None and self._site.now_s - self._looked_s >= GRACE_S

    def _retry(self, led: Led, after_s: int) -> None:
        led.retry_s = self._site.now_s + after_s
        self._agenda.add(led.retry_s, Topic.JOB, led.key)

    def _touch(self, led: Led, *, settles: bool = True) -> None:
        self._touched[led.key] = None

    def _note(self, led: Led, outcome: str, reason: str) -> None:
        self._site.note("lead", f"job {led.key}", outcome, reason, uid=led.job.uid)


def _question(led: Led) -> ResolveImage:
    assert led.lines is not None
    lines = led.lines
    return ResolveImage(uri=lines.image, digest=lines.digest, is_private=lines.is_private, uid=led.job.uid)
