"""Jobs and reservations of the same user: jobs that run in one carry its ticket, and jobs made from the
same workspace with the same image are bound to it. In a reservation of somebody else's no image comes to a
job's nodes: one that names an image is held there, and says so. Those in a lease in pieces go from one piece
to the next."""

from __future__ import annotations

from contextlib import suppress

from outrider.core.model import Resources
from outrider.metadata.errors import TextError
from outrider.metadata.joblines import parse_job_lines
from outrider.rms.base import JobState, RmsJob
from outrider.service.desk.batch.job_effects import (
    TicketFields,
    bind_effect,
    hold_effect,
    release_effect,
    ticket_effect,
)
from outrider.service.desk.jobs.interruption.pieces import goes_on, limit_in, moves_on
from outrider.service.desk.jobs.job import WAITING, JobEntry
from outrider.service.desk.jobs.orders import JobOrders
from outrider.service.desk.state.node_list import is_part
from outrider.service.desk.state.site import Live, Site
from outrider.service.meter import Log
from outrider.service.ports import FoundImage

ORDER_LOOKS = 2
MOST_TRIES = 3
"""So often a job is tried again whose start in a reservation has failed."""
TRY_S = 30
"""So long after one attempt comes the next, and each time twice as long."""
FURTHER = (
    "its data images and the images of its roles come to the nodes of jobs that wait in the queue, and not "
    "to those of a reservation; leave data and the roles' image out, or submit it without the reservation"
)
NO_VERSION = -1
"""In place of the version of a reservation of ours."""


class JobsInReservations:
    """Which jobs are known to have what they need to run in their reservations."""

    def __init__(self, site: Site, orders: JobOrders, log: Log) -> None:
        self._site = site
        self._orders = orders
        self._log = log
        self._told: dict[str, tuple[str, int, bool, int | None]] = {}
        """By job, the reservation and its version for which it has a ticket, whether it was held, and the
        limit that it was given."""
        self._looks: dict[str, int] = {}
        self._tries: dict[str, tuple[int, int]] = {}
        """Of jobs whose start has failed, how often they were tried again, and from when on they may be."""

    def seen(self, job: RmsJob, foreign: frozenset[str] = frozenset()) -> None:
        """A job that names a reservation: if that is ours, it gets its ticket, and is not held. `foreign`
        are those that administrators have made."""
        is_wanted = job.metadata is not None and not job.is_hint
        if job.reservation in foreign and is_wanted and job.state in WAITING:
            self._keep_back(
                job,
                f"reservation {job.reservation} is not made by Outrider, so no image comes to its nodes; "
                "cancel the job and submit it again, or let an administrator take it out",
            )
            return
        if is_wanted and job.state in WAITING and _has_further(job.metadata):
            self._keep_back(job, FURTHER)
            return
        live = None if job.reservation is None else self._site.live.get(job.reservation)
        if job.state not in WAITING:
            return
        following = moves_on(self._site, job, live)
        if following is not None:
            self._go_on(job, following)
            return
        if live is None:
            return
        if job.has_failed:
            self._try_again(job, live)
            return
        is_held = job.state is JobState.HELD and job.is_held_by_us
        limit_s = self._shorter(job, live)
        told = (live.name, live.record.version, is_held, limit_s)
        looks = self._looks[job.key] = self._looks.get(job.key, 0) + 1
        # One that is still held was not released after all.
        if self._told.get(job.key) == told and not (is_held and looks >= ORDER_LOOKS):
            return
        self._told[job.key], self._looks[job.key] = told, 0
        ticket = _ticket(job, live, self._site)
        if limit_s is not None:
            self._orders.order(bind_effect(job.key, live.name, ticket, self._site.now_s, limit_s))
        elif is_held:
            self._orders.order(release_effect(job.key, (), ticket, self._site.now_s))
        else:
            self._orders.order(ticket_effect(job.key, ticket, self._site.now_s))

    def _shorter(self, job: RmsJob, live: Live) -> int | None:
        """The limit with which a job starts in its piece of a lease, if it has a longer one."""
        if (
            not goes_on(job)
            or not live.document.pieces
            or (job.state is JobState.HELD and not job.is_held_by_us)
        ):
            return None
        limit_s = limit_in(live, self._site.now_s)
        return limit_s if job.limit_s is None or job.limit_s > limit_s else None

    def _go_on(self, job: RmsJob, live: Live) -> None:
        """Let a job of a lease in pieces run in the next one."""
        limit_s = limit_in(live, self._site.now_s)
        told = (live.name, live.record.version, True, limit_s)
        looks = self._looks[job.key] = self._looks.get(job.key, 0) + 1
        if self._told.get(job.key) == told and looks < ORDER_LOOKS:
            return
        self._told[job.key], self._looks[job.key] = told, 0
        ticket = _ticket(job, live, self._site)
        self._orders.order(bind_effect(job.key, live.name, ticket, self._site.now_s, limit_s))
        words = f"it goes on in {live.name}, for {limit_s // 60} min at most"
        self._site.note("lead", f"job {job.key}", "bound", words, uid=job.uid)
        self._log.info("job goes on in the next piece", job=job.key, reservation=live.name)

    def _try_again(self, job: RmsJob, live: Live) -> None:
        """Its start has failed in a reservation, as it does if one of its nodes has died: once all of them
        are there and have the image it is tried again, not forever if it fails for a reason of its own."""
        now_s = self._site.now_s
        tried, again_s = self._tries.get(job.key, (0, now_s))
        if again_s > now_s or tried >= MOST_TRIES or not live.may_begin or self._site.gone_nodes(live):
            return
        self._tries[job.key] = (tried + 1, now_s + TRY_S * 2**tried)
        self._told[job.key], self._looks[job.key] = (live.name, live.record.version, False, None), 0
        self._orders.order(release_effect(job.key, (), _ticket(job, live, self._site), now_s))
        words = f"its start in {live.name} has failed; it is tried again ({tried + 1} of {MOST_TRIES})"
        self._site.note("lead", f"job {job.key}", "retried", words, uid=job.uid)
        self._log.warning("job is tried again", job=job.key, reservation=live.name, tries=tried + 1)

    def _keep_back(self, job: RmsJob, why: str) -> None:
        """Hold a job, and say why, once; and again if it is let go."""
        assert job.reservation is not None
        told = (job.reservation, NO_VERSION, False, None)
        looks = self._looks[job.key] = self._looks.get(job.key, 0) + 1
        if self._told.get(job.key) == told and (job.state is JobState.HELD or looks < ORDER_LOOKS):
            return
        self._told[job.key], self._looks[job.key] = told, 0
        words = f"outrider: it stays held: {why}"
        self._orders.order(hold_effect(job.key, words, self._site.now_s))
        self._site.note("lead", f"job {job.key}", "held", words.removeprefix("outrider: "), uid=job.uid)
        self._log.warning(
            "job with an image in a foreign reservation", job=job.key, reservation=job.reservation
        )

    def reservation_of(self, job: str) -> str:
        """The reservation that a job has a ticket for; empty if for none."""
        found = self._told.get(job)
        return "" if found is None else found[0]

    def forget_others(self, keys: frozenset[str]) -> None:
        """Only these jobs are still there."""
        for key in [key for key in self._told if key not in keys]:
            del self._told[key], self._looks[key]
        for key in [key for key in self._tries if key not in keys]:
            del self._tries[key]

    def bind(self, entry: JobEntry, image: FoundImage) -> str:
        """Bind a job to a reservation that its user has made for it; its name, or nothing."""
        lines, job = entry.lines, entry.job
        if lines is None or not lines.name or entry.further:
            return ""
        found = [
            live
            for live in self._site.owned(job.uid)
            if live.document.workspace == lines.name
            and live.document.digest == image.digest
            and live.is_confirmed
            and not live.record.state.is_final
            and live.reservation.end_s > self._site.now_s
            and len(live.nodes) >= job.nodes_wanted
            and _has_room(live.reservation.workspace.resources, job)
        ]
        if not found:
            return ""
        live = min(found, key=lambda live: (live.reservation.start_s, live.name))
        ticket = _ticket(job, live, self._site)
        self._orders.order(bind_effect(job.key, live.name, ticket, self._site.now_s))
        self._site.note("lead", f"job {job.key}", "bound", f"it runs in reservation {live.name}", uid=job.uid)
        self._log.info("job is bound", job=job.key, reservation=live.name)
        return live.name


def _has_further(metadata: str | None) -> bool:
    """Whether a job needs images beside its own."""
    if metadata is None or ("data:" not in metadata and "role:" not in metadata):
        return False
    with suppress(TextError):
        return bool(parse_job_lines(metadata).further)
    return False


def _has_room(resources: Resources, job: RmsJob) -> bool:
    """Whether a job fits into what a reservation has of each node."""
    return not is_part(resources) or job.resources["cpus"] <= resources["cpus"]


def _ticket(job: RmsJob, live: Live, site: Site) -> TicketFields:
    return TicketFields(
        job="-" if job.tasks > 1 else job.key,
        uid=job.uid,
        digest=live.document.digest,
        expires_s=live.reservation.end_s + site.settings.grace_s,
    )
