"""What of a reservation that has begun can still be changed, and which nodes it gives back.

It keeps its start and its instances' sizes; it can end at another time, and have fewer nodes or more.
"""

from __future__ import annotations

from outrider.metadata.notation.hostlists import fold
from outrider.service.desk.state.node_list import is_part
from outrider.service.desk.state.site import Live, Site
from outrider.service.requests import Modify


def unchangeable(site: Site, live: Live, request: Modify) -> str:
    """Why one that has begun cannot be changed so; nothing if it can."""
    has, nodes = len(live.nodes), request.nodes
    if request.start_s is not None or request.sizes:
        return (
            f"reservation {live.name} has begun: its duration and its nodes can be changed; what else is "
            "needed has to be a reservation of its own"
        )
    busy = _busy_nodes(site, live)
    if busy and not site.settings.moves_starts:
        return (
            f"reservation {live.name} has begun, and the batch system cannot change one in which jobs run: "
            "end them first, or reserve what is needed beyond it"
        )
    if nodes in (None, has):
        return "" if request.duration_s is not None else f"reservation {live.name} has begun: nothing changes"
    if not site.settings.moves_starts:
        return (
            f"reservation {live.name} has begun, and the batch system cannot change its nodes: change its "
            "duration"
        )
    if nodes is not None and nodes > has and request.duration_s is not None:
        return f"reservation {live.name} has begun: change its duration first, and then ask for more nodes"
    if site.settings.has_fixed_parts and is_part(live.reservation.workspace.resources):
        return (
            f"reservation {live.name} has begun with parts of nodes, and the batch system cannot change "
            "single nodes of these: change its duration"
        )
    if nodes is not None and len(busy) > nodes:
        return (
            f"reservation {live.name} cannot have {nodes} nodes: its jobs run on {fold(sorted(busy))}; "
            "end them first"
        )
    return ""


def _busy_nodes(site: Site, live: Live) -> set[str]:
    """Those of its nodes on which its own jobs were seen."""
    jobs = (job for job in site.seen_jobs if job.reservation == live.name)
    return {name for job in jobs for name in job.nodes} & set(live.nodes)


def spare_nodes(site: Site, live: Live, request: Modify) -> frozenset[str]:
    """The nodes that one that has begun gives back: rather those without a job, and without the image."""
    if request.nodes is None or request.nodes > len(live.nodes):
        return frozenset()
    busy = _busy_nodes(site, live)
    ranked = sorted(live.nodes, key=lambda name: (name not in busy, name not in live.ready, name))
    return frozenset(ranked[request.nodes :])
