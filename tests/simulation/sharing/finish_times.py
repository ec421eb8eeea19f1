"""When transfers that share a link end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outrider.sim.sharing import FluidLink, SharedTransfer


def shared_finish_times(
    transfers: Sequence[SharedTransfer],
    rate_bytes_per_s: int,
    receivers_bytes_per_s: Mapping[str, int] | None = None,
) -> dict[str, int]:
    """When each of these transfers ends, by key, if all start when they say."""
    link = FluidLink(rate_bytes_per_s, receivers_bytes_per_s)
    for transfer in sorted(transfers, key=lambda each: (each.start_s, each.key)):
        link.add(transfer)
    finished: dict[str, int] = {}
    while (finish_s := link.next_finish_s()) is not None:
        finished.update((each.key, each.finish_s) for each in link.advance(finish_s))
    return finished
