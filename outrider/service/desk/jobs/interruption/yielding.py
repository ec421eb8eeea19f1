"""Preemptible jobs that make way for reservations: who is told, when, and what becomes of it.

What is to be done follows from what runs where and from the reservations that are promised, anew at each
look. A job that a reservation needs gone, or whose piece of a lease ends, is signalled its grace time
before it is requeued, and is requeued so early that the batch system can end it in time. One that has
come back is told again; one that does not go is requeued again and again, and endangers the reservation.
What a job was told is in the store until it is done, so a service that was killed meanwhile goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from outrider.service.desk.batch.job_effects import (
    REQUEUE,
    SAVE,
    SIGNAL,
    YieldFields,
    is_of_yielding,
    requeue_effect,
    save_effect,
    signal_effect,
    yield_fields,
    yielding_of,
)
from outrider.service.desk.jobs.interruption.pieces import PieceEnd
from outrider.service.desk.jobs.job import JobQueues
from outrider.service.desk.jobs.orders import IsCarrying
from outrider.service.desk.nodes.preemptible_jobs import PreemptibleJob, PreemptibleJobs
from outrider.service.desk.reservations.repair import ReservationRepair
from outrider.service.desk.state.site import Live, Site
from outrider.service.desk.state.troubles import Troubles
from outrider.service.meter import Log, Meter
from outrider.store.records import Effect

AGAIN_S = 10
"""So long after a requeue that shows no effect it is asked for again, and after two looks at least."""
NEAR_S = 120
"""Reservations are looked at so long before the first of their jobs has to be told, at every look."""


@dataclass(slots=True)
class _Order:
    """What a job has been told. `fields.requeue_s` is 0 until it is in its grace time, or past it."""

    fields: YieldFields
    is_signal_sent: bool = False
    requeued_s: int | None = None
    """When a requeue was carried out last."""


@dataclass(frozen=True, slots=True)
class _Cause:
    """Why a job has to go: a reservation that starts then, or its own piece of a lease, which ends then."""

    name: str
    start_s: int
    following: str = ""
    """The piece in which it goes on."""

    @property
    def words(self) -> str:
        at = datetime.fromtimestamp(self.start_s).astimezone()
        if self.following:
            return f"{self.name} ends at {at:%H:%M:%S}: it goes on in {self.following}"
        return f"it yields to reservation {self.name} at {at:%H:%M:%S}"


class JobYielding:
    """All orders to yield."""

    def __init__(
        self,
        site: Site,
        preemptible: PreemptibleJobs,
        jobs: JobQueues,
        repair: ReservationRepair,
        troubles: Troubles,
        is_carrying: IsCarrying,
        log: Log,
        meter: Meter,
    ) -> None:
        self._site = site
        self._preemptible = preemptible
        self._jobs = jobs
        self._repair = repair
        self._troubles = troubles
        self._is_carrying = is_carrying
        self._log = log
        self._meter = meter
        self._orders: dict[str, _Order] = {}
        self._cut: Mapping[str, PieceEnd] = {}
        """Jobs whose pieces of leases end, by their keys."""
        self._near: dict[str, None] = {}
        """Reservations that may need their nodes cleared soon."""
        self._kept: set[str] = set()
        """Those of which it was said that their nodes are not left."""
        self._looked_s: int | None = None
        self._is_due = False
        self._next_s: int | None = None

    def take_up(self) -> None:
        """What an earlier service has told jobs."""
        now_s = self._site.now_s
        for subject in sorted(filter(is_of_yielding, self._site.store.waiting_subjects())):
            for effect in self._site.store.waiting_effects(subject):
                fields = yield_fields(effect)
                self._orders[fields.job] = _Order(fields, is_signal_sent=effect.kind == REQUEUE)
                due_s = max(now_s, fields.requeue_s)
                if effect.kind == REQUEUE and effect.due_s != due_s:
                    identity = effect.identity
                    self._site.write_lightly(
                        lambda progress, identity=identity, due_s=due_s: progress.postpone_effect(  # type: ignore[misc]
                            identity, "", due_s
                        )
                    )

    def seen(self, cut: Mapping[str, PieceEnd]) -> None:
        """The batch system has been looked at; `cut` are jobs that go on in other pieces of their leases."""
        site, self._cut = self._site, cut
        self._looked_s, self._is_due = site.now_s, True
        settings = site.settings
        most_s = max((job.run.terms.grace_s for job in self._preemptible.all.values()), default=0)
        notice_s = max(most_s, settings.most_requeue_grace_s) + settings.requeue_margin_s
        far_s = site.now_s + notice_s + settings.look_every_s + NEAR_S
        if not self._preemptible.all:
            self._near = {}
            return
        self._near = {name: None for name, live in site.live.items() if live.reservation.start_s <= far_s}

    def run(self) -> None:
        """Tell jobs what they are to be told now."""
        site = self._site
        if site.stirred and self._preemptible.all:
            self._near.update(dict.fromkeys(sorted(site.stirred & site.live.keys())))
            self._is_due = True
        is_time = self._next_s is not None and self._next_s <= site.now_s
        if self._looked_s is None or not (self._is_due or is_time):
            return
        self._is_due, self._next_s = False, None
        needed = self._needed()
        for key in [key for key in self._orders if key not in needed]:
            self._call_off(key)
        kept: dict[str, dict[str, str]] = {}
        for key, (cause, job) in needed.items():
            self._tell(cause, job)
            late_s = cause.start_s - job.run.terms.margin_s // 2
            if self._looked_s >= late_s and not cause.following:
                # Not by what was seen before it had the time to go.
                kept.setdefault(cause.name, {}).update(dict.fromkeys(job.nodes, key))
        self._complain(kept)

    def next_s(self) -> int | None:
        return self._next_s

    def carried(self, effect: Effect) -> None:
        """A job has been signalled, or is being requeued."""
        fields, now_s = yield_fields(effect), self._site.now_s
        order = self._order_of(fields)
        if order is None:
            return
        if effect.kind in (SIGNAL, SAVE):
            self._meter.count(
                "outrider_jobs_yielding_total", "saving" if effect.kind == SAVE else "signalled"
            )
            self._begin_grace(order, now_s)
        else:
            order.requeued_s = now_s
            self._meter.count("outrider_jobs_yielding_total", "requeued")
            cut = self._cut.get(fields.job)
            words = f"it yields to reservation {fields.reservation}"
            if cut is not None and cut.piece == fields.reservation:
                words = f"its piece {cut.piece} of the lease ends; it goes on in {cut.following}"
            self._say(fields.job, "requeued", words)
        self._is_due = True

    def refused(self, effect: Effect, words: str) -> None:
        """The batch system will not do it: what it shows at the next look counts. A job that cannot be
        signalled is requeued all the same, when its grace time would have been over."""
        fields = yield_fields(effect)
        self._log.warning("job cannot be told to yield", job=fields.job, kind=effect.kind, words=words)
        order = self._order_of(fields)
        if order is None:
            return
        if effect.kind in (SIGNAL, SAVE):
            self._begin_grace(order, self._site.now_s)
        else:
            order.requeued_s = self._site.now_s
        self._is_due = True

    def _needed(self) -> dict[str, tuple[_Cause, PreemptibleJob]]:
        """The jobs that have to go, with the first reservation that needs their nodes, if it is time."""
        site, found = self._site, dict[str, tuple[_Cause, PreemptibleJob]]()
        for key, cut in self._cut.items():
            told_s = cut.end_s - cut.job.run.terms.notice_s
            if site.now_s >= told_s:
                found[key] = _Cause(cut.piece, cut.end_s, cut.following), cut.job
            else:
                self._look_again(told_s)
        for live in sorted(self._promised(), key=lambda live: (live.reservation.start_s, live.name)):
            start_s = live.reservation.start_s
            for job in self._on(live):
                if job.key in found or job.run.end_s <= start_s or _goes_in_time(live, job):
                    continue
                told_s = start_s - job.run.terms.notice_s
                if site.now_s >= told_s:
                    found[job.key] = _Cause(live.name, start_s), job
                else:
                    self._look_again(told_s)
        return found

    def _promised(self) -> Iterator[Live]:
        for name in self._near:
            live = self._site.live.get(name)
            if live is None or live.record.state.is_final or live.is_refused:
                continue
            if name in self._site.book.entries and live.reservation.end_s > self._site.now_s:
                yield live

    def _on(self, live: Live) -> Iterable[PreemptibleJob]:
        on = self._preemptible.on
        return {job.key: job for node in live.nodes for job in on.get(node, {}).values()}.values()

    def _tell(self, cause: _Cause, job: PreemptibleJob) -> None:
        """Signal a job, or have it requeued, if it is time for that and it has not been done."""
        now_s, terms, start_s = self._site.now_s, job.run.terms, cause.start_s
        order = self._orders.get(job.key)
        if order is None or order.fields.run_s != job.run.start_s:
            order = self._begin(cause, job)
        elif (order.fields.reservation, order.fields.start_s) != (cause.name, start_s):
            # Another needs it now: what it was told, and when, stays as it is.
            self._drop(job.key)
            order.fields = replace(order.fields, reservation=cause.name, start_s=start_s)
            if order.is_signal_sent:
                self._requeue_by(order, min(order.fields.requeue_s, terms.latest_requeue_s(start_s)))
        if not order.is_signal_sent and (not job.is_told or now_s >= terms.latest_requeue_s(start_s)):
            order.is_signal_sent = True
            self._requeue_by(order, terms.latest_requeue_s(start_s))
        elif order.requeued_s is not None:
            again_s = order.requeued_s + max(AGAIN_S, 2 * self._site.settings.look_every_s)
            if now_s >= again_s:
                self._requeue_by(order, now_s)
            else:
                self._look_again(again_s)
        elif not order.is_signal_sent:
            self._look_again(terms.latest_requeue_s(start_s))

    def _begin(self, cause: _Cause, job: PreemptibleJob) -> _Order:
        """A job is to yield, and is told so if it has asked for it."""
        self._drop(job.key)
        back = "" if cause.following else ", and comes back"
        fields = YieldFields(
            job=job.key,
            run_s=job.run.start_s,
            reservation=cause.name,
            start_s=cause.start_s,
            signal=job.checkpoint,
            reason=f"outrider: {cause.words}{back}",
        )
        order = self._orders[job.key] = _Order(fields)
        self._say(job.key, "yields", cause.words)
        self._log.info("job yields", job=job.key, reservation=cause.name, start_s=cause.start_s)
        if job.is_told and self._site.now_s < job.run.terms.latest_requeue_s(cause.start_s):
            tell = signal_effect if job.checkpoint else save_effect
            self._site.todo([tell(fields, self._site.now_s)])
        self._show(job.key)
        return order

    def _begin_grace(self, order: _Order, signalled_s: int) -> None:
        """From now on a job has its grace time. That it was signalled is known by what waits for its end."""
        job = self._job(order.fields.job)
        if order.is_signal_sent or job is None:
            return
        order.is_signal_sent = True
        self._requeue_by(order, job.run.terms.requeue_s(signalled_s, order.fields.start_s))

    def _requeue_by(self, order: _Order, at_s: int) -> None:
        """Let a job be requeued then, and not at another time."""
        key, now_s = order.fields.job, self._site.now_s
        self._drop(key)
        order.requeued_s = None
        order.fields = replace(order.fields, requeue_s=max(now_s, at_s))
        self._site.todo([requeue_effect(order.fields, now_s)])

    def _call_off(self, key: str) -> None:
        """A job has gone, or need not go any more."""
        self._drop(key)
        order = self._orders.pop(key)
        job = self._job(key)
        if job is not None and job.run.start_s == order.fields.run_s and order.requeued_s is None:
            self._say(
                key, "stays", f"reservation {order.fields.reservation} does not need its nodes any more"
            )
        self._show(key)

    def _complain(self, kept: dict[str, dict[str, str]]) -> None:
        """Say of which reservations the nodes are not left, and that they are after all."""
        for name, nodes in kept.items():
            node, key = min(nodes.items())
            words = f"job {key} is still on {node}, and has to make way"
            self._troubles.note_kept(name, nodes, words)
            if name not in self._kept:
                self._kept.add(name)
                self._meter.count("outrider_jobs_yielding_total", "late")
                self._log.warning("job does not yield", job=key, node=node, reservation=name)
        for name in sorted(self._kept - kept.keys()):
            self._kept.discard(name)
            self._troubles.clear_kept(name)
            self._repair.again(name)

    def _order_of(self, fields: YieldFields) -> _Order | None:
        order = self._orders.get(fields.job)
        return order if order is not None and order.fields.run_s == fields.run_s else None

    def _show(self, key: str) -> None:
        """Let the job's user see it."""
        entry, order = self._jobs.entries.get(key), self._orders.get(key)
        if entry is None:
            return
        if order is not None:
            entry.yields_to, entry.yields_s = order.fields.reservation, order.fields.start_s
        elif key in self._preemptible.all:
            entry.yields_to = ""
        self._jobs.touch(entry)

    def _job(self, key: str) -> PreemptibleJob | None:
        cut = self._cut.get(key)
        return self._preemptible.all.get(key) if cut is None else cut.job

    def _say(self, key: str, outcome: str, words: str) -> None:
        job = self._job(key)
        self._site.note("yield", f"job {key}", outcome, words, uid=0 if job is None else job.uid)

    def _look_again(self, at_s: int) -> None:
        self._next_s = at_s if self._next_s is None else min(self._next_s, at_s)

    def _drop(self, key: str) -> None:
        """What the job was to be told is void, but for what is on its way."""
        site = self._site
        for effect in site.store.waiting_effects(yielding_of(key)):
            if not self._is_carrying(effect.identity):
                identity = effect.identity
                site.write_lightly(
                    lambda progress, identity=identity: progress.finish_effect(identity, site.now_s)  # type: ignore[misc]
                )


def _goes_in_time(live: Live, job: PreemptibleJob) -> bool:
    """Whether a job can stay where an event is waited for: told when that comes, it is gone in time."""
    terms = live.document.open
    return terms is not None and live.waits and job.run.terms.notice_s <= terms.within_s
