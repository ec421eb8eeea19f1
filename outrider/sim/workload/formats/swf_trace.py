"""What a log means as a trace: which jobs are played, as how many instances of what."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat

from outrider.core.model import Image, Node, Resources, Workspace
from outrider.sim.workload.formats.swf import SwfLog
from outrider.sim.workload.nodes import uniform_nodes
from outrider.sim.workload.trace import Trace, TraceSubmission, WorkloadError

# The thesis' stretch of the DataStar log, section 8.2: the end is excluded.
COMPLETED = 1
ONE_CPU = Resources.of(cpus=1)


def log_trace(
    log: SwfLog,
    *,
    name: str,
    processors_per_instance: int = 1,
    resources: Resources = ONE_CPU,
    images: Iterable[Image] | None = None,
    origin_s: int = 0,
    nodes: tuple[Node, ...] = (),
) -> Trace:
    """The jobs of a log as parallel best-effort workspaces, in the order of their arrival.

    `processors_per_instance` scales a machine down (the thesis takes 4 DataStar processors
    for one instance) or makes an instance of a whole node; what is left over needs one
    more instance. `images` are dealt out one a job; they must last. `origin_s` is the
    instant of the log that becomes 0.

    A job that never ran, or whose size nobody knows, cannot be played and is left out. A
    job asked for what it requested, or, if that is unknown, for what it ran; what ran
    longer than its request is cut there, as the batch system would have done.
    """
    if processors_per_instance < 1:
        raise ValueError(f"{processors_per_instance} processors an instance: ask for 1 or more")
    rows = [row for row in range(len(log)) if log.run_s[row] >= 0 and log.processors[row] > 0]
    rows.sort(key=log.submit_s.__getitem__)
    supply = iter(images) if images is not None else repeat(None)
    submissions: list[TraceSubmission] = []
    for row in rows:
        try:
            image = next(supply)
        except StopIteration:
            raise WorkloadError(
                f"trace {name}: {len(submissions)} images for {len(rows)} jobs; "
                "give one image for each job, or an endless supply"
            ) from None
        submissions.append(_submission(log, row, processors_per_instance, resources, image, origin_s))
    return Trace(name=name, submissions=tuple(submissions), nodes=nodes)


def log_nodes(log: SwfLog, *, processors_per_node: int = 1) -> tuple[Node, ...]:
    """As many like nodes as the log's machine had processors for."""
    if log.max_processors is None:
        raise WorkloadError("the log's header has no MaxProcs; name the nodes yourself")
    return uniform_nodes(log.max_processors // processors_per_node, Resources.of(cpus=processors_per_node))


def _submission(
    log: SwfLog,
    row: int,
    processors_per_instance: int,
    resources: Resources,
    image: Image | None,
    origin_s: int,
) -> TraceSubmission:
    requested_s = log.requested_s[row]
    duration_s = requested_s if requested_s > 0 else max(log.run_s[row], 1)
    workspace = Workspace(
        name=f"job{log.job[row]}",
        instances=-(-log.processors[row] // processors_per_instance),
        resources=resources,
        duration_s=duration_s,
        image=image,
    )
    return TraceSubmission(
        at_s=log.submit_s[row] - origin_s,
        workspace=workspace,
        run_s=min(log.run_s[row], duration_s),
        user=str(log.user[row]) if log.user[row] >= 0 else "",
    )
