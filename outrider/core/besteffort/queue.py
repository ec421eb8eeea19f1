"""Best-effort workspaces: placed first come, first served around what has been promised.

A workspace is placed as soon as nodes are free at the moment its image can be there; from
then on it is a `BestEffortRun` with nodes, segments and transfers of its own. What cannot be placed
waits. How far the rest of the queue may overtake it is the backfilling rule's choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from outrider.core.besteffort.backfilling.overtaking import Backfilling, Overtaking
from outrider.core.besteffort.board import BestEffortRun, QueueBoard
from outrider.core.besteffort.gang_placement import GangSearch
from outrider.core.besteffort.holdings import bring_image, leave, release
from outrider.core.besteffort.lending import guarded, misplaced
from outrider.core.besteffort.placement import RunPlacement, place_one, resumed
from outrider.core.besteffort.suspension import Segment, is_tight, joined, next_fit, plan_run
from outrider.core.besteffort.suspension_notice import suspend_in_time, withdraw
from outrider.core.besteffort.waiting import StartChances, WaitingGroup, WaitingLine, WaitingWorkspace
from outrider.core.model import Workspace
from outrider.core.nodes.selection import Fit
from outrider.core.reservations.book import Shipping


@dataclass(slots=True)
class _Walk:
    """What is known while one walk goes through the queue."""

    chances: StartChances
    hopeless: set[tuple[int, int, int, bool]] = field(default_factory=set)
    """What was sought in vain for an instance by itself."""


class BestEffortQueue:
    """The queue and what becomes of it."""

    def __init__(self, board: QueueBoard) -> None:
        self.board = board
        self.waiting = WaitingLine()
        self._next_order = 0
        self._next_index: dict[str, int] = {}
        self._has_gaps = False

    @property
    def is_worth_a_look(self) -> bool:
        """Whether a walk may place something, or start something before the time it has now."""
        return bool(self.waiting) or self._has_gaps

    def frees_place(self, run: BestEffortRun) -> bool:
        """Whether the next that waits may have the place in the queue that this run had before it began."""
        is_promising = self.board.rules.backfilling is Backfilling.RESERVING
        return is_promising and run.start_s > run.ready_s

    def submit(self, workspace: Workspace, now_s: int = 0) -> None:
        need = self.board.everything.layout.pack(workspace.resources)
        self.waiting.add(self._waiting(self._next_order, workspace, need, workspace.instances, now_s))
        self._next_order += 1

    def fits_site(self, workspace: Workspace) -> bool:
        """Whether the empty site could run the workspace at all."""
        layout = self.board.everything.layout
        if layout.unknown(workspace.resources):
            return False
        need = layout.pack(workspace.resources)
        wanted = workspace.instances if workspace.is_parallel else 1
        usable = self.board.nodes_for(workspace.image)
        room = sum(
            layout.most(need, capacity, wanted) * (nodes & usable).bit_count()
            for capacity, nodes in self.board.everything.by_capacity.items()
        )
        return room >= wanted

    def schedule(self, now_s: int) -> list[BestEffortRun]:
        """Walk the queue once and place what can be placed."""
        placed = self._reconsider(now_s) if self._has_gaps else []
        self._has_gaps = False
        if not self.waiting:
            return placed
        overtaking = Overtaking(self.board.rules.backfilling, self._places_left(now_s))
        walk = _Walk(StartChances(self.board, now_s))
        order = -1
        while True:
            line = self.waiting
            is_next = overtaking.is_strict or overtaking.may_wait
            waiting = line.after(order) if is_next else line.possible_after(order, walk.chances)
            if waiting is None:
                return placed
            while waiting.left:
                run = self._try(waiting, now_s, walk, may_wait=overtaking.may_wait)
                if run is None:
                    break
                walk.chances.forget()
                overtaking.placed(run.start_s, run.ready_s)
                placed.append(run)
            if not waiting.left:
                line.remove(waiting)
            elif overtaking.is_strict:
                return placed
            order = waiting.order

    def begin(self, run: BestEffortRun, now_s: int) -> None:
        """The run starts. If it cannot be suspended, reservations must avoid it from now on."""
        run.has_begun = True
        if self._is_suspendable(run.workspace):
            return
        run.is_in_book = True
        for segment in run.segments:
            start_s = max(segment.start_s, now_s)
            self.board.book.timeline.reserve_all(segment.amounts(), start_s, segment.end_s)

    def finish(self, run: BestEffortRun, now_s: int) -> None:
        """The run is over, at its planned end or before."""
        if now_s < run.end_s:
            release(self.board, run, now_s)
            self._has_gaps = True
        leave(self.board, run, now_s)

    def make_room(
        self, fits: Sequence[Fit], need: int, start_s: int, end_s: int, now_s: int
    ) -> list[BestEffortRun]:
        """Give a new reservation its slots; the runs that had to move, with their new segments.

        Of the runs in the way those move first whom the site's order names, or the youngest. What
        cannot be placed anew goes back to its place in the queue.
        """
        board = self.board
        victims: dict[str, BestEffortRun] = {}
        for chosen in fits:
            node, amount = chosen.node, need * chosen.instances
            while not board.everything.rows[node].fits(amount, start_s, end_s):
                victim = self._first_to_yield(chosen.node, start_s, end_s, now_s)
                withdraw(board, victim, start_s, now_s)
                victims[victim.name] = victim
        board.everything.reserve_all([(each.node, need * each.instances) for each in fits], start_s, end_s)
        moved = sorted(victims.values(), key=lambda run: (run.order, run.index))
        for run in moved:
            suspend_in_time(board, run, now_s)
        return [run for run in moved if self._place_anew(run, now_s)]

    def replace_misplaced(self, now_s: int) -> list[BestEffortRun]:
        """Beside leases that wait for an event, move what cannot be cleared and may not find its place."""
        moved = misplaced(self.board) if self.board.lent else []
        for run in moved:
            self.board.vacate(run, now_s)
        return [run for run in moved if self._place_anew(run, now_s)]

    def give_back(self, fits: Sequence[Fit], need: int, start_s: int, end_s: int) -> None:
        """A reservation no longer needs its slots in this interval."""
        if start_s < end_s:
            amounts = [(each.node, need * each.instances) for each in fits]
            self.board.everything.release_all(amounts, start_s, end_s)
            self._has_gaps = True

    def gain_node(self) -> None:
        """A node can be used again: who waits for others may start earlier on it."""
        self._has_gaps = True

    def image_ready_s(self, run: BestEffortRun, now_s: int) -> int:
        """When everything that brings the run its image will have ended, by what is known now."""
        numbers = {sent.transfer.number for sent in run.transfers}
        numbers.update(life.transfer for _, life in run.lives if life.transfer is not None)
        links = self.board.links
        ends = [links.end_of(number, now_s) for number in sorted(numbers)]
        return max((end_s for end_s in ends if end_s is not None), default=now_s)

    def postpone(self, run: BestEffortRun, ready_s: int, now_s: int) -> bool:
        """The run's image is late: plan it anew from `ready_s` on. False: back to the queue."""
        release(self.board, run, now_s)
        run.ready_s = ready_s
        return self._place_anew(run, now_s)

    def abandon(self, run: BestEffortRun, now_s: int) -> None:
        """The run lost a node or its place: what it did is lost and it waits again."""
        release(self.board, run, now_s)
        self._requeue(run, now_s)

    def cancel(self, name: str, now_s: int) -> bool:
        """Take back what waits and runs of a workspace. False if there is nothing left of it."""
        runs = [run for run in self.board.runs.values() if run.workspace.name == name]
        for run in runs:
            release(self.board, run, now_s)
            leave(self.board, run, now_s)
        waiting = [each for each in self.waiting if each.workspace.name == name]
        for each in waiting:
            self.waiting.remove(each)
        self._has_gaps = self._has_gaps or bool(runs)
        return bool(runs or waiting)

    def _waiting(
        self, order: int, workspace: Workspace, need: int, left: int, submitted_s: int
    ) -> WaitingWorkspace:
        together = workspace.instances if workspace.is_parallel else 1
        least_nodes = -(-together // max(1, self.board.largest_room(need)))
        image = workspace.image
        # With one transfer a node, each further transfer is a further possible start; and what
        # is serial is told apart in `_try`.
        is_plain = image is None or self.board.book.terms.shipping is Shipping.RELAY or together == 1
        return WaitingWorkspace(
            order,
            workspace,
            need,
            left,
            least_nodes,
            submitted_s=submitted_s,
            group=WaitingGroup(
                need,
                "" if image is None else image.key,
                0 if image is None else image.size_bytes,
                least_nodes,
                self._is_suspendable(workspace),
            )
            if is_plain and workspace.is_parallel
            else None,
        )

    def _places_left(self, now_s: int) -> int:
        rules = self.board.rules
        if rules.backfilling is not Backfilling.RESERVING:
            return 0
        if rules.places is None:
            return len(self.waiting) + 1
        # Who begins at this very instant waits no more, though it has not been told to begin yet.
        left = rules.places
        for run in self.board.runs.values():
            if not run.has_begun and run.start_s > max(run.ready_s, now_s):
                left -= 1
                if left <= 0:
                    return 0
        return left

    def _try(
        self,
        waiting: WaitingWorkspace,
        now_s: int,
        walk: _Walk,
        *,
        may_wait: bool,
    ) -> BestEffortRun | None:
        board, workspace = self.board, waiting.workspace
        if workspace.is_parallel:
            place = self._find(waiting, now_s, may_wait=may_wait, chances=walk.chances)
            return None if place is None else self.take(waiting, place, now_s)
        image = workspace.image
        arrival_s = now_s
        if image is not None:
            arrival_s = board.links.end_if_added(image.size_bytes, 1, now_s)
        # What failed once in this walk fails again, as long as nobody has a copy of the image
        # and the link's end has not moved.
        length_s, is_suspendable = workspace.duration_s, self._is_suspendable(workspace)
        rules = board.rules.suspension
        if is_suspendable and not rules.overhead_s(workspace.resources):
            length_s = min(length_s, rules.least_run_s)
        key = (waiting.need, arrival_s, length_s, is_suspendable)
        is_common = image is None or not board.book.pools.mask_with(image.key)
        if is_common and key in walk.hopeless:
            return None
        place = self._find(waiting, now_s, may_wait=may_wait)
        if place is None:
            if is_common:
                walk.hopeless.add(key)
            return None
        return self.take(waiting, place, now_s)

    def _find(
        self, waiting: WaitingWorkspace, now_s: int, *, may_wait: bool, chances: StartChances | None = None
    ) -> RunPlacement | None:
        """A place; if there is none, the chances of those that are alike may be known by that."""
        board, workspace = self.board, waiting.workspace
        with guarded(board, workspace):
            if not workspace.is_parallel:
                return place_one(board, workspace, waiting.need, now_s)
            search = GangSearch(board, workspace, waiting.need, now_s)
            place = search.place(may_wait=may_wait)
        if place is None and chances is not None and search.is_whatever_its_length and waiting.group:
            chances.none_for(waiting.group)
        return place

    def take(self, waiting: WaitingWorkspace, place: RunPlacement, now_s: int) -> BestEffortRun:
        """Make a run of a place: slots, transfers, stays of its image."""
        workspace = waiting.workspace
        index = self._next_index.get(workspace.name, 0)
        self._next_index[workspace.name] = index + 1
        waiting.left -= workspace.instances if workspace.is_parallel else 1
        run = BestEffortRun(
            order=waiting.order,
            index=index,
            workspace=workspace,
            need=waiting.need,
            ready_s=place.ready_s,
            segments=place.segments,
            first_shares=place.segments[0].shares,
            lives=[],
            placed_s=now_s,
            submitted_s=waiting.submitted_s,
        )
        board = self.board
        board.occupy(run)
        board.runs[run.name] = run
        if workspace.image is not None:
            run.transfers = bring_image(board, run, workspace.image, place, now_s)
        return run

    def _is_suspendable(self, workspace: Workspace) -> bool:
        return workspace.is_preemptible and self.board.rules.suspension.is_allowed

    def _first_to_yield(self, node: int, start_s: int, end_s: int, now_s: int) -> BestEffortRun:
        """The run with segments on the node in the interval that makes way first."""
        runs = [
            run
            for run in self.board.runs.values()
            if not run.is_in_book
            and any(
                share.node == node and segment.start_s < end_s and start_s < segment.end_s
                for segment in run.segments
                for share in segment.shares
            )
        ]
        if self.board.rules.preemption is None:
            return max(runs, key=lambda run: (run.order, run.index))
        return self.board.yielding_order(runs, now_s)[0]

    def _place_anew(self, run: BestEffortRun, now_s: int) -> bool:
        """Segments for what is left of a run that was in a reservation's way. False: back to the queue."""
        with guarded(self.board, run.workspace):
            segments = None if run.is_slice else self._rest(run, now_s)
        if segments is None:
            self.abandon(run, now_s)
            return False
        end_s = segments[-1].end_s if segments else run.end_s
        pools = self.board.book.pools
        for node, life in run.lives:
            late = [(max(life.expires_s, now_s), end_s, life.image.size_bytes)]
            if end_s > life.expires_s and not pools.pools[node].has_room(late, now_s):
                self.abandon(run, now_s)
                return False
        done = run.segments
        run.segments = segments
        self.board.occupy(run)
        run.segments = joined(done, segments)
        run.changes += 1
        for node, life in run.lives:
            pools.set_user(node, life, run.name, end_s)
        return True

    def _rest(self, run: BestEffortRun, now_s: int) -> tuple[Segment, ...] | None:
        """How the work still to be done could go on, or None."""
        board, rules = self.board, self.board.rules.suspension.of(run.workspace)
        overhead_s = rules.overhead_s(run.workspace.resources)
        work_s = run.workspace.duration_s - sum(segment.useful_s for segment in run.segments)
        table, disks = board.everything, board.disks
        if not run.segments:
            shares = run.first_shares
            start_s = next_fit(table, shares, max(now_s, run.ready_s))
            return plan_run(table, disks, shares, start_s, work_s, rules, overhead_s)
        if not work_s:
            return ()
        shares = run.segments[-1].shares
        last = run.segments[-1]
        if last.end_s == now_s and last.useful_s and not last.suspend_s:
            # It runs at this moment: it simply goes on until it must make way.
            segments = plan_run(table, disks, shares, now_s, work_s, rules, overhead_s)
            if segments is not None:
                return segments
        return resumed(board, run.workspace, shares, work_s, max(now_s, run.segments[-1].end_s))

    def _requeue(self, run: BestEffortRun, now_s: int) -> None:
        """Back into the queue, where it stood."""
        leave(self.board, run, now_s)
        same = self.waiting.get(run.order)
        if same is not None:
            same.left += run.together
            return
        self.waiting.add(self._waiting(run.order, run.workspace, run.need, run.together, run.submitted_s))

    def _reconsider(self, now_s: int) -> list[BestEffortRun]:
        """Something ended before its time: let runs that wait for their nodes start earlier.

        One after the other, in the order of the queue, so that nobody moves onto the place
        that another one was promised. Those that brought an image to their nodes stay there.
        """
        moved: list[BestEffortRun] = []
        everything = self.board.everything
        freed, everything.freed = everything.freed, 0
        late = [
            run
            for run in self.board.runs.values()
            if (run.has_begun and len(run.segments) > 1 and run.segments[-1].start_s > now_s)
            or (not run.has_begun and run.ready_s <= now_s < run.start_s)
        ]
        for run in sorted(late, key=lambda run: (run.order, run.index)):
            if run.has_begun:
                # What was released for one behind it in the walk before it has not seen.
                is_as_tight = run.is_tight and not run.first_nodes & (freed | everything.freed)
                if not is_as_tight and self._go_on_earlier(run, now_s):
                    moved.append(run)
            elif run.transfers:
                if self._pull_forward(run, now_s):
                    moved.append(run)
            elif self._may_start_earlier(run, now_s):
                anew = self._exchanged(run, now_s)
                if anew is not None:
                    moved.append(anew)
        return moved

    def _go_on_earlier(self, run: BestEffortRun, now_s: int) -> bool:
        """Plan the rest of a run that is suspended, or will be, anew if that ends it earlier."""
        board, old = self.board, run.segments
        rules = board.rules.suspension.of(run.workspace)
        left = [segment for segment in old if segment.end_s > now_s]
        from_s = min(now_s, left[0].start_s)
        overhead_s = rules.overhead_s(run.workspace.resources)
        if not rules.is_migrating and is_tight(board.everything, left, from_s, overhead_s, rules):
            run.is_tight = True
            return False
        board.vacate(run, now_s)
        rest = self._rest(run, now_s)
        is_better = bool(rest) and rest is not None and rest[-1].end_s < old[-1].end_s
        if not is_better or rest is None:
            run.segments = old
            board.occupy(run, now_s)
            return False
        done, run.segments = run.segments, rest
        board.occupy(run)
        run.segments = joined(done, rest)
        run.changes += 1
        for node, life in run.lives:
            board.book.pools.set_user(node, life, run.name, run.end_s)
        return True

    def _exchanged(self, run: BestEffortRun, now_s: int) -> BestEffortRun | None:
        """Another run of the same, at a place that ends earlier; None if it keeps its own."""
        old = run.segments
        release(self.board, run, now_s)
        waiting = self._waiting(run.order, run.workspace, run.need, run.together, run.submitted_s)
        place = self._find(waiting, now_s, may_wait=True)
        if place is None or place.end_s >= old[-1].end_s:
            run.segments = old
            self.board.occupy(run)
            return None
        anew = self.take(waiting, place, now_s)
        leave(self.board, run, now_s)
        return anew

    def _may_start_earlier(self, run: BestEffortRun, now_s: int) -> bool:
        """Whether at any instant before its start enough nodes are free."""
        board = self.board
        nodes = -(-run.together // board.largest_room(run.need))
        masks = board.everything.free_masks(run.need)
        return masks.has_many(now_s, max(run.start_s, now_s + 1), board.book.available, nodes)

    def _pull_forward(self, run: BestEffortRun, now_s: int) -> bool:
        """Start a run now, on its nodes, if that ends it earlier."""
        old = run.segments
        release(self.board, run, now_s)
        rules = self.board.rules.suspension.of(run.workspace)
        with guarded(self.board, run.workspace):
            segments = plan_run(
                self.board.everything,
                self.board.disks,
                run.first_shares,
                now_s,
                run.workspace.duration_s,
                rules,
                rules.overhead_s(run.workspace.resources),
            )
        is_better = segments is not None and segments[-1].end_s < old[-1].end_s
        run.segments = segments if segments is not None and is_better else old
        self.board.occupy(run)
        if is_better:
            run.changes += 1
            for node, life in run.lives:
                self.board.book.pools.set_user(node, life, run.name, run.end_s)
        return is_better
