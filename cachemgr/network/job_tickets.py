"""Tickets of jobs: which image a job may have on its nodes, signed by whoever has the site's key.

    1.JOB.UID.DIGEST.EXPIRES.MAC       JOB is - for every task of an array; 17+2: job 17, which needs two
                                       images beside that one, pinned for 17+1 and 17+2

MAC is the HMAC-SHA256, under the site's key, of `outrider-job|` and everything before the last dot.
A ticket is no secret among those who can read the job's comment: it is of use to nobody but root
on a node, for that user, who may use the image anyway.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest, NotAllowed
from cachemgr.protocol import FURTHER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

VERSION = "1"
DOMAIN = b"outrider-job|"
ANY_JOB = "-"
JOB = re.compile(r"[0-9A-Za-z][0-9A-Za-z_-]{0,63}")
MOST_FURTHER = 8
TICKET = re.compile(
    r"(1\.((?:-|[0-9A-Za-z][0-9A-Za-z_-]{0,63})(?:\+[1-8])?)\.(\d{1,10})\.([0-9a-f]{64})\.(\d{1,12}))\.([0-9a-f]{64})"
)


@dataclass(frozen=True)
class JobTicket:
    """What a ticket says."""

    job: str
    uid: int
    digest: str
    expires_s: int
    further: int = 0
    """How many images the job needs beside that one."""


def further_name(job: str, number: int) -> str:
    """Under which name one of a job's further images is pinned."""
    return f"{job}{FURTHER}{number}"


def make_job_ticket(key: bytes, ticket: JobTicket) -> str:
    """The ticket as the text that travels with the job."""
    job = further_name(ticket.job, ticket.further) if ticket.further else ticket.job
    text = f"{VERSION}.{job}.{ticket.uid}.{ticket.digest}.{ticket.expires_s}"
    whole = f"{text}.{_mac(key, text)}"
    if TICKET.fullmatch(whole) is None:
        raise BadRequest(
            f"no ticket can be made for job {ticket.job!r}, uid {ticket.uid}, image {ticket.digest!r}: "
            "a job is digits or -, an image 64 digits 0-9a-f"
        )
    return whole


def checked_ticket(keys: Iterable[bytes], text: str, *, job: str, uid: int, now_s: int) -> JobTicket:
    """What a ticket says, if it is for this job of this user; `NotAllowed` with the reason if not."""
    found = TICKET.fullmatch(text)
    if found is None:
        raise NotAllowed(f"the ticket of job {job} cannot be read: submit the job again")
    # Every key is tried, and compared in constant time: the time tells nothing about any.
    fitting = [hmac.compare_digest(found[6], _mac(key, found[1])) for key in keys]
    if not any(fitting):
        raise NotAllowed(
            f"the ticket of job {job} was not signed with this node's key: submit the job again; "
            "if that does not help, compare the keys of this node and of the service"
        )
    name, _, further = found[2].partition(FURTHER)
    ticket = JobTicket(name, int(found[3]), found[4], int(found[5]), int(further or 0))
    if ticket.uid != uid:
        raise NotAllowed(f"the ticket of job {job} is for uid {ticket.uid}, not for uid {uid}")
    if ticket.job not in (ANY_JOB, job):
        raise NotAllowed(f"job {job} has the ticket of job {ticket.job}")
    if ticket.expires_s <= now_s:
        raise NotAllowed(f"the ticket of job {job} has expired: release the job again")
    return ticket


def _mac(key: bytes, text: str) -> str:
    return hmac.digest(key, DOMAIN + text.encode(), "sha256").hex()
