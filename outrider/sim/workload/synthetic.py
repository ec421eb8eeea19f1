"""A workload of gang leases like those with which Haizea was measured, for speed races."""

from __future__ import annotations

from random import Random

from outrider.core.model import Image, Resources, Workspace
from outrider.sim.workload.images import uniform_images
from outrider.sim.workload.nodes import uniform_nodes
from outrider.sim.workload.trace import Trace, TraceSubmission

ONE_CPU = Resources.of(cpus=1)
_MINUTES = (10, 60)
_NOTICE_S = (3_600, 4 * 3_600)


def synthetic_leases(
    best_effort: int = 1000,
    reservations: int = 50,
    nodes: int = 8,
    load: float = 0.9,
    seed: int | str = 1,
    *,
    has_images: bool = True,
) -> Trace:
    """Best-effort gangs and reservations of one VM a node, with six images of 600 MB.

    A lease takes up to half the nodes, asks for 10 to 60 minutes and really runs for 50 to
    100 % of that. Arrivals and starts are uniform over a time that makes the work really
    done `load` times what the nodes could do. Reservations give 1 to 4 hours of notice,
    less only in the beginning, where the trace has not been running for so long.
    """
    if min(best_effort, reservations) < 0 or best_effort + reservations < 1 or nodes < 1:
        raise ValueError("a workload needs leases and nodes")
    if not load > 0:
        raise ValueError(f"a load of {load}: write one above 0, for instance 0.9")
    random = Random(seed)
    kinds = [True] * best_effort + [False] * reservations
    random.shuffle(kinds)
    shapes = [_shape(nodes, random) for _ in kinds]
    work = sum(instances * run_s for instances, _, run_s in shapes)
    length_s = max(1, round(work / (nodes * load)))
    images = uniform_images(6)
    submissions = []
    for number, (is_best_effort, shape) in enumerate(zip(kinds, shapes, strict=True), 1):
        arrival_s = random.randrange(length_s)
        start_s = None if is_best_effort else arrival_s
        notice_s = 0 if is_best_effort else random.randint(*_NOTICE_S)
        image = images.draw(random) if has_images else None
        submissions.append(_submission(number, max(0, arrival_s - notice_s), start_s, shape, image))
    submissions.sort(key=lambda submission: submission.at_s)
    return Trace(
        name=f"synthetic-{best_effort}-{reservations}-{nodes}",
        submissions=tuple(submissions),
        nodes=uniform_nodes(nodes, ONE_CPU),
    )


def _shape(nodes: int, random: Random) -> tuple[int, int, int]:
    """Instances, requested seconds, real seconds."""
    instances = random.randint(1, max(1, nodes // 2))
    duration_s = 60 * random.randint(*_MINUTES)
    return instances, duration_s, random.randint(duration_s // 2, duration_s)


def _submission(
    number: int,
    at_s: int,
    start_s: int | None,
    shape: tuple[int, int, int],
    image: Image | None,
) -> TraceSubmission:
    instances, duration_s, run_s = shape
    workspace = Workspace(
        name=f"{'be' if start_s is None else 'ar'}{number}",
        instances=instances,
        resources=ONE_CPU,
        duration_s=duration_s,
        image=image,
        start_s=start_s,
    )
    return TraceSubmission(at_s=at_s, workspace=workspace, run_s=run_s)
