"""From the store to the book, as a service does it when it starts."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.collector import collector_paused
from outrider.core.images.pools import Pools
from outrider.core.links.links import Links
from outrider.core.model import Node
from outrider.core.reservations.book import Terms
from outrider.core.restart.restore import Restored, restore
from outrider.store.records import ReservationRecord
from outrider.store.states import State
from outrider.store.store import Store


def load_book(
    store: Store,
    nodes: Sequence[Node],
    terms: Terms,
    *,
    links: Links,
    pools: Pools | None = None,
    live: Sequence[ReservationRecord] | None = None,
    now_s: int,
) -> Restored:
    """The book of all that has been promised. `links` and `pools` are new, as for a first start.

    `live` are the store's live reservations, if they have been read already.
    """
    with collector_paused():
        live = store.live_reservations() if live is None else live
        return restore(
            nodes,
            terms,
            store.kept_book(now_s, live),
            links=links,
            pools=pools,
            doubtful=frozenset(each.name for each in live if each.state is State.ENDANGERED),
            now_s=now_s,
        )
