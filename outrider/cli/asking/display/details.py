"""All about one reservation on one screen."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from cachemgr.base.sizes import in_words
from cachemgr.base.tables import printable
from cachemgr.base.times import span_in_words
from outrider.cli.asking.display.decision import image_line, qsub_form, window_line
from outrider.cli.asking.display.staging import staging_lines
from outrider.cli.asking.display.terminal import Paint, facts
from outrider.cli.asking.display.words import SHORT_DIGEST, When, money, nodes_in_words, slack_in_words

if TYPE_CHECKING:
    from outrider.service.answers.events import OpenWindow
    from outrider.service.answers.reservations import Receipt, ReservationDetails
    from outrider.service.answers.transfers import PlannedTransfer

MOST_TRANSFERS = 20
_DIGEST = re.compile(rf"\b(sha256:[0-9a-f]{{{SHORT_DIGEST}}})[0-9a-f]{{{64 - SHORT_DIGEST}}}\b")
"""One in an address of a relay: its beginning tells images apart."""


WATCHED = ("nodes", "time", "event", "ready", "odds", "batch", "receipt")
"""What can change, or has to be known while it does."""


def details_screen(details: ReservationDetails, when: When, paint: Paint, *, is_watched: bool = False) -> str:
    """With `is_watched` only what somebody wants to see who waits for it."""
    view = details.reservation
    title = f"{paint(printable(view.name), 'bold')} is {paint(printable(view.state), view.state)}"
    if view.why:
        title += f": {printable(view.why)}"
    known = [pair for pair in _facts(details, when) if not is_watched or pair[0] in WATCHED]
    parts = [title, facts(known, paint)]
    if details.staging and details.ended_s is None:
        parts += [paint("on its nodes", "bold"), *staging_lines(details.staging, when, paint)]
    if details.transfers and details.ended_s is None and not is_watched:
        parts += [paint("transfers", "bold"), *_transfers(details.transfers, when)]
    return "\n".join(parts)


def _facts(details: ReservationDetails, when: When) -> list[tuple[str, str]]:
    view = details.reservation
    account = f", account {printable(view.account)}" if view.account else ""
    is_over = details.ended_s is not None
    return [
        ("user", f"{printable(view.user)}{account}"),
        ("nodes", nodes_in_words(view.node_count, printable(view.nodes))),
        ("time", f"{when.period(view.start_s, view.end_s)}{'' if is_over else _distance(details, when)}"),
        ("event", _event(view.window, when)),
        ("image", image_line(view.image)),
        ("address", printable(view.image.uri or "")),
        ("digest", printable(view.image.digest or "")),
        ("ready", "" if is_over or view.ready_s is None else _ready(view.ready_s, view.start_s, when)),
        ("odds", _odds(details)),
        ("accepted", when.clock(details.accepted_s)),
        ("over", "" if details.ended_s is None else when.clock(details.ended_s)),
        ("batch", "" if view.is_confirmed or is_over else "the batch system does not have it yet"),
        (
            "submit",
            "" if is_over or not details.key else qsub_form(details.key, details.environment, details.slots),
        ),
        ("price", "" if is_over or details.price is None else money(details.price)),
        ("receipt", receipt_words(details.receipt, when) if details.receipt else ""),
    ]


def _event(window: OpenWindow | None, when: When) -> str:
    if window is None:
        return ""
    if window.triggered_s is not None:
        return f"{when.clock(window.triggered_s)}: {printable(window.event)}"
    return f"until {when.clock(window.until_s)}: {window_line(window)}"


def _odds(details: ReservationDetails) -> str:
    is_told = details.reservation.state == "endangered" and details.odds_percent is not None
    return f"{details.odds_percent} % that it is still met" if is_told else ""


def _distance(details: ReservationDetails, when: When) -> str:
    start_s, end_s = details.reservation.start_s, details.reservation.end_s
    if when.now_s < start_s:
        return f", begins {when.distance(start_s)}"
    return f", ends {when.distance(end_s)}" if when.now_s < end_s else ""


def _ready(ready_s: int, start_s: int, when: When) -> str:
    word = "since" if ready_s <= when.now_s else "about"
    return f"{word} {when.clock(ready_s)}, {slack_in_words(start_s - ready_s)}"


def receipt_words(receipt: Receipt, when: When) -> str:
    """What became of the promise."""
    if receipt.spare_s is not None:
        kept = "met" if receipt.is_met else "not met"
        told = [f"{kept}: ready {slack_in_words(receipt.spare_s)}"]
    else:
        told = ["met" if receipt.is_met else "not met: the image was never on all nodes"]
    told.append(f"{in_words(receipt.transferred_bytes)} moved, {in_words(receipt.saved_bytes)} saved")
    if receipt.sources:
        sources = (_DIGEST.sub(r"\1", printable(each)) for each in receipt.sources)
        told.append(f"from {', '.join(sources)}")
    if receipt.price is not None and receipt.charged is not None:
        told.append(f"charged {money(receipt.charged)} of {money(receipt.price)}")
    if receipt.words:
        told.append(printable(receipt.words))
    return "\n".join(told)


def _transfers(transfers: tuple[PlannedTransfer, ...], when: When) -> list[str]:
    written = [
        f"  {each.number}: {in_words(each.size_bytes)} to {printable(each.nodes)} in about "
        f"{span_in_words(each.duration_s)}, {_begin(each, when)}, deadline {when.clock(each.deadline_s)}"
        for each in transfers[:MOST_TRANSFERS]
    ]
    more = len(transfers) - len(written)
    return written + ([f"  and {more} more"] if more > 0 else [])


def _begin(transfer: PlannedTransfer, when: When) -> str:
    if transfer.begin_s >= transfer.latest_begin_s:
        return f"begins {when.clock(transfer.begin_s)}"
    return f"begins between {when.clock(transfer.begin_s)} and {when.clock(transfer.latest_begin_s)}"
