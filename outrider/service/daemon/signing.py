"""Tickets made for jobs: what the desk says of them, signed with the site's key."""

from __future__ import annotations

from cachemgr.network.job_tickets import JobTicket, make_job_ticket
from outrider.service.ports import Sign


def signer(key: bytes) -> Sign:
    """What signs with this key."""

    def sign(job: str, uid: int, digest: str, expires_s: int) -> str:
        ticket = JobTicket(job=job, uid=uid, digest=digest.removeprefix("sha256:"), expires_s=expires_s)
        return make_job_ticket(key, ticket)

    return sign
