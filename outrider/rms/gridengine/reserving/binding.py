"""The arguments of qalter with which a job gets into a reservation, out of it, and to certain nodes."""

from __future__ import annotations

from outrider.rms.base import Refused, RmsJob, RmsReservation
from outrider.rms.gridengine import context, seeing, submitting
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.parsing import Detail
from outrider.rms.gridengine.settings import GridEngineSettings
from outrider.rms.gridengine.snapshot import Snapshot, selected

ANY_QUEUE = "*"


def misfit(
    settings: GridEngineSettings, detail: Detail, job: RmsJob, wanted: RmsReservation, slots: int
) -> Refused | None:
    """A parallel job waits forever in a reservation whose allocation rule is not its own: with `slots`, those
    that it has of each node."""
    environment, whole = detail.environment, settings.environment(slots)
    if environment is None or whole is None or environment == whole:
        return None
    what = "whole nodes" if wanted.is_whole else f"{slots} slots of each node"
    return Refused(
        f"job {job.key} asks for parallel environment {environment}, and reservation {wanted.name} "
        f"has {what}: submit it with -pe {whole} {slots * job.nodes_wanted}"
    )


def bound(settings: GridEngineSettings, detail: Detail, number: int, wanted: RmsReservation) -> list[str]:
    """Into the reservation that has this number."""
    wishes = seeing.own_wishes(detail, settings)
    requests = dict(wishes.requests)
    arguments = ["-ar", str(number), "-q", settings.queue_of(wanted)]
    arguments += ["-ac", f"{context.QUEUES}={context.encoded(','.join(wishes.queues) or ANY_QUEUE)}"]
    if wishes.limit_s is not None and wishes.limit_s > wanted.end_s - wanted.start_s:
        requests.pop("h_rt", None)
        arguments += ["-ac", f"{seeing.LIMIT}={wishes.limit_s}"]
    elif wishes.limit_s is not None:
        requests["h_rt"] = str(wishes.limit_s)
    requests[settings.reservation_complex] = "TRUE"
    return [*arguments, "-l", submitting.requests(requests)]


def unbound(settings: GridEngineSettings, detail: Detail) -> list[str]:
    """Out of any, with what its user has asked for."""
    wishes = seeing.own_wishes(detail, settings)
    requests = dict(wishes.requests)
    if wishes.limit_s is not None:
        requests["h_rt"] = str(wishes.limit_s)
    queues = ",".join(wishes.queues) or ANY_QUEUE
    return ["-ar", "0", "-q", queues, "-l", submitting.requests(requests)]


def led(
    commands: GridEngineCommands,
    settings: GridEngineSettings,
    snapshot: Snapshot,
    detail: Detail,
    job: RmsJob,
    nodes: tuple[str, ...],
) -> list[str]:
    """The queues for a job that is released to nodes; its user's own wishes are kept and kept to."""
    wishes = seeing.own_wishes(detail, settings)
    own = ",".join(wishes.queues) or ANY_QUEUE
    kept = ["-ac", f"{context.QUEUES}={context.encoded(own)}"]
    reserved = {each.name: each for each in snapshot.sight.reservations}.get(job.reservation or "")
    if reserved is not None:
        queue = settings.queue_of(reserved)
        names = [f"{queue}@{node}" for node in sorted(set(nodes))]
        return ["-q", ",".join(names) or queue, *kept]
    if not nodes:
        return ["-q", own, *kept]
    if seeing.restricts(wishes):
        names = [
            name
            for name in selected(commands, wishes)
            if name.partition("@")[2] in nodes and name.partition("@")[0] not in settings.reserved_queues
        ]
    else:
        names = [f"{settings.work_queue}@{node}" for node in sorted(set(nodes))]
    if len({name.partition("@")[2] for name in names}) < job.nodes_wanted:
        raise Refused(f"job {job.key} may not run on {' '.join(nodes)}: its user named other nodes")
    return ["-q", ",".join(sorted(names)), *kept]
