"""Carrying the plan out: transfers begin, are watched, compared with the plan, and mended.

The link's schedule is the plan; what nodes report is what really happens. A transfer that ends
early gives its time to the next, one that is late gets more of it, or goes on beside the plan
when others would be late for it.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.core.kept import keep_reservation, keep_transfers
from outrider.core.model import Transfer
from outrider.core.refusal import Refusal, size
from outrider.core.restaging import copy_arrived, lose_copy, restage
from outrider.service.agenda import Agenda, Topic
from outrider.service.meter import Log, Meter
from outrider.service.odds import MOST_SAMPLES, odds_percent
from outrider.service.replies import reason_of
from outrider.service.site import Live, Moving, Site
from outrider.service.staff import Arrived, Failed, Missed, Need, News, Staff
from outrider.store.states import State, TransferState

LONGEST_EXTENSION_S = 30
"""By how much the time of a transfer that is late is extended at once."""
MOST_FAILURES = 3
"""After so many failures in a row another node is looked for."""
HASTE_PERCENT = 90
"""Odds below which a transfer is not held to its planned rate any more."""
ALARM_PERCENT = 50
"""Odds below which a reservation is endangered: at its mean rate, its image would be late."""
SAFE_PERCENT = 75
"""Odds from which it no longer is."""
ASIDE_SHARE = 10
"""The part of the link, as a divisor, that a transfer may take while it goes on beside the plan."""
MOST_SOURCES = 8
FIRST_WORD_S = 5
"""Within this time nodes have been told what a new reservation needs, and have answered."""
FIRST_LOOK_S = 5
"""Before so much of a transfer has been seen, its rate says nothing."""


class Executing:
    """What moves and what is ready."""

    def __init__(self, site: Site, staff: Staff, agenda: Agenda, log: Log, meter: Meter) -> None:
        self._site = site
        self._staff = staff
        self._agenda = agenda
        self._log = log
        self._meter = meter
        self.troubled: dict[str, str] = {}
        """Reservations for which another node is to be looked for, and why."""

    def take_up(self) -> None:
        """After a start: tell nodes what they are to have by now."""
        site = self._site
        running = {
            each.transfer.number: each.transfer
            for each in keep_transfers(site.book, site.now_s)
            if each.standing is not None and each.standing.has_begun
        }
        for number, transfer in running.items():
            if number not in site.moving:
                site.moving[number] = self._moving(transfer)
        for live in site.live.values():
            self.arrange(live)
        self._recollect()

    def _recollect(self) -> None:
        """What nodes have said before the state was loaded again: they will not say it twice."""
        site = self._site
        for live in site.live.values():
            live.ready = {node for node in live.nodes if self._has_copy(live, node)}
        for moving in list(site.moving.values()):
            users = [site.live[name] for name in self._users(moving.transfer.number) if name in site.live]
            moving.left -= {node for live in users for node in live.ready}
            if not moving.left:
                self._end(moving)
        for live in site.live.values():
            if live.is_ready and live.record.state is not State.ACTIVE:
                self._all_ready(live)

    def arrange(self, live: Live) -> None:
        """Let nodes know what a reservation needs of them now, and no longer needs."""
        site = self._site
        entry = site.book.entries.get(live.name)
        if entry is None:
            return
        names = site.book.timeline.nodes
        for node, life in entry.lives:
            if life.transfer is None or life.transfer in site.moving:
                self._need(live, names[node].name, life.transfer)
        reservation = live.reservation
        self._agenda.add(max(reservation.start_s, site.now_s), Topic.BEGIN, live.name)
        self._agenda.add(max(reservation.end_s, site.now_s), Topic.END, live.name)

    def release(self, live: Live, nodes: tuple[str, ...]) -> None:
        """These nodes need nothing of a reservation's any more."""
        for name in nodes:
            self._staff.drop(name, live.name, self._site.now_s, is_stopped=True)

    def run_link(self) -> None:
        """Begin what the plan says, deal with what should have ended by now, and tell who will be late."""
        self._run_link()
        site = self._site
        for transfer, latest_s in site.book.link.latest_starts(site.now_s):
            # The time of the plan is over before its turn came: a clock was set, or nothing ran.
            late_s = site.now_s - latest_s
            for name in self._users(transfer.number):
                if name in site.live:
                    words = f"image {transfer.image.uri} should have been on its way for {late_s} s"
                    self.endanger(site.live[name], words)

    def _run_link(self) -> None:
        site, link = self._site, self._site.book.link
        while True:
            if link.running is not None:
                if link.busy_until_s > site.now_s or not self._overdue(link.running):
                    return
                continue
            following = link.next_start(site.now_s)
            if following is None or following[0] > site.now_s:
                for number in link.aside:
                    # Nobody else needs the link now.
                    self._set_rate(site.moving[number], site.settings.link_rate_bytes_per_s)
                return
            for number in link.aside:
                self._set_rate(
                    site.moving[number], max(1, site.settings.link_rate_bytes_per_s // ASIDE_SHARE)
                )
            self._begin(link.begin(following[1], site.now_s))

    def next_s(self) -> int | None:
        """When the link's next transfer begins, or the running one should have ended."""
        link = self._site.book.link
        if link.running is not None:
            return link.busy_until_s
        following = link.next_start(self._site.now_s)
        return None if following is None else following[0]

    def heard(self, news: list[News]) -> None:
        """What a node has said."""
        for each in news:
            live = self._site.live.get(each.owner)
            if live is None:
                continue
            if isinstance(each, Arrived):
                self._arrived(live, each.node)
            elif isinstance(each, Missed):
                self._missed(live, each.node)
            elif isinstance(each, Failed):
                self._failed(live, each.node)
            else:
                self._moved(live, each.node)

    def _begin(self, transfer: Transfer) -> None:
        site = self._site
        site.book.transfer_begun(transfer.number, site.now_s)
        site.moving[transfer.number] = self._moving(transfer)
        site.touch([transfer.number])
        self._log.info(
            "transfer begins",
            transfer=transfer.number,
            image=transfer.image.uri,
            node=",".join(transfer.nodes[:8]),
            bytes=transfer.image.size_bytes,
            deadline_s=transfer.deadline_s,
        )
        for name in self._users(transfer.number):
            live = site.live.get(name)
            if live is None:
                continue
            self.arrange(live)
            if live.record.state is State.ACCEPTED:
                site.change(live, state=State.PREPARING)

    def _moving(self, transfer: Transfer) -> Moving:
        site = self._site
        is_aside = transfer.number in site.book.link.aside
        rate = site.settings.link_rate_bytes_per_s
        return Moving(
            transfer=transfer,
            begun_s=site.now_s,
            left=set(transfer.nodes),
            is_aside=is_aside,
            rate_bytes_per_s=self._aside_rate() if is_aside else rate,
        )

    def _aside_rate(self) -> int:
        return max(1, self._site.settings.link_rate_bytes_per_s // ASIDE_SHARE)

    def _overdue(self, transfer: Transfer) -> bool:
        """The planned time of a transfer is over. True if the link has been freed."""
        site, link = self._site, self._site.book.link
        moving = site.moving[transfer.number]
        left_s = max(1, min(LONGEST_EXTENSION_S, self._left_s(moving)))
        if link.latest_starts(site.now_s + left_s):
            # Whoever comes next would be late for this one.
            site.book.links.set_aside(site.now_s)
            moving.is_aside = True
            site.touch([transfer.number])
            # It has had its time: what it takes from now on must not be missed by others.
            self._set_rate(moving, self._aside_rate())
            self._log.warning("transfer goes on beside the plan", transfer=transfer.number)
            return True
        link.busy_until_s = site.now_s + left_s
        self._judge(moving)
        return False

    def _left_s(self, moving: Moving) -> int:
        """How long a transfer will still take at the rate of late."""
        rate = self._slowest(moving)[1]
        left = moving.transfer.image.size_bytes - self._slowest(moving)[0]
        return LONGEST_EXTENSION_S if rate <= 0 else -(-left // rate)

    def _slowest(self, moving: Moving) -> tuple[int, int]:
        """The bytes and the rate of the node that has the least, of those that do not have all."""
        found: list[tuple[int, int]] = []
        for name in sorted(moving.left):
            member = self._staff.members.get(name)
            needs = [] if member is None else member.needs.values()
            for need in needs:
                if need.transfer == moving.transfer.number:
                    found.append((need.arrived_bytes, need.rate))
                    break
            else:
                found.append((0, 0))
        return min(found, default=(moving.transfer.image.size_bytes, 0))

    def _arrived(self, live: Live, node: str) -> None:
        live.ready.add(node)
        need = self._staff.members[node].needs[live.name]
        if need.transfer is not None:
            self._credit(live, node, need)
            self._done(need.transfer, node)
        if live.is_ready:
            self._all_ready(live)

    def _credit(self, live: Live, node: str, need: Need) -> None:
        """Note where a node's copy came from, if it was brought for this reservation."""
        kept = live.kept
        if need.transfer not in live.reservation.transfers or node in kept.brought:
            return
        sources = kept.sources
        if need.source and need.source not in sources and len(sources) < MOST_SOURCES:
            sources = (*sources, need.source)
        live.kept = replace(kept, sources=sources, brought=(*kept.brought, node))

    def _done(self, number: int, node: str) -> None:
        """A transfer has brought its image to a node."""
        site = self._site
        moving = site.moving.get(number)
        if moving is None:
            return
        moving.left.discard(node)
        if not moving.left:
            self._end(moving)

    def _end(self, moving: Moving, state: TransferState = TransferState.DONE) -> None:
        site, number = self._site, moving.transfer.number
        (kept,) = keep_transfers(site.book, site.now_s, [number])
        site.book.links.end(number, site.now_s)
        del site.moving[number]
        users = self._users(number)
        brought = site.book.transfer_done(number, site.now_s)
        for node, life in brought:
            if site.book.timeline.nodes[node].name in moving.given_up and not life.users:
                # Nobody may count on a copy that never came.
                site.book.pools.lose(node, life)
        if state is TransferState.DONE:
            site.done_transfer(kept)
        else:
            site.end_transfers([number], state)
        for name in users:
            entry, live = site.book.entries.get(name), site.live.get(name)
            if entry is not None and live is not None:
                if live.kept.brought:
                    site.change(live, receipt=live.kept)
                self.arrange(live)
        took_s, planned_s = site.now_s - moving.begun_s, moving.transfer.duration_s
        if state is TransferState.DONE:
            self._meter.observe("outrider_transfer_seconds", took_s)
            self._meter.count("outrider_link_bytes_total", by=moving.transfer.image.size_bytes)
            self._log.info("transfer ended", transfer=number, seconds=took_s, planned_s=planned_s)
        else:
            self._log.info("transfer given up", transfer=number, seconds=took_s, planned_s=planned_s)
        self.run_link()

    def _all_ready(self, live: Live) -> None:
        """The image is on all nodes of a reservation."""
        site, state = self._site, live.record.state
        start_s = live.reservation.start_s
        kept = live.kept if live.kept.ready_s is not None else replace(live.kept, ready_s=site.now_s)
        spared = set(live.nodes) - set(kept.brought)
        kept = replace(kept, saved_bytes=live.document.size_bytes * len(spared))
        after = State.READY if site.now_s < start_s else State.ACTIVE
        was_endangered = state is State.ENDANGERED
        live.danger, live.odds_percent = "", None
        if state is after:
            return
        is_late_first = live.kept.ready_s is None and after is State.ACTIVE
        site.change(live, state=after, receipt=kept, why="")
        if is_late_first:
            self.measure_slack(live)
        spare_s = start_s - site.now_s
        when = f"{spare_s} s before" if spare_s >= 0 else f"{-spare_s} s after"
        site.note("ready", live.name, after.value, f"its image is on all nodes, {when} its start")
        if was_endangered:
            self._log.info("reservation is out of danger", reservation=live.name)
        self._log.info("reservation is ready", reservation=live.name, spare_s=spare_s)

    def measure_slack(self, live: Live) -> None:
        """Once for each reservation that begins: when it does, or as soon after as its image is there."""
        start_s = live.reservation.start_s
        ready_s = self._site.now_s if live.kept.ready_s is None else live.kept.ready_s
        slack_s = max(0, start_s - ready_s) if ready_s <= due_s(live) else start_s - ready_s
        self._meter.observe("outrider_slack_at_start_seconds", slack_s)

    def _missed(self, live: Live, node: str) -> None:
        """An image that was counted on is not in a pool: bring it there anew."""
        site = self._site
        self._not_ready(live, node)
        entry = site.book.entries.get(live.name)
        if entry is None:
            return
        names = site.book.timeline.nodes
        number = site.book.timeline.number_of[node]
        lives = [life for each, life in entry.lives if each == number]
        for life in lives:
            if life.transfer in site.moving:
                # It was there, and the same transfer still goes on to other nodes: here, too.
                site.moving[life.transfer].left.add(node)
        if not any(life.transfer is None for life in lives):
            # The copy was replaced in the meantime: what is on its way will be seen.
            return
        self._log.warning("image is missing", node=names[number].name, image=live.document.uri)
        self._lose(node, live.document.image.key, f"image {live.document.uri} was no longer on {node}")

    def _not_ready(self, live: Live, node: str) -> None:
        """A node has lost its copy. That it was there once makes no promise kept before the start."""
        site = self._site
        live.ready.discard(node)
        receipt = None
        if live.kept.ready_s is not None and site.now_s < live.reservation.start_s:
            receipt = replace(live.kept, ready_s=None)
        state = State.PREPARING if live.record.state is State.READY else None
        if receipt is not None or state is not None:
            site.change(live, state=state, receipt=receipt)

    def _lose(self, node: str, key: str, why: str) -> None:
        """Everybody who counts on a copy that is not there gets another."""
        site = self._site
        lost = lose_copy(site.book, node, key, site.now_s)
        site.end_transfers(lost.dropped, TransferState.WITHDRAWN)
        self.prune()
        for name in lost.users:
            live = site.live.get(name)
            if live is not None:
                self.restage(live, why)

    def came_by_itself(self, node: str, key: str) -> None:
        """An image that is to be brought to a node later is there already: somebody else wanted it."""
        site = self._site
        number = site.book.timeline.number_of[node]
        lives = [
            life for life in site.book.pools.pools[number].lives.get(key, ()) if life.transfer is not None
        ]
        if any(life.transfer in site.moving for life in lives):
            # What is under way will be seen to have arrived.
            return
        users = {name for life in lives for name in life.users}
        before = {life.transfer for life in lives if life.transfer is not None}
        dropped = copy_arrived(site.book, node, key, site.now_s)
        site.end_transfers(dropped, TransferState.WITHDRAWN)
        site.touch(before - set(dropped))
        for name in sorted(users & site.live.keys()):
            live = site.live[name]
            site.change(live, kept=keep_reservation(site.book, name))
            self.arrange(live)

    def prune(self) -> None:
        """Do not wait for copies under way that nobody needs any more."""
        site = self._site
        for number, moving in list(site.moving.items()):
            needed = {
                site.book.timeline.nodes[node].name for node, life in site.book.lives_of(number) if life.users
            }
            moving.given_up |= moving.left - needed
            moving.left &= needed
            if not moving.left:
                self._end(moving, TransferState.DONE if needed else TransferState.FAILED)

    def restage(self, live: Live, why: str) -> None:
        """Plan transfers for what a reservation lacks; as soon as may be if not in time."""
        site = self._site
        answer = restage(site.book, live.name, site.now_s)
        site.change(live, kept=keep_reservation(site.book, live.name))
        if isinstance(answer, Refusal):
            self.troubled[live.name] = f"{why}, and cannot be brought there again: {reason_of(answer)}"
            return
        site.touch(transfer.number for transfer in answer.transfers)
        live.ready &= {node for node in live.ready if self._has_copy(live, node)}
        if live.record.state is State.READY:
            site.change(live, state=State.PREPARING, why=why)
        site.note("repair", live.name, "planned", f"{why}: it is brought there again")
        if answer.is_late:
            self.troubled[live.name] = f"{why}: it can be there again only after the start"
        self.arrange(live)

    def _has_copy(self, live: Live, node: str) -> bool:
        member = self._staff.members.get(node)
        need = None if member is None else member.needs.get(live.name)
        return need is not None and need.is_there

    def _failed(self, live: Live, node: str) -> None:
        need = self._staff.members[node].needs.get(live.name)
        if need is None:
            return
        self._log.warning(
            "transfer fails",
            node=node,
            image=need.uri,
            transfer=need.transfer,
            failures=need.failures,
            words=need.words,
        )
        if need.failures >= MOST_FAILURES:
            self.troubled[live.name] = f"image {need.uri} does not reach {node}: {need.words}"
        moving = None if need.transfer is None else self._site.moving.get(need.transfer)
        if moving is not None:
            self._judge(moving)

    def _moved(self, live: Live, node: str) -> None:
        need = self._staff.members[node].needs[live.name]
        moving = None if need.transfer is None else self._site.moving.get(need.transfer)
        if moving is None:
            return
        self._judge(moving)

    def _judge(self, moving: Moving) -> None:
        """Compare progress with the plan; warn, and give more rate, before a deadline is lost.

        Once a second, however many nodes report.
        """
        site = self._site
        if moving.judged_s == site.now_s:
            return
        moving.judged_s = site.now_s
        moving.rates.append((site.now_s, self._slowest(moving)[0]))
        del moving.rates[:-MOST_SAMPLES]
        for name in self._users(moving.transfer.number):
            live = site.live.get(name)
            if live is None or live.is_ready:
                continue
            start_s = live.reservation.start_s
            left_s = start_s - site.now_s
            left = moving.transfer.image.size_bytes - self._slowest(moving)[0]
            if self._is_early(moving, left, left_s):
                continue
            odds = live.odds_percent = odds_percent(moving.rates, left, left_s)
            if odds < HASTE_PERCENT:
                self._hasten(moving)
            if odds < ALARM_PERCENT:
                self.endanger(
                    live,
                    f"image {live.document.uri} has {size(left)} to go to {_names(moving)}, "
                    f"with {max(left_s, 0)} s left; the odds are {odds} %",
                )
            elif odds >= SAFE_PERCENT and live.danger.startswith("image "):
                self.save(live)

    def _is_early(self, moving: Moving, left_bytes: int, left_s: int) -> bool:
        """Too little has been seen to tell, and at the planned rate there is time enough."""
        site = self._site
        is_new = len(moving.rates) < 2 or site.now_s - moving.begun_s < max(
            FIRST_LOOK_S, 2 * site.settings.progress_every_s
        )
        return is_new and left_bytes <= left_s * site.settings.link_rate_bytes_per_s

    def _hasten(self, moving: Moving) -> None:
        """More rate for what is endangered, as far as the site allows it beyond the planned one."""
        urgent = self._site.settings.urgent_rate_bytes_per_s
        if urgent is not None and not moving.is_aside:
            self._set_rate(moving, urgent)

    def _set_rate(self, moving: Moving, rate_bytes_per_s: int) -> None:
        """Let a transfer take so much of the link from now on."""
        if moving.rate_bytes_per_s == rate_bytes_per_s:
            return
        moving.rate_bytes_per_s = rate_bytes_per_s
        for node in sorted(moving.left):
            member = self._staff.members.get(node)
            for need in [] if member is None else member.needs.values():
                if need.transfer == moving.transfer.number:
                    need.rate_bytes_per_s = rate_bytes_per_s
                    need.is_told = False
                    self._staff.hurry(node, need.owner, self._site.now_s)

    def endanger(self, live: Live, words: str) -> None:
        """Say that a promise may not be kept; once, until it is safe again."""
        site = self._site
        is_new = not live.danger
        live.danger = words
        if live.record.state is State.ENDANGERED or live.record.state.is_final:
            return
        site.change(live, state=State.ENDANGERED, why=words)
        if is_new:
            site.note("alarm", live.name, State.ENDANGERED.value, words)
            self._meter.count("outrider_alarms_total", "endangered")
            self._log.warning("reservation is endangered", reservation=live.name, words=words)

    def save(self, live: Live) -> None:
        """What was endangered will be kept after all."""
        site = self._site
        live.danger, live.odds_percent = "", None
        if live.record.state is not State.ENDANGERED:
            return
        if live.is_ready:
            self._all_ready(live)
            return
        moves = any(self._site.moving.get(number) for number in live.reservation.transfers)
        site.change(live, state=State.PREPARING if moves else State.ACCEPTED, why="")
        site.note("alarm", live.name, "safe", "it is no longer endangered")

    def _users(self, number: int) -> list[str]:
        """The reservations that wait for a transfer, in the order of their starts."""
        entries = self._site.book.entries
        users = {
            user for _, life in self._site.book.lives_of(number) for user in life.users if user in entries
        }
        return sorted(users, key=lambda name: (entries[name].reservation.start_s, name))

    def _need(self, live: Live, node: str, transfer: int | None) -> None:
        site, document = self._site, live.document
        moving = None if transfer is None else site.moving[transfer]
        member = self._staff.members.get(node)
        before = None if member is None else member.needs.get(live.name)
        until_s = live.reservation.end_s + site.settings.grace_s
        if before is not None and (before.transfer, before.until_s) == (transfer, until_s):
            return
        nodes = () if moving is None else moving.transfer.nodes
        place = nodes.index(node) if node in nodes else 0
        need = Need(
            owner=live.name,
            digest=document.digest,
            uri=document.uri,
            size_bytes=document.size_bytes,
            format=document.format,
            readers=document.readers,
            until_s=until_s,
            transfer=transfer,
            deadline_s=None if moving is None else moving.transfer.deadline_s,
            rate_bytes_per_s=None if moving is None else moving.rate_bytes_per_s,
            upstream=tuple(reversed(nodes[:place])),
        )
        self._staff.need(node, need, site.now_s)


def due_s(live: Live) -> int:
    """By when its image has to be there. What was asked for at its own start cannot be there sooner
    than its nodes can be asked."""
    return max(live.reservation.start_s, live.record.accepted_s + FIRST_WORD_S)


def _names(moving: Moving) -> str:
    names = sorted(moving.left)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
