"""A plain event loop around the scheduler, with books of its own about what really happens.

It carries out decisions as a service would (transfers begin and end, runs begin and end,
reservations are used, cancelled or ended early) and complains as soon as something that was
promised is not so. What it knows comes from the decisions handed out, second by second, not
from the scheduler's own tables; those are then compared with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import pairwise
from re import finditer

from outrider.core.besteffort.board import BestEffortRun
from outrider.core.images.pools import Life
from outrider.core.links.fifo import Scheduled
from outrider.core.model import Reservation, Transfer, Workspace
from outrider.core.reservations.book import ReservationPlan
from tests.unit.core.sites import Site, steps

END, CANCEL, LINK, SUBMIT, SCHEDULE, BEGIN = range(6)
RESUMING, USEFUL, SUSPENDING, IDLE = "RUS."


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """A workspace handed in at `at_s` that really runs `run_s`; a reservation may be cancelled."""

    at_s: int
    workspace: Workspace
    run_s: int
    cancel_s: int | None = None


@dataclass(slots=True, eq=False)
class Copy:
    """An image on a node's disk, or on its way there."""

    node: int
    life: Life
    has_begun: bool = False
    has_arrived: bool = False
    users: set[str] = field(default_factory=set)


@dataclass(slots=True, eq=False)
class Record:
    """What a run has done, one letter a second from `since_s` on."""

    run: BestEffortRun
    run_s: int
    since_s: int
    work: list[str] = field(default_factory=list)
    cuts: set[int] = field(default_factory=set)
    version: int = 0
    has_begun: bool = False
    was_finished: bool = False
    was_requeued: bool = False


class Driver:
    """One history of one site."""

    def __init__(self, site: Site, requests: list[Request], *, link_first: bool = False) -> None:
        self.site = site
        self.scheduler = site.scheduler()
        self.now_s = 0
        self.log: list[object] = []
        self.copies: dict[int, Copy] = {}
        self.records: list[Record] = []
        self.kept: list[Reservation] = []
        self.accepted: dict[str, Reservation] = {}
        self.active: set[str] = set()
        self.fifo: list[Scheduled] = []
        self._arrived: set[tuple[int, str]] = set()
        self._usage: list[tuple[int, int, int, int, Workspace]] = []
        self._requests = {request.workspace.name: request for request in requests}
        self._heap: list[tuple[int, int, int, Callable[..., None], tuple[object, ...]]] = []
        self._sequence = 0
        self._order_of_link = LINK if link_first else BEGIN
        for request in requests:
            self._at(request.at_s, SUBMIT, self._submit, request)

    def run(self) -> None:
        while self._heap:
            at_s = self._heap[0][0]
            self._work_until(at_s)
            self.now_s = at_s
            while self._heap and self._heap[0][0] == at_s:
                _, _, _, happen, arguments = heappop(self._heap)
                happen(*arguments)
            self._check()
        self._check_end()

    def _at(self, at_s: int, order: int, happen: Callable[..., None], *arguments: object) -> None:
        self._sequence += 1
        heappush(self._heap, (at_s, order, self._sequence, happen, arguments))

    # What happens.

    def _submit(self, request: Request) -> None:
        workspace = request.workspace
        self._at(self.now_s, SCHEDULE, self._schedule)
        if workspace.is_best_effort:
            self.log.append((self.now_s, workspace.name, self.scheduler.submit(workspace)))
            return
        expected = self.scheduler.what_if(workspace, self.now_s)
        answer = self.scheduler.reserve(workspace, self.now_s)
        if not isinstance(answer.admission, ReservationPlan):
            assert answer.admission == expected
            self.log.append((self.now_s, workspace.name, answer.admission))
            return
        assert isinstance(expected, ReservationPlan)
        assert expected.fits == answer.admission.fits
        assert expected.transfers == answer.admission.transfers
        reservation = self.scheduler.book.entries[workspace.name].reservation
        self.log.append((self.now_s, workspace.name, reservation))
        self._expect(reservation, request)
        for run in answer.moved:
            self._follow(run)
        self._notice_requeued()
        self._watch_link()

    def _notice_requeued(self) -> None:
        """Whoever is in nobody's way any more waits again; what was expected of it is void."""
        for record in self.records:
            is_gone = self.scheduler.board.runs.get(record.run.name) is not record.run
            if is_gone and not record.was_finished and not record.was_requeued:
                record.was_requeued = True
                record.version += 1
                self._leave(record.run.name)

    def _expect(self, reservation: Reservation, request: Request) -> None:
        workspace = reservation.workspace
        assert reservation.start_s >= self.now_s
        assert workspace.start_s is not None
        assert reservation.start_s >= workspace.start_s
        assert reservation.end_s == reservation.start_s + workspace.duration_s
        if workspace.finish_by_s is None:
            assert reservation.start_s == workspace.start_s
        else:
            assert reservation.end_s <= workspace.finish_by_s
        assert sum(placement.instances for placement in reservation.placements) == workspace.instances
        assert len(set(reservation.nodes)) == len(reservation.nodes)
        self.accepted[workspace.name] = reservation
        entry = self.scheduler.book.entries[workspace.name]
        for node, life in entry.lives:
            self._use(node, life, workspace.name)
        if request.cancel_s is not None and self.now_s <= request.cancel_s < reservation.start_s:
            self._at(request.cancel_s, CANCEL, self._end_reservation, workspace.name)
            return
        self._at(reservation.start_s, BEGIN, self._begin_reservation, workspace.name)
        self._at(reservation.start_s + request.run_s, END, self._end_reservation, workspace.name)

    def _begin_reservation(self, name: str) -> None:
        reservation = self.accepted[name]
        assert self.now_s == reservation.start_s
        self.active.add(name)

    def _end_reservation(self, name: str) -> None:
        self.scheduler.end_reservation(name, self.now_s)
        self.active.discard(name)
        self._leave(name)
        reservation = self.accepted.pop(name)
        if self.now_s > reservation.start_s:
            self.kept.append(reservation)
            nodes = {node.name: number for number, node in enumerate(self.site.nodes)}
            for placement in reservation.placements:
                self._took(
                    nodes[placement.node],
                    reservation.start_s,
                    self.now_s,
                    placement.instances,
                    reservation.workspace,
                )
        self._at(self.now_s, SCHEDULE, self._schedule)
        self._watch_link()

    def _watch_link(self) -> None:
        following = self.scheduler.book.link.next_start(self.now_s)
        if following is not None:
            self._at(following[0], self._order_of_link, self._maybe_begin_transfer)

    def _maybe_begin_transfer(self) -> None:
        book = self.scheduler.book
        following = book.link.next_start(self.now_s)
        if following is None or following[0] > self.now_s:
            return
        transfer = book.link.begin(following[1], self.now_s)
        self.log.append((self.now_s, "begin", transfer))
        self._begin_copies(transfer)
        self._at(self.now_s + transfer.duration_s, END, self._end_transfer)

    def _begin_copies(self, transfer: Transfer) -> None:
        book = self.scheduler.book
        for node, life in book.lives_of(transfer.number):
            assert life.image.key == transfer.image.key
            assert book.timeline.nodes[node].name in transfer.nodes
            self._copy(node, life).has_begun = True
        book.transfer_begun(transfer.number, self.now_s)

    def _end_transfer(self) -> None:
        book = self.scheduler.book
        ((running, _),) = book.link.under_way()
        transfer = book.link.end(running.number, self.now_s)
        assert transfer.deadline_s is not None
        assert self.now_s <= transfer.deadline_s
        for node, life in book.transfer_done(transfer.number, self.now_s):
            self._copy(node, life).has_arrived = True
        self._at(self.now_s, SCHEDULE, self._schedule)
        self._watch_link()

    def _schedule(self) -> None:
        changed = self.scheduler.schedule(self.now_s)
        self._notice_requeued()
        for run in changed:
            self.log.append((self.now_s, run.name, run.segments, run.transfers))
            if not any(record.run is run for record in self.records):
                self._new_run(run)
            self._follow(run)

    def _new_run(self, run: BestEffortRun) -> None:
        run_s = min(self._requests[run.workspace.name].run_s, run.workspace.duration_s)
        self.records.append(Record(run, run_s, self.now_s))
        for node, life in run.lives:
            self._use(node, life, run.name)
        for sent in run.transfers:
            assert not self.fifo or sent.start_s >= self.fifo[-1].end_s
            assert sent.start_s >= self.now_s
            self.fifo.append(sent)
            self._at(sent.start_s, self._order_of_link, self._begin_copies, sent.transfer)
            self._at(sent.end_s, END, self._arrive, sent.transfer)

    def _arrive(self, transfer: Transfer) -> None:
        for name in transfer.nodes:
            self._arrived.add((transfer.number, name))
        for node, life in self.scheduler.book.transfer_done(transfer.number, self.now_s):
            self._copy(node, life).has_arrived = True
        self._at(self.now_s, SCHEDULE, self._schedule)

    def _follow(self, run: BestEffortRun) -> None:
        """What was expected of the run before is void."""
        record = next(record for record in self.records if record.run is run)
        record.version += 1
        record.cuts.add(self.now_s)
        if not run.has_begun:
            self._at(run.start_s, BEGIN, self._begin_run, record, record.version)
        left_s = record.run_s - record.work.count(USEFUL)
        at_s = self.now_s
        while left_s:
            left_s -= self._does(run, at_s) == USEFUL
            at_s += 1
            assert at_s <= run.end_s, f"{run.name} has no time planned for {left_s} s of its work"
        self._at(at_s, END, self._end_run, record, record.version)

    def _begin_run(self, record: Record, version: int) -> None:
        if record.version != version:
            return
        run = record.run
        record.has_begun = True
        assert run.start_s == self.now_s
        assert run.ready_s <= self.now_s
        if run.workspace.image is not None:
            nodes = {node for node, life in run.lives if self._copy(node, life).has_arrived}
            nodes |= {
                self.scheduler.book.timeline.number_of[name]
                for sent in run.transfers
                for name in sent.transfer.nodes
                if (sent.transfer.number, name) in self._arrived
            }
            assert {share.node for share in run.segments[0].shares} <= nodes, f"{run.name} lacks its image"
        self.scheduler.queue.begin(run, self.now_s)

    def _end_run(self, record: Record, version: int) -> None:
        if record.version != version:
            return
        run = record.run
        assert record.work.count(USEFUL) == record.run_s
        if record.run_s == run.workspace.duration_s:
            assert self.now_s == run.end_s, f"{run.name} is done but holds its nodes until {run.end_s}"
        record.was_finished = True
        self.scheduler.queue.finish(run, self.now_s)
        self._leave(run.name)
        self.log.append((self.now_s, run.name, "done", run.segments))
        self._at(self.now_s, SCHEDULE, self._schedule)

    # The driver's own books.

    def _copy(self, node: int, life: Life) -> Copy:
        return self.copies.setdefault(
            id(life), Copy(node, life, life.transfer is None, life.transfer is None)
        )

    def _use(self, node: int, life: Life, user: str) -> None:
        copy = self._copy(node, life)
        assert copy.node == node
        image = (self.accepted[user].workspace if user in self.accepted else self._run(user).workspace).image
        assert image is not None
        if not self.site.joins_any_image:
            assert life.image.key == image.key
        copy.users.add(user)

    def _run(self, name: str) -> BestEffortRun:
        return self.scheduler.board.runs[name]

    def _leave(self, user: str) -> None:
        for copy in self.copies.values():
            copy.users.discard(user)

    def _does(self, run: BestEffortRun, at_s: int) -> str:
        """What the run does in the second from `at_s` on, by the plan as it is."""
        for segment in run.segments:
            if segment.start_s <= at_s < segment.end_s:
                if at_s < segment.start_s + segment.resume_s:
                    return RESUMING
                return SUSPENDING if at_s >= segment.end_s - segment.suspend_s else USEFUL
        return IDLE

    def _work_until(self, until_s: int) -> None:
        """Write down, second by second, what everybody does and takes until the next event."""
        live = [record for record in self.records if not record.was_finished and not record.was_requeued]
        for record in live:
            run = record.run
            for segment in run.segments:
                start_s, end_s = max(segment.start_s, self.now_s), min(segment.end_s, until_s)
                for share in segment.shares if start_s < end_s else ():
                    self._took(share.node, start_s, end_s, share.instances, run.workspace)
            for at_s in range(self.now_s, until_s):
                does = self._does(run, at_s)
                assert does == IDLE or record.has_begun
                record.work.append(does)

    def _took(self, node: int, start_s: int, end_s: int, instances: int, workspace: Workspace) -> None:
        self._usage.append((node, start_s, end_s, instances, workspace))

    # What must be true whenever the clock moves on.

    def _check(self) -> None:
        self._check_tables()
        self._check_pools()
        book = self.scheduler.book
        for name in sorted(self.active):
            entry = book.entries[name]
            image = entry.reservation.workspace.image
            if image is None or self.site.joins_any_image:
                continue
            assert {node for node, _ in entry.lives} == {chosen.node for chosen in entry.fits}
            for node, life in entry.lives:
                copy = self._copy(node, life)
                assert copy.has_arrived, f"{name} runs on node {node} before {image.uri} is there"
                assert life in book.pools.pools[node].lives.get(image.key, ())
                assert life.ready_s <= self.now_s < life.expires_s
        for transfer, _ in book.link.latest_starts():
            assert any(life.users for _, life in book.lives_of(transfer.number)), "nobody wants it any more"
        for copy in self.copies.values():
            if copy.users:
                pool = book.pools.pools[copy.node]
                assert copy.life in pool.lives.get(copy.life.image.key, ()), "a promised image was dropped"

    def _check_tables(self) -> None:
        """The slot tables hold what is accepted and planned, no more and no less."""
        scheduler, layout = self.scheduler, self.scheduler.book.timeline.layout
        reserved: list[list[tuple[int, int, int]]] = [[] for _ in self.site.nodes]
        for entry in scheduler.book.entries.values():
            for chosen in entry.fits:
                amount = layout.pack(entry.reservation.workspace.resources) * chosen.instances
                reserved[chosen.node].append((entry.reservation.start_s, entry.end_s, amount))
        everything = [list(each) for each in reserved]
        for run in scheduler.board.runs.values():
            amount = layout.pack(run.workspace.resources)
            for segment in run.segments:
                for share in segment.shares:
                    taken = (segment.start_s, segment.end_s, amount * share.instances)
                    everything[share.node].append(taken)
                    if run.is_in_book:
                        reserved[share.node].append(taken)
        for timeline, expected in (
            (scheduler.book.timeline, reserved),
            (scheduler.board.everything, everything),
        ):
            for row, taken_there in zip(timeline.rows, expected, strict=True):
                at = [
                    (at_s, free) for at_s, free in zip(row.times, row.free, strict=True) if at_s > self.now_s
                ]
                found = [(self.now_s, row.free_at(self.now_s)), *at]
                assert found == steps(taken_there, row.capacity, self.now_s)
                assert all(free >= 0 for _, free in found)

        for node, lane in enumerate(scheduler.board.disks):
            planned = [
                (start_s, start_s + length_s)
                for run in scheduler.board.runs.values()
                for segment in run.segments
                for where, start_s, length_s in segment.disk
                if where == node and start_s > self.now_s
            ]
            assert [taken for taken in lane._taken if taken[0] > self.now_s] == sorted(planned)

    def _check_pools(self) -> None:
        """What is on its way, or there and wanted, fits on the disk; so does what lingers besides."""
        wanted = [0] * len(self.site.nodes)
        for copy in self.copies.values():
            if copy.has_begun and (copy.users or not copy.has_arrived):
                wanted[copy.node] += copy.life.image.size_bytes
        for node, pool in enumerate(self.scheduler.book.pools.pools):
            if pool.limit_bytes is not None:
                assert wanted[node] <= pool.limit_bytes, f"node {node} holds {wanted[node]} bytes"
                lingering = sum(entry.size_bytes for entry in pool.lingering.values())
                assert wanted[node] + lingering <= pool.limit_bytes, f"node {node} keeps too much"

    def _check_end(self) -> None:
        """At the end all is given back, everybody had the node's capacity, and the work is done."""
        self.scheduler.book.pools.settle(self.now_s + 1)
        book, board = self.scheduler.book, self.scheduler.board
        assert not book.entries
        assert not board.runs
        assert not self.scheduler.queue.waiting, "somebody waits for an empty site"
        assert len(book.link) == 0
        assert all(not pool.lives for pool in book.pools.pools)
        largest: list[dict[tuple[int, str], int]] = [{} for _ in self.site.nodes]
        for node, start_s, end_s, instances, workspace in self._usage:
            for at_s in range(start_s, end_s):
                for name, amount in workspace.resources.amounts:
                    key = (at_s, name)
                    largest[node][key] = largest[node].get(key, 0) + amount * instances
        for host, gives in zip(self.site.nodes, largest, strict=True):
            for (at_s, name), amount in gives.items():
                assert amount <= host.capacity[name], f"{host.name} gives {amount} {name} at {at_s}"
        for record in self.records:
            self._check_work(record)
        self._check_lanes()

    def _check_work(self, record: Record) -> None:
        """Memory is read before anything useful is done again, and written before a run makes way.

        Only a reservation that leaves no time for writing (`cuts`) may go without.
        """
        overhead_s = self.site.suspension.overhead_s(record.run.workspace.resources)
        if not overhead_s or not record.was_finished:
            return
        work = "".join(record.work)
        blocks = list(finditer(f"[{RESUMING}{USEFUL}{SUSPENDING}]+", work))
        for block in blocks[1:]:
            assert USEFUL not in block[0] or block[0].startswith(RESUMING * overhead_s), (
                f"reads too little: {work}"
            )
        for block in blocks[:-1]:
            is_cut = record.since_s + block.end() in record.cuts
            assert is_cut or block[0].endswith(SUSPENDING * overhead_s), f"writes too little: {work}"

    def _check_lanes(self) -> None:
        if not self.site.suspension.is_serialised:
            return
        taken: dict[int, list[tuple[int, int]]] = {}
        for record in self.records:
            for segment in record.run.segments:
                for node, start_s, length_s in segment.disk:
                    taken.setdefault(node, []).append((start_s, start_s + length_s))
        for node, lane in taken.items():
            lane.sort()
            for (_, end_s), (start_s, _) in pairwise(lane):
                assert end_s <= start_s, f"node {node}'s disk does two things at {start_s}"
