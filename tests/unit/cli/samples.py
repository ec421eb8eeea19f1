"""Answers of a service, built from the service's own values so that no field can drift."""

from __future__ import annotations

from dataclasses import replace

from outrider.service.answers.decision import Decision
from outrider.service.answers.images import ImageList, ImageOnNodes, ImageView
from outrider.service.answers.leases import Offer
from outrider.service.answers.nodes import NodeList, NodeView
from outrider.service.answers.records import DecisionLine, Explanation
from outrider.service.answers.reservations import (
    Receipt,
    ReservationDetails,
    ReservationList,
    ReservationView,
)
from outrider.service.answers.site import ShareList, ShareView, Status, Stretch, Timeline
from outrider.service.answers.transfers import NodeStaging, PlannedTransfer, TransferList, TransferView

NOW_S = 1_901_023_500
"""14:05 on 29 March 2030, UTC."""
MINUTE_S, HOUR_S = 60, 3600
MIB, GIB = 2**20, 2**30
DIGEST = "sha256:" + "9f86d081884c7d65" * 4
START_S = NOW_S + 25 * MINUTE_S

IMAGE = ImageView(
    uri="https://images.example.org/ubuntu.qcow2", digest=DIGEST, size_bytes=2 * GIB, is_private=False
)
TRANSFER = PlannedTransfer(
    number=7, nodes="n[1-2]", size_bytes=2 * GIB, duration_s=170, begin_s=START_S - 940,
    latest_begin_s=START_S - 171, deadline_s=START_S,
)  # fmt: skip
ACCEPTED = Decision(
    result="accepted", name="render-17", workspace="render", start_s=START_S, end_s=START_S + 2 * HOUR_S,
    nodes="n[1-4]", node_count=4, image=IMAGE, transfers=(TRANSFER,), nodes_with_image="n[3-4]",
    saved_bytes=4 * GIB, ready_s=START_S - 770, latest_ready_s=START_S - 1, slack_s=770,
)  # fmt: skip
REFUSED = Decision(
    result="refused", name="", workspace="render", start_s=START_S, end_s=START_S + 2 * HOUR_S, nodes="",
    node_count=4, image=IMAGE, cause="link",
    reason="ubuntu.qcow2 (2.0 GiB) cannot reach 4 nodes by 14:30: the link is booked until 14:28",
    earliest_start_s=START_S + 40 * MINUTE_S,
    remedies=("ask for 2 nodes, where the image is already", "choose a smaller image"),
    offers=(
        Offer(
            name="offer-k3mzqa-1", kind="later", start_s=START_S + 40 * MINUTE_S,
            end_s=START_S + 160 * MINUTE_S, node_count=4, nodes="n[1-4]",
        ),
        Offer(
            name="offer-k3mzqa-2", kind="fewer-nodes", start_s=START_S, end_s=START_S + 2 * HOUR_S,
            node_count=2, nodes="n[3-4]",
        ),
    ),
    offers_until_s=NOW_S + 60, are_offers_protected=True,
)  # fmt: skip
VIEW = ReservationView(
    name="render-17", number=17, state="preparing", user="ada", account="physics", nodes="n[1-4]",
    node_count=4, start_s=START_S, end_s=START_S + 2 * HOUR_S, image=IMAGE, ready_s=START_S - 770,
    is_confirmed=True, why="",
)  # fmt: skip
OTHER = replace(
    VIEW, name="web-3", number=3, state="endangered", user="bob", nodes="n[7-8]", node_count=2, ready_s=None,
    image=replace(IMAGE, uri=None, digest=None, is_private=True), is_confirmed=False,
    why="n8 is away since 14:01",
)  # fmt: skip
LIST = ReservationList(reservations=(VIEW, OTHER), next_after=None)
STAGING = (
    NodeStaging(
        node="n1", state="arriving", arrived_bytes=900 * MIB, size_bytes=2 * GIB,
        rate_bytes_per_s=24 * MIB, source="relay n3",
    ),
    NodeStaging(
        node="n2", state="arriving", arrived_bytes=800 * MIB, size_bytes=2 * GIB,
        rate_bytes_per_s=24 * MIB, source="relay n3",
    ),
    NodeStaging(
        node="n3", state="ready", arrived_bytes=2 * GIB, size_bytes=2 * GIB, ready_s=NOW_S - HOUR_S
    ),
    NodeStaging(
        node="n4", state="ready", arrived_bytes=2 * GIB, size_bytes=2 * GIB, ready_s=NOW_S - HOUR_S
    ),
)  # fmt: skip
DETAILS = ReservationDetails(
    reservation=VIEW, workspace="render", accepted_s=NOW_S - 600, changed_s=NOW_S - 60, ended_s=None,
    staging=STAGING, transfers=(TRANSFER,), odds_percent=None, receipt=None,
)  # fmt: skip
RECEIPT = Receipt(
    is_met=True, digest=DIGEST, ready_s=START_S - 192, spare_s=192, transferred_bytes=4 * GIB,
    saved_bytes=4 * GIB, sources=("https://images.example.org", "n3"), words="",
)  # fmt: skip
ENDED = replace(
    DETAILS, reservation=replace(VIEW, state="ended"), ended_s=START_S + 2 * HOUR_S, receipt=RECEIPT
)
FAILED = replace(
    DETAILS, reservation=replace(VIEW, state="failed", why="n2 was never reached"), ended_s=START_S,
    receipt=replace(RECEIPT, is_met=False, ready_s=None, spare_s=None),
)  # fmt: skip
CANCELLED = replace(DETAILS, reservation=replace(VIEW, state="cancelled"), ended_s=NOW_S)
DECISIONS = (
    DecisionLine(
        number=40, at_s=NOW_S - 600, kind="reserve", name="render-17", outcome="accepted", reason="",
        user="ada",
    ),
    DecisionLine(
        number=44, at_s=NOW_S - 60, kind="transfer", name="render-17", outcome="begun",
        reason="the link is idle",
    ),
)  # fmt: skip
EXPLANATION = Explanation(
    name="render-17",
    sentences=("It is on n[1-4] because n3 and n4 have the image.", "The link was idle from 14:14 on."),
    decisions=DECISIONS,
)
NODES = NodeList(
    nodes=(
        NodeView(
            name="n1", state="up", capacity="cpus=16,memory=64GiB", limit_bytes=20 * GIB, used_bytes=3 * GIB,
            reported_s=NOW_S - 5, images=2, arriving=1, reservation="render-17", next_reservation_s=START_S,
            words="",
        ),
        NodeView(
            name="n8", state="away", capacity="cpus=16,memory=64GiB", limit_bytes=None, used_bytes=None,
            reported_s=None, images=0, arriving=0, reservation="", next_reservation_s=None,
            words="its pool does not answer since 14:01",
        ),
    ),
    next_after="",
)  # fmt: skip
IMAGES = ImageList(
    images=(
        ImageOnNodes(
            digest=DIGEST, uri=IMAGE.uri or "", size_bytes=2 * GIB, nodes="n[3-4]", node_count=2,
            coming_nodes="n[1-2]", reservations=1, is_private=False,
        ),
    ),
    is_complete=True,
)  # fmt: skip
MOVING = TransferView(
    number=7, state="running", nodes="n[1-2]", image=IMAGE, begin_s=NOW_S - 60, latest_begin_s=START_S - 171,
    deadline_s=START_S, ready_s=NOW_S + 110, arrived_bytes=1700 * MIB, total_bytes=4 * GIB,
    rate_bytes_per_s=48 * MIB, for_reservations=("render-17",), is_late=False, staging=STAGING[:2],
)  # fmt: skip
WAITING = replace(
    MOVING, number=8, state="waiting", nodes="n[7-8]", begin_s=NOW_S + HOUR_S, ready_s=NOW_S + 5000,
    deadline_s=NOW_S + 4000, arrived_bytes=0, rate_bytes_per_s=0, for_reservations=("web-3",), is_late=True,
    staging=(),
)  # fmt: skip
TRANSFERS = TransferList(transfers=(MOVING, WAITING), is_complete=True)
SHARES = ShareList(
    shares=(
        ShareView(
            thing="transfers", unit="places", user="eve", where="n17", held=24, most=24, refused=1_204,
            nodes=40, held_in_all=960, seen_s=NOW_S - 60,
        ),
        ShareView(
            thing="bytes in the pool", unit="bytes", user="bob", where="n3", held=36 * GIB, most=75 * GIB,
            refused=0, nodes=2, held_in_all=40 * GIB, seen_s=NOW_S - 120,
        ),
        ShareView(
            thing="requests", unit="places", user="ada", where="head", held=2, most=64, refused=0, nodes=0,
            held_in_all=2, seen_s=NOW_S,
        ),
        ShareView(
            thing="reserved time on nodes", unit="node-seconds", user="ada", where="head",
            held=8 * 2 * HOUR_S, most=None, refused=0, nodes=0, held_in_all=8 * 2 * HOUR_S, seen_s=NOW_S,
        ),
    ),
    is_complete=True, is_of_all=True, missing=(), nodes=5_000, oldest_s=NOW_S - 4 * MINUTE_S,
)  # fmt: skip
STATUS = Status(
    version="0.1.0", site="physics", batch_system="embedded", now_s=NOW_S, started_s=NOW_S - 3 * HOUR_S - 300,
    is_promising=True, troubles=(), last_look_s=NOW_S - 4, nodes=8, nodes_up=7, nodes_away=1,
    reservations={"accepted": 2, "preparing": 1, "ready": 0}, next_start_s=START_S, transfers_waiting=1,
    transfers_running=1, link_rate_bytes_per_s=125_000_000, link_busy_until_s=NOW_S + 110, effects_waiting=0,
    decisions={"accepted": 41, "refused": 3},
)  # fmt: skip


def stretch(node: str, kind: str, name: str, from_h: float, until_h: float) -> Stretch:
    """Something on a node, from so many hours from now on until so many hours from now."""
    start_s, end_s = NOW_S + round(from_h * HOUR_S), NOW_S + round(until_h * HOUR_S)
    return Stretch(node=node, kind=kind, name=name, start_s=start_s, end_s=end_s)


TIMELINE = Timeline(
    from_s=NOW_S,
    until_s=NOW_S + 12 * HOUR_S,
    nodes=tuple(f"n{number}" for number in range(1, 9)),
    stretches=(
        *(stretch(node, "reservation", "render-17", 1, 3) for node in ("n1", "n2", "n3", "n4")),
        *(stretch(node, "reservation", "web-3", 4, 9) for node in ("n7", "n8")),
        stretch("n3", "job", "4711", 0, 0.5),
        stretch("n6", "down", "", 0, 12),
    ),
    is_complete=True,
)
