"""The columns of every table that a command prints: a title, and what stands below it.

A `>` before a title aligns its column to the right. No value but the last has a blank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from cachemgr.base.sizes import in_words
from cachemgr.base.times import span_in_words
from outrider.cli.asking.display.words import When, image_name, money, percent, rate_in_words, short

if TYPE_CHECKING:
    from outrider.service.answers.images import ImageOnNodes, ImageView
    from outrider.service.answers.jobs import JobView
    from outrider.service.answers.leases import LeaseView, ReportLine
    from outrider.service.answers.nodes import NodeView
    from outrider.service.answers.reservations import ReservationView
    from outrider.service.answers.site import ShareView
    from outrider.service.answers.transfers import TransferView

V = TypeVar("V")
Columns = tuple[tuple[str, Callable[[V, When], object]], ...]


def _image(image: ImageView | None) -> str:
    return "" if image is None else image_name(image.uri, image.digest)


def _size(amount: int | None) -> str:
    return "" if amount is None else in_words(amount).replace(" ", "")


def percent_of(share: ShareView) -> str:
    """How much of what one user may have; rounded down, so that 100 % is all of it."""
    return f"{100 * share.held // share.most}%" if share.most else ""


def _amount(amount: int | None, unit: str) -> str:
    if amount is None:
        return ""
    if unit == "node-seconds":
        return span_in_words(amount).replace(" ", "")
    return _size(amount) if unit == "bytes" else f"{amount:,}"


RESERVATIONS: Columns[ReservationView] = (
    ("NAME", lambda each, when: each.name),
    ("STATE", lambda each, when: each.state),
    ("USER", lambda each, when: each.user),
    (">NODES", lambda each, when: each.node_count),
    ("NODELIST", lambda each, when: each.nodes),
    ("START", lambda each, when: when.column(each.start_s)),
    ("END", lambda each, when: when.column(each.end_s)),
    ("READY", lambda each, when: when.column(each.ready_s)),
    ("IMAGE", lambda each, when: _image(each.image)),
    (
        "REMARK",
        lambda each, when: each.why or ("" if each.is_confirmed else "the batch system does not have it yet"),
    ),
)
JOBS: Columns[JobView] = (
    ("JOB", lambda each, when: each.job),
    ("STATE", lambda each, when: each.state),
    ("USER", lambda each, when: each.user),
    (">NODES", lambda each, when: each.nodes_wanted),
    ("NODELIST", lambda each, when: each.nodes),
    ("READY", lambda each, when: when.column(each.ready_s)),
    ("IMAGE", lambda each, when: _image(each.image)),
    ("REMARK", lambda each, when: each.words),
)
NODES: Columns[NodeView] = (
    ("NAME", lambda each, when: each.name),
    ("STATE", lambda each, when: each.state),
    ("CAPACITY", lambda each, when: each.capacity.replace(" ", ",")),
    (">USED", lambda each, when: _size(each.used_bytes)),
    (">LIMIT", lambda each, when: _size(each.limit_bytes)),
    (">IMAGES", lambda each, when: each.images),
    (">ARRIVING", lambda each, when: each.arriving),
    ("RESERVATION", lambda each, when: each.reservation),
    ("NEXT", lambda each, when: when.column(each.next_reservation_s)),
    ("REMARK", lambda each, when: each.words),
)
IMAGES: Columns[ImageOnNodes] = (
    ("DIGEST", lambda each, when: short(each.digest)),
    (">SIZE", lambda each, when: _size(each.size_bytes)),
    (">NODES", lambda each, when: each.node_count),
    ("NODELIST", lambda each, when: each.nodes),
    ("COMING", lambda each, when: each.coming_nodes),
    (">NEEDED", lambda each, when: each.reservations + each.jobs),
    ("PRIVATE", lambda each, when: "yes" if each.is_private else "no"),
    ("OWNER", lambda each, when: ",".join(each.owners)),
    ("URI", lambda each, when: each.uri),
)
TRANSFERS: Columns[TransferView] = (
    (">NUMBER", lambda each, when: each.number),
    ("STATE", lambda each, when: "late" if each.is_late else each.state),
    ("NODES", lambda each, when: each.nodes),
    ("IMAGE", lambda each, when: _image(each.image)),
    (">SIZE", lambda each, when: _size(each.total_bytes)),
    (">DONE", lambda each, when: f"{percent(each.arrived_bytes, each.total_bytes)}%"),
    (
        ">RATE",
        lambda each, when: (
            rate_in_words(each.rate_bytes_per_s).replace(" ", "") if each.rate_bytes_per_s else ""
        ),
    ),
    ("BEGIN", lambda each, when: when.column(each.begin_s)),
    ("READY", lambda each, when: when.column(each.ready_s)),
    ("DEADLINE", lambda each, when: when.column(each.deadline_s)),
    (
        "FOR",
        lambda each, when: ",".join([*each.for_reservations, *(f"job-{job}" for job in each.for_jobs)]),
    ),
)
SHARES: Columns[ShareView] = (
    ("USER", lambda each, when: each.user),
    (">SHARE", lambda each, when: percent_of(each)),
    ("THING", lambda each, when: each.thing),
    ("WHERE", lambda each, when: each.where),
    (">HELD", lambda each, when: _amount(each.held, each.unit)),
    (">LIMIT", lambda each, when: _amount(each.most, each.unit)),
    (">REFUSED", lambda each, when: f"{each.refused:,}"),
    (">IN_ALL", lambda each, when: _amount(each.held_in_all if each.nodes > 1 else None, each.unit)),
    ("NODES", lambda each, when: each.nodes or ""),
)
REPORT: Columns[ReportLine] = (
    ("PAYER", lambda each, when: each.payer),
    (">RESERVATIONS", lambda each, when: f"{each.reservations:,}"),
    (">NODE_HOURS", lambda each, when: f"{each.node_seconds / 3600:,.1f}"),
    (">CHARGED", lambda each, when: money(each.charged)),
    (">BOOKED", lambda each, when: money(each.booked)),
    (">REFUSED", lambda each, when: f"{each.refused:,}"),
    (">LOST", lambda each, when: money(each.lost_to_refusals)),
    (">TOO_DEAR", lambda each, when: f"{each.too_dear:,}"),
    (">LOST_TO_PRICE", lambda each, when: money(each.lost_to_price)),
    (">HOLDERS", lambda each, when: f"{each.machines:,}"),
    (">CPU_HOURS", lambda each, when: f"{each.machine_cpu_seconds / 3600:,.1f}"),
)
REPORT_FIELDS = (
    "payer",
    "reservations",
    "node_seconds",
    "charged",
    "booked_reservations",
    "booked",
    "refused",
    "lost_to_refusals",
    "too_dear",
    "lost_to_price",
    "machines",
    "machine_node_seconds",
    "machine_cpu_seconds",
)
LEASES: Columns[LeaseView] = (
    ("NAME", lambda each, when: each.name),
    ("KIND", lambda each, when: each.kind),
    ("STATE", lambda each, when: each.state),
    ("USER", lambda each, when: each.user),
    (">NODES", lambda each, when: each.node_count),
    ("NODELIST", lambda each, when: each.nodes),
    ("START", lambda each, when: when.column(each.start_s)),
    ("END", lambda each, when: when.column(each.end_s)),
    (">LEFT", lambda each, when: each.left),
    ("LAST_END", lambda each, when: when.column(each.last_end_s)),
    (">PRICE", lambda each, when: "" if each.price is None else money(each.price)),
)
