"""Under which names nodes pin images: a reservation's own, or one made of a job's key."""

from __future__ import annotations

from outrider.service.ports import FURTHER, JOB_OWNER


def owner_of(key: str) -> str:
    """Under which name nodes pin for a job."""
    return f"{JOB_OWNER}{key}"


def key_of(job: str, number: int) -> str:
    """Under which key one of a job's images is known: the job's own, or a further one by its number."""
    return f"{job}{FURTHER}{number}" if number else job


def job_of_owner(owner: str) -> str | None:
    """The job that something is pinned for, whichever of its images that is; None if it is a reservation."""
    return owner.removeprefix(JOB_OWNER).partition(FURTHER)[0] if owner.startswith(JOB_OWNER) else None


def number_of_owner(owner: str) -> int:
    """Which of its job's further images something is; 0 if it is the job's own."""
    number = owner.partition(FURTHER)[2]
    return int(number) if number.isdigit() else 0
