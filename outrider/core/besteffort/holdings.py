"""What a run holds: copies of its image, slots, and how it takes and gives them back."""

from __future__ import annotations

from outrider.core.besteffort.board import BestEffortRun, QueueBoard
from outrider.core.besteffort.placement import RunPlacement
from outrider.core.images.gang_lives import extend_all, leave_all, revive_all
from outrider.core.images.pools import Life, Stay
from outrider.core.links.fifo import Scheduled
from outrider.core.model import Image, Transfer
from outrider.core.reservations.book import Shipping


def bring_image(
    board: QueueBoard, run: BestEffortRun, image: Image, place: RunPlacement, now_s: int
) -> tuple[Scheduled, ...]:
    """Keep the copies of the image that the place uses and add the transfers it lacks."""
    pools = board.book.pools
    run.lives = list(place.joined)
    run.lives += revive_all(pools, place.revived, image, now_s, run.end_s)
    names = board.everything.nodes
    is_relay = board.book.terms.shipping is Shipping.RELAY
    groups = [place.missing] if is_relay and place.missing else [(node,) for node in place.missing]
    scheduled: list[Scheduled] = []
    for group in groups:
        transfer = Transfer(
            number=board.book.new_transfer_number(),
            image=image,
            nodes=tuple(names[node].name for node in group),
            duration_s=board.links.duration_s(image.size_bytes),
            release_s=now_s,
        )
        sent = board.links.add(transfer, now_s)
        scheduled.append(sent)
        brought: list[tuple[int, Life]] = []
        for node in group:
            if board.book.terms.is_reusing:
                life = Life(
                    image, sent.start_s, sent.end_s, run.end_s, transfer=transfer.number, is_firm=True
                )
                pools.add(node, life)
                pools.expect(transfer.number, life)
                brought.append((node, life))
            else:
                stay = Stay(node, image.key, sent.start_s, run.end_s, image.size_bytes, is_private=True)
                board.private.append(stay)
        if brought:
            board.book.carry(transfer.number, brought)
            run.lives += brought
    extend_all(pools, run.lives, run.name, run.end_s)
    return tuple(scheduled)


def release(board: QueueBoard, run: BestEffortRun, now_s: int) -> None:
    """Take back everything the run has from now on."""
    if run.is_in_book:
        for segment in run.segments:
            start_s = max(segment.start_s, now_s)
            if start_s < segment.end_s:
                board.book.timeline.release_all(segment.amounts(), start_s, segment.end_s)
        run.is_in_book = False
    board.vacate(run, now_s)


def leave(board: QueueBoard, run: BestEffortRun, now_s: int) -> None:
    """The run has ended, and does not need what it kept in pools any more."""
    leave_all(board.book.pools, run.lives, run.name, now_s)
    del board.runs[run.name]
