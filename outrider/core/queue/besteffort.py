"""Best-effort workspaces: placed first come, first served around what has been promised.

A workspace is placed as soon as nodes are free at the moment its image can be there; from
then on it is a `Run` with nodes, segments and transfers of its own. What cannot be placed
waits. How far the rest of the queue may overtake it is the backfilling rule's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from outrider.core.book import Shipping
from outrider.core.fitting import Fit
from outrider.core.model import Image, Transfer, Workspace
from outrider.core.queue.board import Backfilling, Board, Run, Waiting
from outrider.core.queue.placement import Place, place_one, place_together, resumed
from outrider.core.queue.suspension import Segment, next_fit, plan_run
from outrider.core.reuse import Life, Stay
from outrider.core.staging.fifo import Scheduled


class BestEffort:
    """The queue and what becomes of it."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.waiting: list[Waiting] = []
        self._next_order = 0
        self._next_index: dict[str, int] = {}
        self._has_gaps = False

    def submit(self, workspace: Workspace) -> None:
        need = self.board.everything.layout.pack(workspace.resources)
        self.waiting.append(Waiting(self._next_order, workspace, need, workspace.instances))
        self._next_order += 1

    def fits_site(self, workspace: Workspace) -> bool:
        """Whether the empty site could run the workspace at all."""
        layout = self.board.everything.layout
        if layout.unknown(workspace.resources):
            return False
        need = layout.pack(workspace.resources)
        wanted = workspace.instances if workspace.is_parallel else 1
        room = sum(
            layout.most(need, capacity, wanted) * nodes.bit_count()
            for capacity, nodes in self.board.everything.by_capacity.items()
        )
        return room >= wanted

    def schedule(self, now_s: int) -> list[Run]:
        """Walk the queue once and place what can be placed."""
        placed = self._pull_forward(now_s) if self._has_gaps else []
        self._has_gaps = False
        futures = self._places_left()
        hopeless: dict[tuple[int, int, int], int] = {}
        still: list[Waiting] = []
        is_held_up = False
        for waiting in self.waiting:
            if is_held_up:
                still.append(waiting)
                continue
            while waiting.left:
                run = self._try(waiting, now_s, hopeless, may_wait=futures > 0)
                if run is None:
                    break
                if run.start_s > run.ready_s:
                    futures -= 1
                placed.append(run)
            if waiting.left:
                still.append(waiting)
                is_held_up = self.board.rules.backfilling is Backfilling.OFF
        self.waiting = still
        return placed

    def begin(self, run: Run, now_s: int) -> None:
        """The run starts. If it cannot be suspended, reservations must now go round it."""
        run.has_begun = True
        if self._is_suspendable(run.workspace):
            return
        run.is_in_book = True
        for segment in run.segments:
            for share in segment.shares:
                start_s = max(segment.start_s, now_s)
                self.board.book.timeline.reserve(share.node, share.amount, start_s, segment.end_s)

    def finish(self, run: Run, now_s: int) -> None:
        """The run is over, at its planned end or before."""
        if now_s < run.end_s:
            self._release(run, now_s)
            self._has_gaps = True
        for node, life in run.lives:
            self.board.book.pools.leave(node, life, run.name, now_s)
        del self.board.runs[run.name]

    def make_room(self, fits: Sequence[Fit], need: int, start_s: int, end_s: int, now_s: int) -> list[Run]:
        """Give a new reservation its slots; the runs that had to move, with their new segments.

        Of the runs in the way the youngest move first. What cannot be placed anew goes back
        to its place in the queue.
        """
        board = self.board
        victims: dict[str, Run] = {}
        for chosen in fits:
            row = board.everything.rows[chosen.node]
            while not row.fits(need * chosen.instances, start_s, end_s):
                victim = self._youngest(chosen.node, start_s, end_s)
                self._release(victim, now_s)
                victims[victim.name] = victim
        for chosen in fits:
            board.everything.reserve(chosen.node, need * chosen.instances, start_s, end_s)
        moved = sorted(victims.values(), key=lambda run: (run.order, run.index))
        return [run for run in moved if self._place_anew(run, now_s)]

    def give_back(self, fits: Sequence[Fit], need: int, start_s: int, end_s: int) -> None:
        """A reservation no longer needs its slots in this interval."""
        if start_s < end_s:
            for chosen in fits:
                self.board.everything.release(chosen.node, need * chosen.instances, start_s, end_s)
            self._has_gaps = True

    def abandon(self, run: Run, now_s: int) -> None:
        """The run lost a node or its place: what it did is lost and it waits again."""
        self._release(run, now_s)
        self._requeue(run, now_s)

    def _places_left(self) -> int:
        rules = self.board.rules
        if rules.backfilling is not Backfilling.RESERVING:
            return 0
        if rules.places is None:
            return len(self.waiting) + 1
        taken = sum(not run.has_begun and run.start_s > run.ready_s for run in self.board.runs.values())
        return max(0, rules.places - taken)

    def _try(
        self, waiting: Waiting, now_s: int, hopeless: dict[tuple[int, int, int], int], *, may_wait: bool
    ) -> Run | None:
        board, workspace = self.board, waiting.workspace
        image = workspace.image
        arrival_s = now_s
        if image is not None:
            arrival_s = board.links.end_if_added(image.size_bytes, 1, now_s)
        # What failed once in this walk fails again for as many or more instances, as long as
        # nobody has a copy of the image and the link's end has not moved.
        length_s = 0 if self._is_suspendable(workspace) else workspace.duration_s
        wanted = workspace.instances if workspace.is_parallel else 1
        key = (waiting.need, arrival_s, length_s)
        is_common = not may_wait and (image is None or not board.book.pools.nodes_with(image.key))
        if is_common and wanted >= hopeless.get(key, wanted + 1):
            return None
        if workspace.is_parallel:
            place = place_together(board, workspace, waiting.need, now_s, may_wait=may_wait)
        else:
            place = place_one(board, workspace, waiting.need, now_s)
        if place is None:
            if is_common:
                hopeless[key] = min(wanted, hopeless.get(key, wanted))
            return None
        return self._take(waiting, place, now_s)

    def _take(self, waiting: Waiting, place: Place, now_s: int) -> Run:
        """Make a run of a place: slots, transfers, stays of its image."""
        workspace = waiting.workspace
        index = self._next_index.get(workspace.name, 0)
        self._next_index[workspace.name] = index + 1
        waiting.left -= workspace.instances if workspace.is_parallel else 1
        run = Run(
            order=waiting.order,
            index=index,
            workspace=workspace,
            need=waiting.need,
            ready_s=place.ready_s,
            segments=place.segments,
            first_shares=place.segments[0].shares,
            lives=[],
            placed_s=now_s,
        )
        board = self.board
        board.occupy(run)
        board.runs[run.name] = run
        if workspace.image is not None:
            run.transfers = self._bring(run, workspace.image, place, now_s)
        return run

    def _bring(self, run: Run, image: Image, place: Place, now_s: int) -> tuple[Scheduled, ...]:
        """Keep the copies of the image that the place uses and add the transfers it lacks."""
        board, pools = self.board, self.board.book.pools
        run.lives = list(place.joined)
        for node in place.revived:
            life = pools.revive(node, image.key, image, now_s)
            assert life is not None
            run.lives.append((node, life))
        names = board.everything.nodes
        is_relay = board.book.terms.shipping is Shipping.RELAY
        groups = [place.missing] if is_relay and place.missing else [(node,) for node in place.missing]
        scheduled: list[Scheduled] = []
        for group in groups:
            transfer = Transfer(
                number=board.book.new_transfer_number(),
                image=image,
                nodes=tuple(names[node].name for node in group),
                duration_s=board.links.duration_s(image.size_bytes),
                release_s=now_s,
            )
            sent = board.links.add(transfer, now_s)
            scheduled.append(sent)
            for node in group:
                if board.book.terms.is_reusing:
                    life = Life(
                        image, sent.start_s, sent.end_s, run.end_s, transfer=transfer.number, is_firm=True
                    )
                    pools.add(node, life)
                    board.book.carry(transfer.number, node, life)
                    run.lives.append((node, life))
                else:
                    stay = Stay(node, image.key, sent.start_s, run.end_s, image.size_bytes, is_private=True)
                    board.private.append(stay)
        for node, life in run.lives:
            pools.extend(node, life, run.name, run.end_s)
        return tuple(scheduled)

    def _is_suspendable(self, workspace: Workspace) -> bool:
        return workspace.is_preemptible and self.board.rules.suspension.is_allowed

    def _release(self, run: Run, now_s: int) -> None:
        """Take back everything the run has from now on."""
        if run.is_in_book:
            for segment in run.segments:
                start_s = max(segment.start_s, now_s)
                if start_s < segment.end_s:
                    for share in segment.shares:
                        self.board.book.timeline.release(share.node, share.amount, start_s, segment.end_s)
            run.is_in_book = False
        self.board.vacate(run, now_s)

    def _youngest(self, node: int, start_s: int, end_s: int) -> Run:
        """The run with segments on the node in the interval that came last into the queue."""
        return max(
            (
                run
                for run in self.board.runs.values()
                if not run.is_in_book
                and any(
                    share.node == node and segment.start_s < end_s and start_s < segment.end_s
                    for segment in run.segments
                    for share in segment.shares
                )
            ),
            key=lambda run: (run.order, run.index),
        )

    def _place_anew(self, run: Run, now_s: int) -> bool:
        """Segments for what is left of a run that was in a reservation's way. False: back to the queue."""
        segments = self._rest(run, now_s)
        if segments is None:
            self._requeue(run, now_s)
            return False
        end_s = segments[-1].end_s
        pools = self.board.book.pools
        for node, life in run.lives:
            late = [(max(life.expires_s, now_s), end_s, life.image.size_bytes)]
            if end_s > life.expires_s and not pools.pools[node].has_room(late, now_s):
                self._requeue(run, now_s)
                return False
        done = run.segments
        run.segments = segments
        self.board.occupy(run)
        run.segments = _joined(done, segments)
        for _, life in run.lives:
            life.users[run.name] = end_s
            life.expires_s = max(life.users.values())
        return True

    def _rest(self, run: Run, now_s: int) -> tuple[Segment, ...] | None:
        """How the work still to be done could go on, or None."""
        board, rules = self.board, self.board.rules.suspension
        if not self._is_suspendable(run.workspace):
            rules = replace(rules, is_allowed=False)
        overhead_s = rules.overhead_s(run.workspace.resources)
        work_s = run.workspace.duration_s - sum(segment.useful_s for segment in run.segments)
        rows, lanes = board.everything.rows, board.lanes
        if not run.segments:
            shares = run.first_shares
            start_s = next_fit(rows, shares, max(now_s, run.ready_s))
            return plan_run(rows, lanes, shares, start_s, work_s, rules, overhead_s)
        shares = run.segments[-1].shares
        if run.segments[-1].end_s == now_s:
            # It runs at this moment: it simply goes on until it must make way.
            segments = plan_run(rows, lanes, shares, now_s, work_s, rules, overhead_s)
            if segments is not None:
                return segments
        return resumed(board, run.workspace, shares, work_s, max(now_s, run.segments[-1].end_s))

    def _requeue(self, run: Run, now_s: int) -> None:
        """Back into the queue, where it stood."""
        for node, life in run.lives:
            self.board.book.pools.leave(node, life, run.name, now_s)
        del self.board.runs[run.name]
        workspace = run.workspace
        left = workspace.instances if workspace.is_parallel else 1
        same = next((waiting for waiting in self.waiting if waiting.order == run.order), None)
        if same is not None:
            same.left += left
            return
        self.waiting.append(Waiting(run.order, workspace, run.need, left))
        self.waiting.sort(key=lambda waiting: waiting.order)

    def _pull_forward(self, now_s: int) -> list[Run]:
        """Let runs whose images are there start now if something ended before its time."""
        moved: list[Run] = []
        board = self.board
        late = [
            run for run in board.runs.values() if not run.has_begun and run.ready_s <= now_s < run.start_s
        ]
        for run in sorted(late, key=lambda run: (run.order, run.index)):
            old = run.segments
            self._release(run, now_s)
            rules = board.rules.suspension
            if not self._is_suspendable(run.workspace):
                rules = replace(rules, is_allowed=False)
            overhead_s = rules.overhead_s(run.workspace.resources)
            segments = plan_run(
                board.everything.rows,
                board.lanes,
                old[0].shares,
                now_s,
                run.workspace.duration_s,
                rules,
                overhead_s,
            )
            is_better = segments is not None and segments[-1].end_s < old[-1].end_s
            run.segments = segments if segments is not None and is_better else old
            board.occupy(run)
            if is_better:
                moved.append(run)
                for _, life in run.lives:
                    life.users[run.name] = run.end_s
                    life.expires_s = max(life.users.values())
        return moved


def _joined(done: tuple[Segment, ...], rest: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Segments in sequence, the last of `done` and the first of `rest` made one if they touch."""
    if not done or done[-1].end_s != rest[0].start_s or rest[0].resume_s or done[-1].shares != rest[0].shares:
        return done + rest
    last, first = done[-1], rest[0]
    whole = replace(last, end_s=first.end_s, suspend_s=first.suspend_s, disk=last.disk + first.disk)
    return (*done[:-1], whole, *rest[1:])
