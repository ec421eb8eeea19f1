"""What nodes say of jobs' images: they have come, have not, or are gone; and what follows for the jobs."""

from __future__ import annotations

from outrider.service.desk.events import CopyFound, CopyLost, EventRouter
from outrider.service.desk.jobs.job import JobEntry, JobQueues, Stage
from outrider.service.desk.jobs.placement import JobPlacer
from outrider.service.desk.jobs.transfers import BestEffortTransfers
from outrider.service.desk.nodes.events import Arrived, Copied, Failed, Missed, News, Uncopied
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.owners import job_of_owner, number_of_owner
from outrider.service.desk.reservations.copies import ReservationCopies
from outrider.service.desk.state.site import Site
from outrider.service.meter import Log

BARRED_S = 300
"""For so long a node is gone round to which an image could not be brought."""
WRONG_S = 600
"""After so long an image is tried again that was another one than its user had said."""


class JobCopies:
    """Copies of images, as jobs count on them."""

    def __init__(
        self,
        site: Site,
        node_orders: NodeOrders,
        jobs: JobQueues,
        copies: ReservationCopies,
        events: EventRouter,
        best_effort: BestEffortTransfers,
        placer: JobPlacer,
        log: Log,
    ) -> None:
        self._site = site
        self._node_orders = node_orders
        self._jobs = jobs
        self._copies = copies
        self._best_effort = best_effort
        self._placer = placer
        self._log = log
        events.subscribe(CopyLost, self._lost)
        events.subscribe(CopyFound, self._found)

    def heard(self, news: list[News]) -> None:
        """What a node has said of jobs' images."""
        for each in news:
            entry = self._found_by(each.owner)
            number = self._site.book.timeline.number_of.get(each.node)
            if entry is None or number is None or number not in entry.copies:
                continue
            self._jobs.touch(entry)
            if isinstance(each, Arrived):
                self._arrived(entry, number)
            elif isinstance(each, Missed):
                self._missed(entry, number)
            elif isinstance(each, Failed):
                self._failed(entry, number)
            elif isinstance(each, Copied):
                entry.here.add(number)
                self._whole(entry).trouble = ""
            elif isinstance(each, Uncopied):
                self._avoid(entry, number, f"it is not copied for the job on {each.node}: {each.words}")
            else:
                self._best_effort.moved(entry, number)
                self._judge(entry, number, each.node)

    def mend(self, entry: JobEntry) -> None:
        """Too few copies are left, or on their way: choose anew, with what there is."""
        self._jobs.touch(entry)
        usable = self._jobs.usable(set(entry.copies))
        if len(usable) < entry.job.nodes_wanted and entry.stage in (Stage.STAGING, Stage.STAGED):
            self._placer.drop_all(entry)
            self._jobs.wait_for_nodes(entry)

    def _found_by(self, owner: str) -> JobEntry | None:
        """Whose a need on a node is: a job, or one of its further images."""
        key, number = job_of_owner(owner), number_of_owner(owner)
        entry = None if key is None else self._jobs.entries.get(key)
        return None if entry is None or number >= len(entry.parts) else entry.parts[number]

    def _whole(self, entry: JobEntry) -> JobEntry:
        """The job that an image is one of."""
        return self._jobs.entries[entry.job.key]

    def _arrived(self, entry: JobEntry, node: int) -> None:
        for each in self._best_effort.arrived(entry, node):
            name = self._jobs.name(node)
            if self._node_orders.is_prepared(name, each.owner):
                each.here.add(node)
            elif self._node_orders.has_copy(name, each.owner):
                self._whole(each).trouble = f"{name} makes the job's copy of it"
            elif node in each.copies:
                # It is asked at once, not when its transfer would have been asked after.
                self._best_effort.place(each, node, each.copies[node])
                if each.owner in self._node_orders.statuses[name].needs:
                    self._node_orders.hurry(name, each.owner, self._site.now_s)
            self._jobs.touch(each)

    def _missed(self, entry: JobEntry, node: int) -> None:
        """An image that was counted on is not there."""
        life, image, name = entry.copies[node], entry.image, self._jobs.name(node)
        assert image is not None
        self._log.warning("image is missing", node=name, image=image.uri, job=entry.key)
        if life.transfer is None:
            self._copies.lose(name, image.digest, f"image {image.uri} was no longer there")
        entry.here.discard(node)
        self.mend(self._whole(entry))

    def _failed(self, entry: JobEntry, node: int) -> None:
        name = self._jobs.name(node)
        status = self._node_orders.statuses[name]
        need = status.needs.get(entry.owner)
        if need is None:
            return
        words = status.words or need.words
        whole = self._whole(entry)
        if need.is_wrong:
            # At its address is another image: no node would get the right one.
            self._placer.drop_all(whole)
            self._jobs.refuse(whole, words, WRONG_S)
            return
        whole.trouble = f"it does not reach {name}: {words}"
        if entry.number and entry.image is not None:
            whole.trouble = f"{entry.image.uri} does not reach {name}: {words}"
        self._best_effort.failed(entry, node)
        if need.has_failed_often or need.transfer is None:
            self._log.warning("job's image does not arrive", job=entry.key, node=name, words=words)
            self._avoid(entry, node, whole.trouble)

    def _avoid(self, entry: JobEntry, node: int, words: str) -> None:
        """A node is of no use to a job for now: it is led to another, or waits."""
        whole = self._whole(entry)
        whole.trouble = words
        whole.bad[node] = self._site.now_s + BARRED_S
        self._placer.drop(whole, node)
        self.mend(whole)

    def _judge(self, entry: JobEntry, number: int, node: str) -> None:
        """Bytes arrive: what was wrong is over. Or none do, while the node still tries."""
        need = self._node_orders.statuses[node].needs.get(entry.owner)
        # A node that waits for its source goes on saying how fast it was.
        is_quiet, whole = self._best_effort.is_quiet(entry, number), self._whole(entry)
        if need is not None and need.rate and not is_quiet:
            whole.trouble = ""
        elif is_quiet and not whole.trouble:
            whole.trouble = f"nothing comes to {node} at the moment"

    def _lost(self, lost: CopyLost) -> None:
        """A copy is gone, for whomever it was."""
        number = self._site.book.timeline.number_of[lost.node]
        for entry in list(self._jobs.entries.values()):
            images = [each.image for each in entry.parts if each.image is not None]
            if number in entry.copies and any(image.digest == lost.image for image in images):
                self._placer.drop(entry, number)
                self.mend(entry)

    def _found(self, found: CopyFound) -> None:
        """A copy has come by itself, for whomever it was to be brought."""
        number = self._site.book.timeline.number_of[found.node]
        for entry in self._jobs.entries.values():
            for each in entry.parts:
                life = each.copies.get(number)
                if each.image is not None and each.image.digest == found.image and life is not None:
                    self._best_effort.place(each, number, life)
