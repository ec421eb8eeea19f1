"""Promises that may not be kept: found out by the rates that are seen, and said before it is too late."""

from __future__ import annotations

from dataclasses import replace

from outrider.core.reservations.refusal import size
from outrider.service.desk.reservations.link_rate import LinkWatches
from outrider.service.desk.reservations.odds import MOST_SAMPLES, odds_percent
from outrider.service.desk.reservations.transfers import DeadlineTransfers
from outrider.service.desk.state.site import Live, Moving, Site
from outrider.service.meter import Log, Meter
from outrider.store.states import State

HASTE_PERCENT = 90
"""Odds below which a transfer is not held to its planned rate any more."""
ALARM_PERCENT = 50
"""Odds below which a reservation is endangered: at its mean rate, its image would be late."""
SAFE_PERCENT = 75
"""Odds from which it no longer is."""
FAR_FACTOR, FAR_S = 4, 60
"""With so many times the time that is needed, and so much more, nothing is said yet."""
FIRST_WORD_S = 5
"""Within this time nodes have been told what a new reservation needs, and have answered."""
FIRST_LOOK_S = 5
"""Before so much of a transfer has been seen, its rate says nothing."""


class ReservationAlarms:
    """Which reservations are in danger, which are ready, and which need other nodes."""

    def __init__(self, site: Site, deadlines: DeadlineTransfers, log: Log, meter: Meter) -> None:
        self._site = site
        self._deadlines = deadlines
        self._log = log
        self._meter = meter
        self.link = LinkWatches()

    def judge(self, moving: Moving) -> None:
        """Compare progress with the plan; warn, and give more rate, before a deadline is lost.

        Once a second, however many nodes report.
        """
        site = self._site
        if moving.judged_s == site.now_s:
            return
        moving.judged_s = site.now_s
        self._deadlines.watch(moving)
        moving.rates.append((site.now_s, self._deadlines.slowest(moving)[0]))
        del moving.rates[:-MOST_SAMPLES]
        for name in self._deadlines.users(moving.transfer.number):
            live = site.live.get(name)
            if live is None or live.is_ready:
                continue
            start_s = live.reservation.start_s
            left_s = start_s - site.now_s
            left = moving.transfer.image.size_bytes - self._deadlines.slowest(moving)[0]
            if self._is_early(moving, left, left_s):
                continue
            if left_s <= 0:
                self._late(live, moving, left, -left_s)
                continue
            odds = moving.odds[name] = odds_percent(moving.rates, left, left_s)
            # It is as safe as the transfer that it has most to fear for.
            live.odds_percent = min(each.odds.get(name, 100) for each in site.moving.values())
            if odds < HASTE_PERCENT:
                self._hasten(moving)
            if odds < ALARM_PERCENT:
                complaint = self._deadlines.complaint(moving)
                self.endanger(
                    live,
                    f"image {live.document.uri} has {size(left)} to go to {_names(moving)}, "
                    f"with {left_s} s left; the odds are {odds} %" + (f"; {complaint}" if complaint else ""),
                )
            elif live.odds_percent >= SAFE_PERCENT and live.danger.startswith("image "):
                self.save(live)

    def _late(self, live: Live, moving: Moving, left_bytes: int, late_s: int) -> None:
        """Its time has come without its image: that is no matter of odds any more."""
        live.odds_percent = None
        self._hasten(moving)
        complaint = self._deadlines.complaint(moving)
        since = f"its start was {late_s} s ago" if late_s else "its time has come"
        self.endanger(
            live,
            f"image {live.document.uri} has {size(left_bytes)} to go to {_names(moving)}, and {since}"
            + (f"; {complaint}" if complaint else ""),
        )

    def watch_link(self, moving: Moving, came_bytes: int) -> None:
        """A transfer has ended, or had its time, having got so much; say if the link gives too little."""
        if not moving.has_planned_rate or moving.given_up:
            return
        was_doubted, took_s = self.link.is_doubted, self._site.now_s - moving.begun_s
        server, rate = self._deadlines.server(moving.transfer), moving.rate_bytes_per_s
        self.link.note(self._deadlines.rate_keys(moving.transfer), server, came_bytes, took_s, rate)
        if self.link.is_doubted == was_doubted:
            return
        words = self.link.words or "transfers get the planned rate again"
        self._site.note("alarm", "link", "safe" if was_doubted else "slow", words)
        if not was_doubted:
            self._meter.count("outrider_alarms_total", "link")
            self._log.warning("link is slower than planned", words=words)

    def endanger(self, live: Live, words: str) -> None:
        """Say that a promise may not be kept; once, until it is safe again."""
        site = self._site
        words = live.spoiled or words
        is_new = not live.danger
        live.danger = words
        if live.record.state.is_final:
            return
        if live.record.state is State.ENDANGERED:
            if live.spoiled and live.record.why != words:
                site.change(live, why=words)
                site.note("alarm", live.name, State.ENDANGERED.value, words)
            return
        site.change(live, state=State.ENDANGERED, why=words)
        if is_new:
            site.note("alarm", live.name, State.ENDANGERED.value, words)
            self._meter.count("outrider_alarms_total", "endangered")
            self._log.warning("reservation is endangered", reservation=live.name, words=words)

    def save(self, live: Live) -> None:
        """What was endangered will be kept after all."""
        site = self._site
        if (live.spoiled and not live.is_ready) or site.gone_nodes(live):
            return
        live.danger, live.odds_percent = "", None
        if live.record.state is not State.ENDANGERED:
            return
        if live.is_ready:
            self.ready(live)
            return
        moves = any(self._site.moving.get(number) for number in live.reservation.transfers)
        site.change(live, state=State.PREPARING if moves else State.ACCEPTED, why="")
        site.note("alarm", live.name, "safe", "it is no longer endangered")

    def ready(self, live: Live) -> None:
        """The image is on all nodes of a reservation."""
        site, state = self._site, live.record.state
        start_s = live.reservation.start_s
        kept = live.kept if live.kept.ready_s is not None else replace(live.kept, ready_s=site.now_s)
        spared = set(live.nodes) - set(kept.brought)
        kept = replace(kept, saved_bytes=live.document.size_bytes * len(spared))
        # What has begun goes on, even if a clock that was set says that its time is still to come.
        is_early = (site.now_s < start_s or live.waits) and state is not State.ACTIVE
        after = State.READY if is_early else State.ACTIVE
        if live.kept.ready_s is None and site.now_s > due_s(live) and not live.danger:
            # Nobody could say so in time: the service was not there, or could not write it down.
            self.endanger(live, f"its image was late: it came {site.now_s - start_s} s after its start")
            state = live.record.state
        if live.is_refused or site.gone_nodes(live):
            # Its image is there, and its nodes may not be.
            if kept != live.kept:
                site.change(live, receipt=kept)
            return
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

    def _is_early(self, moving: Moving, left_bytes: int, left_s: int) -> bool:
        """Too little has been seen to tell, and at the planned rate there is time enough; or there
        is so much time that a transfer may well stand still for a while."""
        site = self._site
        needed_s = -(-left_bytes // self._deadlines.whole_rate(moving.transfer))
        is_new = len(moving.rates) < 2 or site.now_s - moving.begun_s < max(
            FIRST_LOOK_S, 2 * site.settings.progress_every_s
        )
        return (is_new and needed_s <= left_s) or left_s > FAR_FACTOR * needed_s + FAR_S

    def _hasten(self, moving: Moving) -> None:
        """More rate for what is endangered, as far as the site allows it beyond the planned one."""
        urgent = self._site.settings.urgent_rate_bytes_per_s
        if urgent is not None and not moving.is_aside:
            self._deadlines.set_rate(moving, urgent)


def due_s(live: Live) -> int:
    """By when its image has to be there. What was asked for at its own start cannot be there sooner
    than its nodes can be asked."""
    return max(live.reservation.start_s, live.record.accepted_s + FIRST_WORD_S)


def _names(moving: Moving) -> str:
    names = sorted(moving.left)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
