"""Nodes that are told where an image of the catalogue is, instead of what the site calls it.

Whatever decides speaks of an image as its user did; only here the name becomes an address, so that
an administrator may move an image without touching what was promised: the digest stays.
"""

from __future__ import annotations

from dataclasses import replace

from outrider.service.images import Catalogue
from outrider.service.ports import Fetch, NodeReport, Nodes, Order, Source, TellNode


class CataloguedNodes:
    """Passes calls on with addresses in the place of names, and reports back under the names."""

    def __init__(self, nodes: Nodes, catalogue: Catalogue) -> None:
        self._nodes = nodes
        self._catalogue = catalogue

    def tell(self, call: TellNode) -> NodeReport:
        orders = tuple(self._addressed(each) for each in call.orders)
        if orders == call.orders:
            return self._nodes.tell(call)
        report = self._nodes.tell(replace(call, orders=orders))
        meant = dict(zip(orders, call.orders, strict=True))
        results = tuple(replace(each, order=meant.get(each.order, each.order)) for each in report.results)
        return replace(report, results=results)

    def _addressed(self, order: Order) -> Order:
        if not isinstance(order, Fetch):
            return order
        return replace(
            order,
            uri=self._catalogue.source_of(order.uri),
            sources=tuple(self._source(each) for each in order.sources),
            readers=order.readers or self._catalogue.readers_of(order.uri),
        )

    def _source(self, source: Source) -> Source:
        return self._catalogue.source_of(source) if isinstance(source, str) else source
