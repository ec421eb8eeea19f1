"""`outrider watch`: progress as it happens, in place on a terminal, as plain lines elsewhere."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers
from outrider.cli.asking.session import Session, add_asking, session
from outrider.cli.errors import BrokenError, CommandError, ConflictError
from outrider.cli.quantities import positive
from outrider_client.transport import Json, in_path, printable_line

if TYPE_CHECKING:
    from cachemgr.base.clock import Clock
    from outrider.cli.asking.display.words import When
    from outrider.service.answers.reservations import ReservationDetails
    from outrider.service.answers.transfers import TransferList

OVER = ("ended", "cancelled", "failed")
READY = ("ready", "active", *OVER)
EVERY_S = 2
_EPILOG = """With a name it ends when that reservation is over, or with --until ready when its image is on all
nodes; the exit code is 10 if it has failed. Without a name it shows all transfers until Ctrl-C.
Where output is no terminal there is a line for each change of state and each tenth of the way.

examples:
  outrider watch render-17
  outrider watch render-17 --until ready && echo go
  outrider watch
"""


class RedrawnScreen:
    """A block of lines on a terminal that is drawn anew over itself."""

    def __init__(
        self, write: Callable[[str], object], columns: Callable[[], int], lines: Callable[[], int]
    ) -> None:
        self._write = write
        self._columns = columns
        self._lines = lines
        self._drawn = 0

    def show(self, text: str, changes: dict[str, str]) -> None:
        """Lines that do not fit are cut: what has scrolled away cannot be drawn over."""
        from cachemgr.base.tables import cut

        shown = [printable_line(line) for line in text.split("\n")]
        most = self._lines() - 1
        if len(shown) > most:
            shown = [*shown[: most - 1], f"and {len(shown) - most + 1} more lines"]
        back = f"\x1b[{self._drawn}F" if self._drawn else ""
        body = "".join(f"{cut(line, self._columns() - 1)}\x1b[K\n" for line in shown)
        self._write(f"{back}{body}\x1b[J")
        self._drawn = len(shown)


def add(commands: Subparsers) -> None:
    parser = add_asking(commands, "watch", watch, "follow a reservation, or all transfers", _EPILOG)
    parser.add_argument(
        "name",
        metavar="NAME",
        nargs="?",
        help="the reservation: render-17, or render if that is clear; without it all transfers",
    )
    parser.add_argument(
        "--until",
        metavar="WHEN",
        choices=("ready", "over"),
        default="over",
        help="end when it is ready, or over (over)",
    )
    parser.add_argument(
        "--every", metavar="SECONDS", type=positive, default=EVERY_S, help=f"how often to look ({EVERY_S})"
    )


def watch(arguments: argparse.Namespace) -> None:
    from cachemgr.base.clock import SystemClock

    follow(session(arguments), arguments, SystemClock())


def follow(asking: Session, arguments: argparse.Namespace, clock: Clock) -> None:
    """Look, show, wait, until it is over."""
    from outrider.cli.asking.display.terminal import columns, is_live, lines

    is_drawn = is_live(os.environ) and not asking.is_json
    view: RedrawnScreen | Lines = RedrawnScreen(_written, columns, lines) if is_drawn else Lines()
    ends_with = READY if arguments.until == "ready" else OVER
    name, parts = arguments.name, list[str]()
    while True:
        try:
            text, changes, name, state = _look(asking, name, clock.now_s())
        except ConflictError:
            # Of several it is said which they are, unless they are one lease together.
            found = _look_at_lease(asking, name, parts)
            if found is None:
                raise
            text, changes, state = found
        view.show(text, changes)
        if name and state in ends_with:
            if state == "failed":
                raise BrokenError(f"{name} has failed; see outrider explain {name}")
            return
        clock.sleep(arguments.every)


class Lines:
    """A line for what has changed since the last look."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def show(self, text: str, changes: dict[str, str]) -> None:
        for subject, line in changes.items():
            if self._last.get(subject) != line:
                print(printable_line(line), flush=True)
        self._last = changes


def _look(asking: Session, name: str | None, now_s: int) -> tuple[str, dict[str, str], str | None, str]:
    """The screen, a line for each thing that can change, and whose state is the last if one is watched: its
    whole name, since it may be meant by its workspace's only as long as no other is."""
    from outrider.cli.asking.display.words import When
    from outrider.service.answers.reservations import ReservationDetails
    from outrider.service.answers.transfers import TransferList

    when = When(now_s=now_s, zone=asking.zone)
    if name is None:
        answer = asking.client.get("/v1/transfers")
        found = asking.read(TransferList, answer)
        changes = _json_line(answer) if asking.is_json else _transfer_changes(found, when)
        return transfers_screen(found, when), changes, None, ""
    answer = asking.client.get(f"/v1/reservations/{in_path(name)}")
    details = asking.read(ReservationDetails, answer)
    changes = _json_line(answer) if asking.is_json else _reservation_changes(details, when)
    return reservation_screen(details, when), changes, details.reservation.name, details.reservation.state


def _look_at_lease(asking: Session, name: str, parts: list[str]) -> tuple[str, dict[str, str], str] | None:
    """The same of a lease of several reservations; None if there is none of that name. It is ready when all
    are. Its `parts` are remembered: what is over is not shown any more, so they are asked for in the end."""
    from outrider.service.answers.leases import LeaseDetails
    from outrider.service.answers.reservations import ReservationDetails

    try:
        answer = asking.client.get(f"/v1/leases/{in_path(name)}")
    except CommandError:
        if not parts:
            return None
        ends = [
            asking.read(
                ReservationDetails, asking.client.get(f"/v1/reservations/{in_path(part)}")
            ).reservation
            for part in parts
        ]
        states = [each.state for each in ends]
        state = next((each for each in ("failed", "cancelled") if each in states), "ended")
        changes = {each.name: f"{each.name} is {each.state}" for each in ends}
        return "\n".join(changes.values()), changes, state
    details = asking.read(LeaseDetails, answer)
    parts += [each.name for each in details.reservations if each.name not in parts]
    lines = {
        each.name: f"{each.name} is {each.state} on {each.nodes}{f': {each.why}' if each.why else ''}"
        for each in details.reservations
    }
    waiting = [each.state for each in details.reservations if each.state not in READY]
    state = waiting[0] if waiting else details.lease.state
    return "\n".join(lines.values()), _json_line(answer) if asking.is_json else lines, state


def _json_line(answer: Json) -> dict[str, str]:
    import json

    return {"": json.dumps(answer, ensure_ascii=False)}


def reservation_screen(details: ReservationDetails, when: When) -> str:
    from outrider.cli.asking.display.details import details_screen
    from outrider.cli.asking.display.terminal import plain_paint

    return details_screen(details, when, plain_paint, is_watched=True)


def transfers_screen(found: TransferList, when: When) -> str:
    """Each transfer on two lines: what goes where for whom, and how far it is."""
    from outrider.cli.asking.display.staging import transfer_line
    from outrider.cli.asking.display.terminal import plain_paint
    from outrider.cli.asking.display.words import image_name, plural

    running = sum(each.state == "running" for each in found.transfers)
    written = [f"{when.clock(when.now_s)}  {plural(len(found.transfers), 'transfer')}, {running} running"]
    for each in found.transfers:
        users = [*each.for_reservations, *(f"job {job}" for job in each.for_jobs)]
        whom = f" for {', '.join(users)}" if users else ""
        written.append(f"{image_name(each.image.uri, each.image.digest)} to {each.nodes}{whom}, {each.state}")
        written.append(f"  {transfer_line(each, when, plain_paint)}")
    return "\n".join(written)


def _reservation_changes(details: ReservationDetails, when: When) -> dict[str, str]:
    """Groups of nodes to the tenth of their way, so that a log does not get a line every two seconds."""
    from outrider.cli.asking.display.staging import groups
    from outrider.cli.asking.display.words import percent

    view = details.reservation
    why = f": {view.why}" if view.why else ""
    changes = {"": f"{view.name} is {view.state}{why}"}
    if details.ended_s is None:
        for each in groups(details.staging):
            tenths = percent(each.arrived_bytes, each.size_bytes) // 10 * 10
            reached = f", {tenths} %" if each.state == "arriving" else ""
            words = f": {each.words}" if each.words else ""
            changes[each.nodes] = f"{view.name}: {each.nodes} {each.state}{reached}{words}"
    return changes


def _transfer_changes(found: TransferList, when: When) -> dict[str, str]:
    from outrider.cli.asking.display.words import image_name, percent

    changes = {}
    for each in found.transfers:
        tenths = percent(each.arrived_bytes, each.total_bytes) // 10 * 10
        late = ", late" if each.is_late else ""
        named = image_name(each.image.uri, each.image.digest)
        changes[str(each.number)] = f"{each.number}: {named} to {each.nodes} {each.state}, {tenths} %{late}"
    return changes


def _written(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
