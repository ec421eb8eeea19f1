"""A site of two nodes with the image of all, whose jobs may make way for reservations."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from outrider.rms.base import JobState
from outrider.service.ports import NodeImage
from outrider.service.settings import Settings
from tests.unit.service.desk.sandbox import RATE, Sandbox, digest_of

MARGIN_S, GRACE_S, MOST_GRACE_S = 40, 30, 120
NOTICE_S = MARGIN_S + GRACE_S
YIELDING = f"preemptible: requeue\ncheckpoint: USR1\ngrace: {GRACE_S}s\n"
SILENT = "preemptible: requeue\n"
MACHINE = "run: vm\npreemptible: suspend\n"
SAVING_RATE = 64 << 20
MEMORY_MIB = 1024
SAVING_S = 5 + 1024 // 64
SETTINGS = Settings(
    link_rate_bytes_per_s=RATE,
    reserve_s=60,
    look_every_s=5,
    allows_preemptible=True,
    most_requeue_grace_s=MOST_GRACE_S,
    requeue_margin_s=MARGIN_S,
    allows_machines=True,
    saving_rate_bytes_per_s=SAVING_RATE,
)
SETTLED_S = 320
"""Nodes have been asked what they have."""


def site_of(folder: Path, settings: Settings, nodes: int = 2) -> Iterator[Sandbox]:
    made = Sandbox(folder, nodes=nodes, settings=settings)
    for pool in made.pools.values():
        digest = digest_of("ubuntu")
        pool.images[digest] = NodeImage(digest=digest, size_bytes=10 * RATE, uri="x")
    made.sleep(SETTLED_S)
    yield made
    made.close()


def running(site: Sandbox, more: str = YIELDING, **options: object) -> str:
    """A job that runs, and would for an hour."""
    key = site.submit(more=more, argv=("sleep", "3000"), **options)  # type: ignore[arg-type]
    site.sleep(30)
    job = site.job(key)
    assert job is not None
    assert job.state is JobState.RUNNING
    return key


def happened(site: Sandbox, key: str, what: str) -> list[int]:
    """When that happened to a job."""
    return [each.at_s for each in site.rms.log if each.subject == key and each.what == what]


def state(site: Sandbox, key: str) -> JobState | None:
    job = site.job(key)
    return None if job is None else job.state
