"""What nodes say of jobs' images: they have come, have not, or are gone; and what follows for the jobs."""

from __future__ import annotations

from outrider.service.desk.events import CopyFound, CopyLost, EventRouter
from outrider.service.desk.jobs.job import Led
from outrider.service.desk.jobs.placement import Choosing
from outrider.service.desk.jobs.queues import LedJobs
from outrider.service.desk.jobs.transfers import Hauling
from outrider.service.desk.nodes.events import Arrived, Copied, Failed, Missed, News, Uncopied
from outrider.service.desk.nodes.orders import Staff
from outrider.service.desk.nodes.owners import job_of_owner
from outrider.service.desk.reservations.copies import Copies
from outrider.service.desk.state.site import Site
from outrider.service.meter import Log

BARRED_S = 300
"""For so long a node is gone round to which an image could not be brought."""
WRONG_S = 600
"""After so long an image is tried again that was another one than its user had said."""


class Deliveries:
    """Copies of images, as jobs count on them."""

    def __init__(
        self,
        site: Site,
        staff: Staff,
        jobs: LedJobs,
        copies: Copies,
        events: EventRouter,
        hauling: Hauling,
        choosing: Choosing,
        log: Log,
    ) -> None:
        self._site = site
        self._staff = staff
        self._jobs = jobs
        self._copies = copies
        self._hauling = hauling
        self._choosing = choosing
        self._log = log
        events.subscribe(CopyLost, self._lost)
        events.subscribe(CopyFound, self._found)

    def heard(self, news: list[News]) -> None:
        """What a node has said of jobs' images."""
        for each in news:
            key = job_of_owner(each.owner)
            led = None if key is None else self._jobs.led.get(key)
            number = self._site.book.timeline.number_of.get(each.node)
            if led is None or number is None or number not in led.copies:
                continue
            self._jobs.touch(led)
            if isinstance(each, Arrived):
                self._arrived(led, number)
            elif isinstance(each, Missed):
                self._missed(led, number)
            elif isinstance(each, Failed):
                self._failed(led, number)
            elif isinstance(each, Copied):
                led.ready.add(number)
                led.trouble = ""
            elif isinstance(each, Uncopied):
                self._avoid(led, number, f"it is not copied for the job on {each.node}: {each.words}")
            else:
                self._hauling.moved(led, number)
                self._judge(led, number, each.node)

    def _arrived(self, led: Led, node: int) -> None:
        for each in self._hauling.arrived(led, node):
            name = self._jobs.name(node)
            if self._staff.is_prepared(name, each.owner):
                each.ready.add(node)
            elif self._staff.has_copy(name, each.owner):
                each.trouble = f"{name} makes the job's copy of it"
            elif node in each.copies:
                # It is asked at once, not when its transfer would have been asked after.
                self._hauling.place(each, node, each.copies[node])
                if each.owner in self._staff.members[name].needs:
                    self._staff.hurry(name, each.owner, self._site.now_s)
            self._jobs.touch(each)

    def _missed(self, led: Led, node: int) -> None:
        """An image that was counted on is not there."""
        life, image, name = led.copies[node], led.image, self._jobs.name(node)
        assert image is not None
        self._log.warning("image is missing", node=name, image=image.uri, job=led.key)
        if life.transfer is None:
            self._copies.lose(name, image.digest, f"image {image.uri} was no longer there")
        led.ready.discard(node)
        self._jobs.mend(led)

    def _failed(self, led: Led, node: int) -> None:
        name = self._jobs.name(node)
        member = self._staff.members[name]
        need = member.needs.get(led.owner)
        if need is None:
            return
        words = member.words or need.words
        if need.is_wrong:
            # At its address is another image: no node would get the right one.
            self._choosing.drop_all(led)
            self._jobs.refuse(led, words, WRONG_S)
            return
        led.trouble = f"it does not reach {name}: {words}"
        self._hauling.failed(led, node)
        if need.has_failed_often or need.transfer is None:
            self._log.warning("job's image does not arrive", job=led.key, node=name, words=words)
            self._avoid(led, node, led.trouble)

    def _avoid(self, led: Led, node: int, words: str) -> None:
        """A node is of no use to a job for now: it is led to another, or waits."""
        led.trouble = words
        led.bad[node] = self._site.now_s + BARRED_S
        self._choosing.drop(led, node)
        self._jobs.mend(led)

    def _judge(self, led: Led, number: int, node: str) -> None:
        """Bytes arrive: what was wrong is over. Or none do, while the node still tries."""
        need = self._staff.members[node].needs.get(led.owner)
        # A node that waits for its source goes on saying how fast it was.
        is_quiet = self._hauling.is_quiet(led, number)
        if need is not None and need.rate and not is_quiet:
            led.trouble = ""
        elif is_quiet and not led.trouble:
            led.trouble = f"nothing comes to {node} at the moment"

    def _lost(self, lost: CopyLost) -> None:
        """A copy is gone, for whomever it was."""
        number = self._site.book.timeline.number_of[lost.node]
        for led in list(self._jobs.led.values()):
            if led.image is not None and led.image.digest == lost.image and number in led.copies:
                self._choosing.drop(led, number)
                self._jobs.mend(led)

    def _found(self, found: CopyFound) -> None:
        """A copy has come by itself, for whomever it was to be brought."""
        number = self._site.book.timeline.number_of[found.node]
        for led in self._jobs.led.values():
            life = led.copies.get(number)
            if led.image is not None and led.image.digest == found.image and life is not None:
                self._hauling.place(led, number, life)
