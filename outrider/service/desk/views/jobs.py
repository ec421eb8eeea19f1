"""What can be looked at of jobs. Nothing changes by looking.

That a job waits, and for how long, is for everybody, as it is in the batch system; what its image
is, if that is private, and why it waits are for its user and for administrators.
"""

from __future__ import annotations

from outrider.metadata.notation.hostlists import fold
from outrider.rms.base import JobState
from outrider.service.answers.images import ImageView
from outrider.service.answers.jobs import JobDetails, JobList, JobView
from outrider.service.answers.reply import Trouble
from outrider.service.answers.transfers import NodeStaging
from outrider.service.desk.jobs.job import JobEntry, Stage
from outrider.service.desk.jobs.manager import JobManager
from outrider.service.desk.jobs.notes import standing_of
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.state import Need
from outrider.service.desk.state.permissions import may_see
from outrider.service.desk.state.site import Site
from outrider.service.desk.views.decisions import decision_lines
from outrider.service.desk.views.machines import machines_of
from outrider.service.desk.views.progress import ready_of
from outrider.service.requests import Caller, ListJobs, ShowJob

MOST_DECISIONS = 100
OVER = "over"
"""The state of a job of which nothing but decisions is known any more."""
SUSPENDED = "suspended"
STATES = ("ready", "arriving", "unknown", "waiting", "failed")
"""Of an image on a node, the best first."""
EXPECTED = (Stage.STAGING, Stage.STAGED, Stage.RUNNING)


class JobViews:
    """Answers to whoever looks at jobs."""

    def __init__(self, site: Site, node_orders: NodeOrders, jobs: JobManager) -> None:
        self._site = site
        self._node_orders = node_orders
        self._jobs = jobs

    def jobs(self, request: ListJobs, caller: Caller) -> JobList:
        ordered = sorted(self._jobs.entries.values(), key=lambda entry: (entry.job.submitted_s, entry.key))
        keys = [entry.key for entry in ordered]
        begin = keys.index(request.after) + 1 if request.after in keys else 0
        found = [
            entry
            for entry in ordered[begin:]
            if request.user in (None, entry.job.user)
            and (not request.states or shown_state(entry) in request.states)
        ]
        chosen = found[: request.most]
        return JobList(
            jobs=tuple(self._view(entry, caller) for entry in chosen),
            next_after=chosen[-1].key if len(found) > len(chosen) else "",
        )

    def details(self, request: ShowJob, caller: Caller) -> JobDetails | Trouble:
        entry = self._jobs.entries.get(request.job)
        if entry is None:
            return self._gone(request.job, caller)
        is_shown = _may_read(entry, caller)
        lines = self._site.store.decisions(f"job {entry.key}", most=MOST_DECISIONS) if is_shown else []
        return JobDetails(
            job=self._view(entry, caller),
            tasks=entry.job.tasks,
            staging=self._staging(entry, is_shown=is_shown),
            released_to=fold(entry.released or ()),
            # Numbers of jobs come again after years, or with another batch system.
            decisions=decision_lines(each for each in lines if each.at_s >= entry.job.submitted_s),
            machines=machines_of(entry, self._node_orders.statuses) if is_shown else (),
            machines_folder=self._site.settings.machines_folder,
        )

    def _gone(self, job: str, caller: Caller) -> JobDetails | Trouble:
        """A job that is over, or waits for no image any more: what was decided of it is left."""
        found = self._site.store.decisions(f"job {job}", most=MOST_DECISIONS)
        lines = [each for each in found if may_see(each, caller, set())]
        if not lines:
            return Trouble(
                code="not-found",
                message=f"job {job[:40]} neither waits for an image nor runs with one: see "
                "outrider jobs, or the batch system's own list",
            )
        view = JobView(
            job=job,
            user=caller.user if lines[0].uid == caller.uid else "",
            state=OVER,
            held=False,
            image=None,
            nodes_wanted=0,
            nodes="",
            node_count=0,
            submitted_s=lines[-1].at_s,
            ready_s=None,
            start_s=None,
            is_overdue=False,
            words=f"the last that was decided: {lines[0].outcome}: {lines[0].reason}",
        )
        return JobDetails(job=view, tasks=1, staging=(), released_to="", decisions=decision_lines(lines))

    def _view(self, entry: JobEntry, caller: Caller) -> JobView:
        is_shown = _may_read(entry, caller)
        nodes = self._jobs.names(set(entry.planned if entry.is_scheduled else entry.copies))
        if entry.stage is Stage.RUNNING and entry.job.nodes:
            # It may have gone to others since it started.
            nodes = entry.job.nodes
        planned = self._jobs.names(set(entry.planned))
        ready = self._jobs.names(entry.ready)
        now_s, longest_s = self._site.now_s, self._site.settings.longest_wait_s
        return JobView(
            job=entry.key,
            user=entry.job.user,
            state=shown_state(entry),
            held=entry.job.state is JobState.HELD,
            image=_image(entry, is_shown=is_shown),
            nodes_wanted=entry.job.nodes_wanted,
            nodes=fold(nodes),
            node_count=len(nodes),
            submitted_s=entry.job.submitted_s,
            ready_s=entry.ready_s if entry.stage in EXPECTED else None,
            start_s=entry.start_s if entry.stage is not Stage.RUNNING else entry.job.start_s,
            is_overdue=entry.is_overdue,
            words=self._words(entry, standing_of(entry, ready, longest_s, now_s, planned))
            if is_shown
            else "",
        )

    def _words(self, entry: JobEntry, standing: str) -> str:
        """With how far a conversion is, where it may be another thing at each look."""
        return f"{standing}: {entry.words}" if entry.is_unmade else standing

    def _staging(self, entry: JobEntry, *, is_shown: bool) -> tuple[NodeStaging, ...]:
        return tuple(self._staged_on(entry, node, is_shown=is_shown) for node in sorted(entry.copies))

    def _staged_on(self, entry: JobEntry, node: int, *, is_shown: bool) -> NodeStaging:
        """All of its images together, and the word for the one that is furthest behind."""
        name = self._site.book.timeline.nodes[node].name
        status = self._node_orders.statuses.get(name)
        parts = [each for each in entry.parts if node in each.copies]
        needs = [None if status is None else status.needs.get(each.owner) for each in parts]
        known = [need for need in needs if need is not None]
        states = [_state(each, node, need) for each, need in zip(parts, needs, strict=True)]
        ready = [ready_of(need, each.copies[node]) for each, need in zip(parts, needs, strict=True)]
        return NodeStaging(
            node=name,
            state=max(states, key=STATES.index),
            arrived_bytes=sum(need.arrived_bytes for need in known),
            size_bytes=sum(each.copies[node].image.size_bytes for each in parts),
            rate_bytes_per_s=sum(need.rate for need in known),
            source=next((need.source for need in known if need.source), "") if is_shown else "",
            ready_s=None if None in ready else max(at_s for at_s in ready if at_s is not None),
            words=next((need.words for need in known if need.words), "") if is_shown else "",
        )


def _state(entry: JobEntry, node: int, need: Need | None) -> str:
    """How far one image is on a node."""
    if node in entry.here:
        return "ready"
    if need is None:
        return "waiting"
    return "failed" if need.failures else "arriving" if need.transfer else "unknown"


def _image(entry: JobEntry, *, is_shown: bool) -> ImageView | None:
    found = entry.image
    if found is None:
        return None
    is_private = entry.readers is not None
    return ImageView(
        uri=found.uri if is_shown or not is_private else None,
        digest=found.digest if is_shown or not is_private else None,
        size_bytes=found.size_bytes,
        is_private=is_private,
    )


def _may_read(entry: JobEntry, caller: Caller) -> bool:
    return caller.is_admin or caller.uid == entry.job.uid


def shown_state(entry: JobEntry) -> str:
    """How far a job is, in a word; a machine may be suspended at somebody's wish."""
    return SUSPENDED if entry.job.state is JobState.SUSPENDED else entry.stage.value
