"""The service at a glance."""

from __future__ import annotations

from outrider import __version__
from outrider.service.answers.site import Status
from outrider.service.desk.components import DeskComponents
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.settings import Settings


def status_of(
    parts: DeskComponents | None,
    settings: Settings,
    node_orders: NodeOrders,
    *,
    now_s: int,
    started_s: int,
    batch_system: str,
    troubles: tuple[str, ...],
    seen_s: int | None,
    nodes_up: int,
    decided: dict[str, int],
) -> Status:
    """What there is, how much of it, and what is wrong. A service that cannot load has no parts."""
    silent = node_orders.silent.values()
    site = None if parts is None else parts.site
    link = None if site is None else site.book.link
    return Status(
        version=__version__,
        site=settings.site,
        batch_system=batch_system,
        now_s=now_s,
        started_s=started_s,
        is_promising=not troubles,
        troubles=troubles,
        last_look_s=seen_s,
        nodes=len(node_orders.statuses),
        nodes_up=nodes_up,
        nodes_away=sum(status.is_away(now_s, settings.away_after_s) for status in silent),
        reservations={} if parts is None else parts.views.counts(),
        next_start_s=None if site is None else site.next_start_s(),
        transfers_waiting=0 if link is None else len(link),
        transfers_running=0 if site is None else len(site.moving),
        link_rate_bytes_per_s=settings.link_rate_bytes_per_s,
        link_busy_until_s=None
        if link is None
        else max((end_s for _, end_s in link.under_way()), default=None),
        effects_waiting=0 if site is None else site.store.count_effects(),
        decisions=decided,
        jobs={} if parts is None else parts.jobs.queues.counts(),
        jobs_overdue=0 if parts is None else parts.jobs.queues.overdue(),
        link_measured_bytes_per_s=None if parts is None else parts.alarms.link.measured_bytes_per_s,
        link_words="" if parts is None else parts.alarms.link.words,
        turns_words="" if parts is None else parts.jobs.turns.words,
        head=settings.head,
        head_since_s=settings.head_since_s or None,
        is_link_doubted=parts is not None and parts.alarms.link.is_doubted,
    )
