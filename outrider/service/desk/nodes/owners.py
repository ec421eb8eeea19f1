"""Under which names nodes pin images: a reservation's own, or one made of a job's key."""

from __future__ import annotations

from outrider.service.ports import JOB_OWNER


def owner_of(job: str) -> str:
    """Under which name nodes pin for a job."""
    return f"{JOB_OWNER}{job}"


def job_of_owner(owner: str) -> str | None:
    """The job that something is pinned for; None if it is a reservation."""
    return owner.removeprefix(JOB_OWNER) if owner.startswith(JOB_OWNER) else None
