"""What looks like the machines of gone jobs is removed little by little: users can make many such folders."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

from outrider.service.desk.jobs.orders import MOST_MACHINES, JobOrders
from outrider.service.ports import NodeReport
from tests.unit.service.daemon.fakes import text_log


class Released:
    """The orders of nodes, of which only releases count here."""

    def __init__(self) -> None:
        self.statuses: dict[str, Any] = {}
        self.owners: list[str] = []

    def release(self, node: str, owner: str, now_s: int) -> None:
        self.owners.append(owner)


def compared(report: NodeReport) -> list[str]:
    site = SimpleNamespace(settings=SimpleNamespace(allows_machines=True), now_s=5)
    released = Released()
    orders = JobOrders(cast(Any, site), cast(Any, released), lambda identity: False, text_log(io.StringIO()))
    for _ in range(2):
        orders.saw(["1", "2"])
    orders.compare(report)
    return released.owners


def report(jobs: tuple[str, ...], machines: tuple[str, ...]) -> NodeReport:
    return NodeReport(node="n1", at_s=5, limit_bytes=1, used_bytes=0, jobs=jobs, machines=machines)


def test_machines_of_gone_jobs_are_removed_little_by_little_and_instances_at_once() -> None:
    instances = tuple(f"job-{number}" for number in range(100, 100 + 3 * MOST_MACHINES))
    fakes = tuple(f"job-{number}" for number in range(9_000, 11_000))

    assert compared(report(instances, ("job-1", *fakes))) == [*instances, *fakes[:MOST_MACHINES]]


def test_machines_of_jobs_that_are_there_stay() -> None:
    assert compared(report(("job-1",), ("job-2", "job-2.1", "somebody"))) == ["job-2.1"]
