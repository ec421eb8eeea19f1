"""What can be looked at of the whole site: nodes, transfers, the timeline.

Everybody sees who has which nodes when; what a private image is, is for those who may use it.
"""

from __future__ import annotations

from collections.abc import Iterable

from outrider.core.model import Image
from outrider.metadata.notation.hostlists import fold
from outrider.rms.base import NodeState
from outrider.service.answers.images import ImageView
from outrider.service.answers.nodes import NodeList, NodeView
from outrider.service.answers.reply import Trouble
from outrider.service.answers.site import Stretch, Timeline
from outrider.service.answers.transfers import NodeStaging, TransferList, TransferView
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.state import NodeStatus
from outrider.service.desk.state.node_list import parts
from outrider.service.desk.state.permissions import may_read
from outrider.service.desk.state.site import Live, Moving, Site
from outrider.service.desk.views.progress import Progress
from outrider.service.requests import Caller, ListNodes, ListTransfers, ShowTimeline

MOST_STRETCHES = 20_000


class SiteViews:
    """Answers to whoever looks at the site."""

    def __init__(self, site: Site, node_orders: NodeOrders) -> None:
        self._site = site
        self._node_orders = node_orders
        self._progress = Progress(site, node_orders)

    def nodes(self, request: ListNodes, states: dict[str, str]) -> NodeList | Trouble:
        site = self._site
        number_of = site.book.timeline.number_of
        unknown = [name for name in request.names if name not in number_of]
        if unknown:
            return Trouble(code="not-found", message=f"the site has no node {unknown[0]}")
        names = sorted(request.names or number_of, key=lambda name: number_of[name])
        if request.after:
            start = number_of.get(request.after, -1)
            names = [name for name in names if number_of[name] > start]
        chosen = names[: request.most]
        booked = self._booked(set(chosen))
        views = tuple(self._node(name, states, booked.get(name, [])) for name in chosen)
        return NodeList(nodes=views, next_after=chosen[-1] if len(names) > len(chosen) else "")

    def transfers(self, request: ListTransfers, caller: Caller) -> TransferList:
        site = self._site
        found: list[TransferView] = [self._running(moving, caller) for moving in site.moving.values()]
        waiting = site.book.link.latest_starts()[: max(0, request.most - len(found))]
        begins = site.book.link.begins(waiting, site.now_s)
        for (transfer, latest_s), begin_s in zip(waiting, begins, strict=True):
            users = self._users(transfer.number)
            found.append(
                TransferView(
                    number=transfer.number,
                    state="waiting",
                    nodes=fold(transfer.nodes),
                    image=self._image(users, transfer.image, caller),
                    begin_s=begin_s,
                    latest_begin_s=latest_s,
                    deadline_s=transfer.deadline_s,
                    ready_s=begin_s + transfer.duration_s,
                    arrived_bytes=0,
                    total_bytes=transfer.image.size_bytes * len(transfer.nodes),
                    rate_bytes_per_s=0,
                    for_reservations=tuple(users[:20]),
                    is_late=latest_s < site.now_s,
                    staging=(),
                )
            )
        is_complete = len(site.moving) + len(waiting) <= request.most
        return TransferList(transfers=tuple(found[: request.most]), is_complete=is_complete)

    def timeline(self, request: ShowTimeline) -> Timeline | Trouble:
        site = self._site
        number_of = site.book.timeline.number_of
        unknown = [name for name in request.names if name not in number_of]
        if unknown:
            return Trouble(code="not-found", message=f"the site has no node {unknown[0]}")
        wanted = set(request.names)
        stretches: list[Stretch] = []
        shown: dict[str, None] = {}
        is_complete = True
        for live in site.live.values():
            reservation = live.reservation
            if reservation.end_s <= request.from_s or request.until_s <= reservation.start_s:
                continue
            ready_s = live.kept.ready_s or self._progress.expected_s(live)
            for name in live.nodes:
                # One that has lost its place may name a node that the site no longer has.
                if (wanted and name not in wanted) or name not in number_of:
                    continue
                if (name not in shown and len(shown) >= request.most) or len(stretches) >= MOST_STRETCHES:
                    is_complete = False
                    continue
                shown[name] = None
                stretches.append(
                    Stretch(
                        node=name,
                        kind="reservation",
                        name=live.name,
                        start_s=reservation.start_s,
                        end_s=reservation.end_s,
                        ready_s=ready_s,
                    )
                )
        names = request.names or tuple(sorted(shown, key=lambda name: number_of[name]))
        for name in names:
            if not site.book.available >> number_of[name] & 1:
                stretches.append(
                    Stretch(node=name, kind="down", name="", start_s=request.from_s, end_s=request.until_s)
                )
        return Timeline(
            from_s=request.from_s,
            until_s=request.until_s,
            nodes=tuple(names[: request.most]),
            stretches=tuple(stretches),
            is_complete=is_complete and len(names) <= request.most,
        )

    def _users(self, number: int) -> list[str]:
        return sorted({user for _, life in self._site.book.lives_of(number) for user in life.users})

    def _image(self, users: Iterable[str], image: Image, caller: Caller) -> ImageView:
        live = [self._site.live[name] for name in users if name in self._site.live]
        is_private = any(each.document.is_private for each in live)
        is_shown = not is_private or any(may_read(each.record, caller) for each in live)
        return ImageView(
            uri=image.uri if is_shown else None,
            digest=image.digest if is_shown else None,
            size_bytes=image.size_bytes,
            is_private=is_private,
        )

    def _running(self, moving: Moving, caller: Caller) -> TransferView:
        transfer = moving.transfer
        users = self._users(transfer.number)
        image = self._image(users, transfer.image, caller)
        is_shown = image.uri is not None
        needs = {}
        for name in transfer.nodes:
            status = self._node_orders.statuses.get(name)
            for each in [] if status is None else status.needs.values():
                if each.transfer == transfer.number or (
                    each.digest == transfer.image.digest and each.is_there
                ):
                    needs[name] = each
        staging = tuple(
            NodeStaging(
                node=name,
                state="ready"
                if name not in moving.left
                else "failed"
                if name in needs and needs[name].failures
                else "arriving",
                arrived_bytes=transfer.image.size_bytes
                if name not in moving.left
                else needs[name].arrived_bytes
                if name in needs
                else 0,
                size_bytes=transfer.image.size_bytes,
                rate_bytes_per_s=needs[name].rate if name in needs else 0,
                source=needs[name].source if name in needs and is_shown else "",
                words=needs[name].words if name in needs and is_shown else "",
            )
            for name in transfer.nodes
        )
        finish_s = self._progress.finish_s(moving)
        return TransferView(
            number=transfer.number,
            state="running",
            nodes=fold(transfer.nodes),
            image=image,
            begin_s=moving.begun_s,
            latest_begin_s=None,
            deadline_s=transfer.deadline_s,
            ready_s=finish_s,
            arrived_bytes=sum(each.arrived_bytes for each in staging),
            total_bytes=transfer.image.size_bytes * len(transfer.nodes),
            rate_bytes_per_s=min(
                (each.rate_bytes_per_s for each in staging if each.state == "arriving"), default=0
            ),
            for_reservations=tuple(users[:20]),
            is_late=transfer.deadline_s is not None and finish_s > transfer.deadline_s,
            staging=staging,
        )

    def _booked(self, names: set[str]) -> dict[str, list[Live]]:
        found: dict[str, list[Live]] = {}
        for live in self._site.live.values():
            for name in names.intersection(live.nodes):
                found.setdefault(name, []).append(live)
        return found

    def _node(self, name: str, states: dict[str, str], booked: list[Live]) -> NodeView:
        site = self._site
        status: NodeStatus | None = self._node_orders.statuses.get(name)
        now = [live for live in booked if live.reservation.start_s <= site.now_s < live.reservation.end_s]
        later = [live.reservation.start_s for live in booked if live.reservation.start_s > site.now_s]
        node = site.book.timeline.nodes[site.book.timeline.number_of[name]]
        state = states.get(name, "unknown")
        is_usable = site.book.available >> site.book.timeline.number_of[name] & 1
        is_away = status is not None and status.is_away(site.now_s, site.settings.away_after_s)
        return NodeView(
            name=name,
            state="away" if is_away or (state == NodeState.UP.value and not is_usable) else state,
            capacity=str(parts(node.capacity)),
            limit_bytes=node.pool_bytes
            if status is None or status.limit_bytes is None
            else status.limit_bytes,
            used_bytes=None if status is None else status.used_bytes,
            reported_s=None if status is None else status.heard_s,
            images=0 if status is None else len(status.images),
            arriving=0 if status is None else sum(not each.has_failed for each in status.arriving),
            reservation=now[0].name if now else "",
            next_reservation_s=min(later, default=None),
            words="" if status is None else status.words,
        )
