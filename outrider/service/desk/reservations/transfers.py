"""Transfers that have begun, as far as they have come: who waits for them, and at what rate they go."""

from __future__ import annotations

from outrider.core.model import Transfer
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.state.link_use import LinkUse
from outrider.service.desk.state.site import Moving, Site

ASIDE_SHARE = 10
"""The part of the link, as a divisor, that a transfer may take while it goes on beside the plan."""
UNKNOWN_S = 30
"""How long a transfer of which nothing arrives is taken to need."""


class DeadlineTransfers:
    """The transfers under way."""

    def __init__(self, site: Site, node_orders: NodeOrders) -> None:
        self._site = site
        self._node_orders = node_orders

    def take(self, transfer: Transfer) -> Moving:
        """A transfer that begins, or that ran before the state was loaded."""
        site = self._site
        is_aside = transfer.number in site.book.link.aside
        # What was promised before less was left for reservations has the rate that it was planned with.
        planned = -(-transfer.image.size_bytes // max(1, transfer.duration_s))
        settings, whole = site.settings, self.whole_rate(transfer)
        most = whole * settings.link_rate_bytes_per_s // settings.deadline_rate_bytes_per_s
        rate = min(most, max(whole, planned))
        taken = site.moving[transfer.number] = Moving(
            transfer=transfer,
            begun_s=site.now_s,
            left=set(transfer.nodes),
            is_aside=is_aside,
            has_planned_rate=not is_aside and rate == whole,
            rate_bytes_per_s=whole // ASIDE_SHARE or 1 if is_aside else rate,
        )
        return taken

    def users(self, number: int) -> list[str]:
        """The reservations that wait for a transfer, in the order of their starts."""
        entries = self._site.book.entries
        users = {
            user for _, life in self._site.book.lives_of(number) for user in life.users if user in entries
        }
        return sorted(users, key=lambda name: (entries[name].reservation.start_s, name))

    def slowest(self, moving: Moving) -> tuple[int, int]:
        """The bytes and the rate of the node that has the least, of those that do not have all."""
        found: list[tuple[int, int]] = []
        for name in sorted(moving.left):
            status = self._node_orders.statuses.get(name)
            needs = () if status is None else status.needs_of(moving.transfer.number)
            found.append(next(((need.arrived_bytes, need.rate) for need in needs), (0, 0)))
        return min(found, default=(moving.transfer.image.size_bytes, 0))

    def watch(self, moving: Moving) -> None:
        """Note what its nodes have reported, unless one of them cannot be asked at the moment: it may well
        go on there."""
        link_use = moving.link_use = moving.link_use or LinkUse(moving.rate_bytes_per_s)
        arrived_bytes = moving.transfer.image.size_bytes * (len(moving.transfer.nodes) - len(moving.left))
        for name in moving.left:
            status = self._node_orders.statuses.get(name)
            if status is None:
                continue
            if status.silent_since_s is not None:
                link_use.forget()
                return
            arrived_bytes += status.arrived_bytes(moving.transfer.number)
        link_use.note(self._site.now_s, arrived_bytes)

    def is_idle(self, moving: Moving) -> bool:
        """Whether next to nothing of it comes, so that others may have the link meanwhile: as its nodes
        say, or because none of them can be asked for so long that they are taken to be away."""
        if moving.link_use is not None and moving.link_use.is_idle:
            return True
        away_s, now_s = self._site.settings.away_after_s, self._site.now_s
        statuses = [self._node_orders.statuses.get(name) for name in sorted(moving.left)]
        return bool(statuses) and all(each is None or each.is_away(now_s, away_s) for each in statuses)

    def left_s(self, moving: Moving) -> int:
        """How long a transfer will still take at the rate of late."""
        rate = self.slowest(moving)[1]
        left = moving.transfer.image.size_bytes - self.slowest(moving)[0]
        return UNKNOWN_S if rate <= 0 else -(-left // rate)

    def complaint(self, moving: Moving) -> str:
        """What the first of its nodes says to which it does not come."""
        for name in sorted(moving.left):
            status = self._node_orders.statuses.get(name)
            for need in () if status is None else status.needs_of(moving.transfer.number):
                if need.failures and need.words:
                    return f"{name}: {need.words}"
        return ""

    def set_rate(self, moving: Moving, rate_bytes_per_s: int) -> None:
        """Let a transfer take so much of the link from now on."""
        if moving.rate_bytes_per_s == rate_bytes_per_s:
            return
        moving.rate_bytes_per_s, moving.has_planned_rate = rate_bytes_per_s, False
        if moving.link_use is not None:
            moving.link_use.allow(rate_bytes_per_s)
        for node in sorted(moving.left):
            self._node_orders.set_rate(node, moving.transfer.number, rate_bytes_per_s, self._site.now_s)

    def whole_rate(self, transfer: Transfer) -> int:
        """With what it is planned: all that one transfer may take of the links that it crosses."""
        settings = self._site.settings
        if settings.network is None:
            return settings.deadline_rate_bytes_per_s
        return settings.network.rate(transfer.image, transfer.nodes)

    def rate_keys(self, transfer: Transfer) -> tuple[tuple[str, int], ...]:
        """The keys of the configuration by which the rates of what it crosses are set, and for how many at a
        time each is."""
        network = self._site.settings.network
        if network is None:
            return (("link.rate", 1),)
        found = [(network.key_of(link), link.lanes) for link in network.crossed(transfer)]
        return (*found, *([] if network.node_rate_bytes_per_s is None else [("link.node_rate", 1)]))

    def server(self, transfer: Transfer) -> str:
        """The address that it is fetched from first: the image's own, or a mirror's."""
        network, image = self._site.settings.network, transfer.image
        return image.uri if network is None else network.address(image, transfer.lanes)

    def aside_rate(self, moving: Moving) -> int:
        """What one that had its time may still take, so that others do not miss it."""
        return max(1, self.whole_rate(moving.transfer) // ASIDE_SHARE)
