"""What can be looked at: reservations, images, nodes, transfers, the timeline, the whole.

Nothing changes by looking. Everybody sees who has which nodes when; what is in a private image,
and what was decided about a reservation, is for its owner and for administrators.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from outrider.core.model import Image
from outrider.core.timeline import numbers
from outrider.metadata.hostlists import fold
from outrider.service.answers import (
    DecisionLine,
    DecisionList,
    Explanation,
    ImageList,
    ImageOnNodes,
    ImageView,
    NodeList,
    NodeStaging,
    NodeView,
    PlannedTransfer,
    Receipt,
    ReservationDetails,
    ReservationList,
    ReservationView,
    Stretch,
    Timeline,
    TransferList,
    TransferView,
    Trouble,
)
from outrider.service.documents import Document, read_document, read_record
from outrider.service.replies import begin_of, image_view, planned
from outrider.service.requests import (
    Caller,
    ListDecisions,
    ListImages,
    ListNodes,
    ListReservations,
    ListTransfers,
    ShowTimeline,
)
from outrider.service.site import Live, Moving, Site
from outrider.service.staff import Member, Need, Staff
from outrider.store.records import Decision as StoredDecision
from outrider.store.records import ReservationRecord
from outrider.store.states import State

MOST_STRETCHES = 20_000


class Views:
    """Answers to whoever only looks."""

    def __init__(self, site: Site, staff: Staff) -> None:
        self._site = site
        self._staff = staff

    def find(self, name: str, caller: Caller) -> Live | ReservationRecord | Trouble:
        """The reservation that somebody means: by its name, or by its workspace's if that is enough."""
        site = self._site
        live = site.live.get(name)
        if live is not None:
            return live
        own = [
            each
            for each in site.live.values()
            if each.document.workspace == name and (each.record.owner.uid == caller.uid or caller.is_admin)
        ]
        if len(own) == 1:
            return own[0]
        if own:
            names = ", ".join(sorted(each.name for each in own)[:5])
            return Trouble(code="ambiguous", message=f"{name} could be {names}: name one of them")
        past = site.store.reservation(name)
        if past is not None:
            return past
        return Trouble(
            code="not-found",
            message=f"there is no reservation {name[:80]}: see outrider list, or list --past",
        )

    def reservations(self, request: ListReservations, caller: Caller) -> ReservationList:
        if request.is_past:
            before = request.after if request.after is not None else (1 << 62)
            found = self._site.store.past_reservations(before=before, most=request.most)
            views = tuple(self._past(record, caller) for record in found if _matches(record, request))
            more = found[-1].number if len(found) == request.most else None
            return ReservationList(reservations=views, next_after=more)
        after = request.after or 0
        chosen: list[ReservationView] = []
        # They are kept in the order of their numbers.
        for live in self._site.live.values():
            if live.record.number > after and _matches(live.record, request):
                if len(chosen) == request.most:
                    return ReservationList(reservations=tuple(chosen), next_after=chosen[-1].number)
                chosen.append(self.reservation(live, caller))
        return ReservationList(reservations=tuple(chosen), next_after=None)

    def reservation(self, live: Live, caller: Caller) -> ReservationView:
        record = live.record
        ready_s = live.kept.ready_s
        if ready_s is None and not record.state.is_final:
            ready_s = self._expected_s(live)
        return _view(record, live.document, caller, ready_s=ready_s, is_confirmed=live.is_confirmed)

    def details(self, found: Live | ReservationRecord, caller: Caller) -> ReservationDetails:
        if isinstance(found, ReservationRecord):
            record, document = found, read_document(found.document)
            return ReservationDetails(
                reservation=self._past(found, caller),
                workspace=document.workspace,
                accepted_s=record.accepted_s,
                changed_s=record.changed_s,
                ended_s=record.ended_s,
                staging=(),
                transfers=(),
                odds_percent=None,
                receipt=receipt_of(record, document) if may_read(record, caller) else None,
            )
        return ReservationDetails(
            reservation=self.reservation(found, caller),
            workspace=found.document.workspace,
            accepted_s=found.record.accepted_s,
            changed_s=found.record.changed_s,
            ended_s=found.record.ended_s,
            staging=self._staging(found, is_shown=may_read(found.record, caller)),
            transfers=self._transfers_of(found),
            odds_percent=found.odds_percent,
            receipt=None,
        )

    def explanation(self, name: str, caller: Caller) -> Explanation | Trouble:
        site = self._site
        found = self.find(name, caller)
        if isinstance(found, Trouble) and found.code != "not-found":
            return found
        if isinstance(found, Trouble):
            lines = [each for each in site.store.decisions(name, most=100) if may_see(each, caller, set())]
            if not lines:
                return found
            words = [f"nothing is booked under {name}; what was answered last is below"]
            return Explanation(name=name, sentences=tuple(words), decisions=_lines(lines))
        record = found if isinstance(found, ReservationRecord) else found.record
        if not may_read(record, caller):
            return Trouble(
                code="not-allowed", message=f"reservation {record.name} is {record.owner.user}'s: ask them"
            )
        sentences = (
            self._why(found)
            if isinstance(found, Live)
            else [f"it is over: {record.why or record.state.value}"]
        )
        decisions = _lines(site.store.decisions(record.name, most=100))
        return Explanation(name=record.name, sentences=tuple(sentences), decisions=decisions)

    def images(self, request: ListImages, caller: Caller) -> ImageList:
        site = self._site
        nodes = site.book.timeline.nodes
        found: dict[str, tuple[Image, bool, int]] = {}
        for live in site.live.values():
            key = live.document.image.key
            if live.document.is_private and not may_read(live.record, caller):
                continue
            _, _, count = found.get(key, (None, False, 0))
            found[key] = (live.document.image, live.document.is_private, count + 1)
        private = {live.document.image.key for live in site.live.values() if live.document.is_private}
        there: dict[str, list[str]] = {}
        for member in self._staff.members.values():
            for digest, held in member.images.items():
                there.setdefault(digest, []).append(member.name)
                if digest not in found and digest not in private and caller.is_admin:
                    found[digest] = (
                        Image(uri=held.uri or digest, size_bytes=held.size_bytes, digest=digest),
                        False,
                        0,
                    )
        keys = sorted(found, key=lambda key: (-found[key][2], found[key][0].uri, key))
        views = []
        for key in keys[: request.most]:
            image, is_private, count = found[key]
            holders = there.get(key, [])
            coming = {nodes[node].name for node in numbers(site.book.pools.mask_with(key))} - set(holders)
            views.append(
                ImageOnNodes(
                    digest=image.digest,
                    uri=image.uri,
                    size_bytes=image.size_bytes,
                    nodes=fold(holders),
                    node_count=len(holders),
                    coming_nodes=fold(sorted(coming)),
                    reservations=count,
                    is_private=is_private,
                )
            )
        return ImageList(images=tuple(views), is_complete=len(keys) <= request.most)

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
        free_s = max(site.now_s, site.book.link.busy_until_s)
        waiting = site.book.link.latest_starts()
        for transfer, latest_s in waiting[: max(0, request.most - len(found))]:
            begin_s = begin_of(site, latest_s, free_s)
            free_s = begin_s + transfer.duration_s
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
                    ready_s=free_s,
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
            ready_s = live.kept.ready_s or self._expected_s(live)
            for name in live.nodes:
                if wanted and name not in wanted:
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

    def decisions(self, request: ListDecisions, caller: Caller) -> DecisionList:
        store = self._site.store
        found = store.decisions_since(request.after, most=request.most)
        own = {live.name for live in self._site.owned(caller.uid)}
        lines = [each for each in found if may_see(each, caller, own)]
        return DecisionList(decisions=_lines(lines), last=found[-1].number if found else request.after)

    def counts(self) -> dict[str, int]:
        """How many reservations are in each state."""
        counted = Counter(live.record.state.value for live in self._site.live.values())
        return {state.value: counted[state.value] for state in State if not state.is_final}

    def _past(self, record: ReservationRecord, caller: Caller) -> ReservationView:
        document = read_document(record.document)
        ready_s = read_record(record.receipt).ready_s
        return _view(record, document, caller, ready_s=ready_s, is_confirmed=True)

    def _expected_s(self, live: Live) -> int | None:
        """When its image is expected on all of its nodes."""
        site = self._site
        entry = site.book.entries.get(live.name)
        if entry is None:
            return None
        instants = [site.now_s]
        for _, life in entry.lives:
            if life.transfer is not None:
                moving = site.moving.get(life.transfer)
                instants.append(life.ready_s if moving is None else self._finish_s(moving))
        return max(instants)

    def _finish_s(self, moving: Moving) -> int:
        """When a transfer that runs will have ended, by the rates that are seen."""
        site = self._site
        planned_s = moving.begun_s + moving.transfer.duration_s
        left = [need for need in self._needs(moving) if not need.is_there]
        if not left:
            return max(planned_s, site.now_s + 1)
        if any(need.rate <= 0 for need in left):
            return max(planned_s, site.now_s + 1)
        return max(
            site.now_s + 1,
            *(site.now_s + -(-(each.size_bytes - each.arrived_bytes) // each.rate) for each in left),
        )

    def _needs(self, moving: Moving) -> list[Need]:
        found: list[Need] = []
        for name in moving.transfer.nodes:
            member = self._staff.members.get(name)
            if member is not None:
                needs = [each for each in member.needs.values() if each.transfer == moving.transfer.number]
                found += needs[:1]
        return found

    def _staging(self, live: Live, *, is_shown: bool) -> tuple[NodeStaging, ...]:
        site = self._site
        entry = site.book.entries.get(live.name)
        lives = (
            {} if entry is None else {site.book.timeline.nodes[node].name: life for node, life in entry.lives}
        )
        found = []
        for name in live.nodes:
            member = self._staff.members.get(name)
            need = None if member is None else member.needs.get(live.name)
            life = lives.get(name)
            state = "unknown" if life is None else "waiting"
            if need is not None and need.is_there:
                state = "ready"
            elif need is not None:
                state = "failed" if need.failures else "arriving" if need.transfer is not None else "unknown"
            found.append(
                NodeStaging(
                    node=name,
                    state=state,
                    arrived_bytes=0 if need is None else need.arrived_bytes,
                    size_bytes=live.document.size_bytes,
                    rate_bytes_per_s=0 if need is None else need.rate,
                    source=need.source if need is not None and is_shown else "",
                    ready_s=None if life is None else life.ready_s,
                    words=need.words if need is not None and is_shown else "",
                )
            )
        return tuple(found)

    def _transfers_of(self, live: Live) -> tuple[PlannedTransfer, ...]:
        """The transfers that a reservation still waits for."""
        site = self._site
        entry = site.book.entries.get(live.name)
        wanted = {life.transfer for _, life in entry.lives} if entry is not None else set()
        found = [
            planned(moving.transfer, moving.begun_s, moving.begun_s)
            for number, moving in site.moving.items()
            if number in wanted
        ]
        if wanted - site.moving.keys() - {None}:
            free_s = max(site.now_s, site.book.link.busy_until_s)
            for transfer, latest_s in site.book.link.latest_starts():
                if transfer.number in wanted:
                    found.append(planned(transfer, begin_of(site, latest_s, free_s), latest_s))
        return tuple(found)

    def _why(self, live: Live) -> list[str]:
        """Why it has these nodes, and why its image comes when it does."""
        size = live.document.size_bytes
        saved = live.kept.saved_bytes // size
        words = [f"it is {live.record.state.value}" + (f": {live.record.why}" if live.record.why else "")]
        if saved:
            words.append(
                f"on {saved} of its {len(live.nodes)} nodes the image was or will be anyway: nodes that have it come first"
            )
        else:
            words.append(
                "no free node has its image: nodes on which nothing is booked around that time come first"
            )
        for each in self._transfers_of(live):
            words.append(
                f"transfer {each.number} to {each.nodes} takes {each.duration_s} s of the link and must begin "
                f"{max(0, each.latest_begin_s - self._site.now_s)} s from now at the latest"
            )
        if live.danger:
            words.append(f"it is endangered: {live.danger}")
        if not live.is_confirmed:
            words.append("the batch system has not confirmed it yet")
        return words

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
            member = self._staff.members.get(name)
            for each in [] if member is None else member.needs.values():
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
        finish_s = self._finish_s(moving)
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
        member: Member | None = self._staff.members.get(name)
        now = [live for live in booked if live.reservation.start_s <= site.now_s < live.reservation.end_s]
        later = [live.reservation.start_s for live in booked if live.reservation.start_s > site.now_s]
        node = site.book.timeline.nodes[site.book.timeline.number_of[name]]
        is_away = member is not None and member.is_away(site.now_s, site.settings.away_after_s)
        return NodeView(
            name=name,
            state="away" if is_away else states.get(name, "unknown"),
            capacity=str(node.capacity),
            limit_bytes=node.pool_bytes
            if member is None or member.limit_bytes is None
            else member.limit_bytes,
            used_bytes=None if member is None else member.used_bytes,
            reported_s=None if member is None else member.heard_s,
            images=0 if member is None else len(member.images),
            arriving=0 if member is None else sum(not each.has_failed for each in member.arriving),
            reservation=now[0].name if now else "",
            next_reservation_s=min(later, default=None),
            words="" if member is None else member.words,
        )


def may_read(record: ReservationRecord, caller: Caller) -> bool:
    """Whether somebody may see all of a reservation, and change it."""
    return caller.is_admin or caller.uid == record.owner.uid


def may_see(decision: StoredDecision, caller: Caller, own: set[str]) -> bool:
    return caller.is_admin or decision.name in own or (decision.uid == caller.uid and caller.uid != 0)


def receipt_of(record: ReservationRecord, document: Document) -> Receipt:
    kept = read_record(record.receipt)
    start_s = record.kept.reservation.start_s
    return Receipt(
        is_met=bool(kept.is_met),
        digest=document.digest,
        ready_s=kept.ready_s,
        spare_s=None if kept.ready_s is None else start_s - kept.ready_s,
        transferred_bytes=kept.transferred_bytes,
        saved_bytes=kept.saved_bytes,
        sources=kept.sources,
        words=kept.words,
    )


def _view(
    record: ReservationRecord, document: Document, caller: Caller, *, ready_s: int | None, is_confirmed: bool
) -> ReservationView:
    reservation = record.kept.reservation
    is_shown = may_read(record, caller)
    return ReservationView(
        name=record.name,
        number=record.number,
        state=record.state.value,
        user=record.owner.user,
        account=record.owner.account,
        nodes=fold(reservation.nodes),
        node_count=len(reservation.nodes),
        start_s=reservation.start_s,
        end_s=reservation.end_s,
        image=image_view(document, is_shown=is_shown),
        ready_s=ready_s,
        is_confirmed=is_confirmed,
        why=record.why if is_shown else "",
    )


def _matches(record: ReservationRecord, request: ListReservations) -> bool:
    return (request.user is None or record.owner.user == request.user) and (
        not request.states or record.state.value in request.states
    )


def _lines(found: Iterable[StoredDecision]) -> tuple[DecisionLine, ...]:
    return tuple(
        DecisionLine(
            number=each.number,
            at_s=each.at_s,
            kind=each.kind,
            name=each.name,
            outcome=each.outcome,
            reason=each.reason,
        )
        for each in found
    )
