"""What was charged to whom: sums of the ledger, and of what is reserved and not over."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.service.answers.leases import Report, ReportLine
from outrider.service.desk.state.site import Live, Site
from outrider.service.requests import Caller, ShowReport
from outrider.store.records import EntryKind, Payer


@dataclass(slots=True)
class _Line:
    """One payer's sums as they are added up."""

    reservations: int = 0
    node_seconds: int = 0
    charged: int = 0
    booked_reservations: int = 0
    booked: int = 0
    refused: int = 0
    lost_to_refusals: int = 0
    too_dear: int = 0
    lost_to_price: int = 0
    machines: int = 0
    machine_node_seconds: int = 0
    machine_cpu_seconds: int = 0


class ReportViews:
    """Answers who asks for sums; users get their own."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def report(self, request: ShowReport, caller: Caller) -> Report:
        """What is over counts at its end, what was refused when it was; what is not over counts now."""
        uid = None if caller.is_admin else caller.uid
        until_s = self._site.now_s + 1 if request.until_s is None else request.until_s
        lines: dict[str, _Line] = {}
        for each in self._site.store.ledger_sums(request.by, request.from_s, until_s, uid):
            line = lines.setdefault(each.payer, _Line())
            if each.kind is EntryKind.CHARGED:
                line.reservations, line.node_seconds, line.charged = (
                    each.count,
                    each.node_seconds,
                    each.amount,
                )
            elif each.kind is EntryKind.REFUSED:
                line.refused, line.lost_to_refusals = each.count, each.amount
            elif each.kind is EntryKind.HELD:
                line.machines, line.machine_node_seconds = each.count, each.node_seconds
                line.machine_cpu_seconds = each.amount
            else:
                line.too_dear, line.lost_to_price = each.count, each.amount
        if request.from_s <= self._site.now_s < until_s:
            for live in self._site.live.values():
                if uid in (None, live.record.owner.uid):
                    line = lines.setdefault(_payer(live, request.by), _Line())
                    line.booked_reservations += 1
                    line.booked += live.kept.price or 0
        return Report(
            by=request.by,
            from_s=request.from_s,
            until_s=until_s,
            is_of_all=caller.is_admin,
            lines=tuple(_told(payer, lines[payer]) for payer in sorted(lines)),
        )


def _told(payer: str, line: _Line) -> ReportLine:
    return ReportLine(
        payer=payer,
        reservations=line.reservations,
        node_seconds=line.node_seconds,
        charged=line.charged,
        booked_reservations=line.booked_reservations,
        booked=line.booked,
        refused=line.refused,
        lost_to_refusals=line.lost_to_refusals,
        too_dear=line.too_dear,
        lost_to_price=line.lost_to_price,
        machines=line.machines,
        machine_node_seconds=line.machine_node_seconds,
        machine_cpu_seconds=line.machine_cpu_seconds,
    )


def _payer(live: Live, by: Payer) -> str:
    owner = live.record.owner
    return {"user": owner.user, "account": owner.account, "group": live.document.group}[by]
