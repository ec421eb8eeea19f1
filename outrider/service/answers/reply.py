"""What the desk replies: one of all answers, or what was wrong with the request."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.service.answers.decision import Decision
from outrider.service.answers.events import EventTaken
from outrider.service.answers.images import ImageList
from outrider.service.answers.jobs import Handover, JobDetails, JobList, Verdict
from outrider.service.answers.leases import LeaseDetails, LeaseList, Report
from outrider.service.answers.nodes import NodeList, Reconciled
from outrider.service.answers.records import DecisionList, Explanation
from outrider.service.answers.reservations import ReservationDetails, ReservationList
from outrider.service.answers.site import Overview, Status, Timeline
from outrider.service.answers.switch import SwitchView
from outrider.service.answers.transfers import TransferList


@dataclass(frozen=True, kw_only=True, slots=True)
class Trouble:
    """A request that could not be dealt with. `code` tells the kind: not-found, not-allowed,
    ambiguous, conflict, invalid, unavailable, busy."""

    code: str
    message: str


Answer = (
    Decision
    | ReservationDetails
    | ReservationList
    | JobList
    | JobDetails
    | Verdict
    | Explanation
    | ImageList
    | NodeList
    | TransferList
    | Timeline
    | Overview
    | Status
    | DecisionList
    | Report
    | LeaseList
    | LeaseDetails
    | Reconciled
    | Handover
    | EventTaken
    | SwitchView
    | Trouble
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Replied:
    """The answer to the request that waits under `ticket`."""

    ticket: int
    answer: Answer
