"""What works on one site's state: made together, and made anew together when it is loaded again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.metadata.policies import Policies
from outrider.service.desk.events import EventRouter
from outrider.service.desk.jobs.manager import Leading
from outrider.service.desk.jobs.orders import IsCarrying, JobOrders
from outrider.service.desk.jobs.transfers import Hauling
from outrider.service.desk.nodes.orders import Staff
from outrider.service.desk.nodes.pool_room import Rooms
from outrider.service.desk.nodes.watch import Watching
from outrider.service.desk.reconcile.reconciler import Reconciling
from outrider.service.desk.reservations.admission import Admitting
from outrider.service.desk.reservations.alarms import Alarms
from outrider.service.desk.reservations.copies import Copies
from outrider.service.desk.reservations.execution import Executing
from outrider.service.desk.reservations.lifecycle import Lifetimes
from outrider.service.desk.reservations.repair import Mending
from outrider.service.desk.reservations.transfers import Carriage
from outrider.service.desk.state.agenda import Agenda
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.troubles import Troubles
from outrider.service.desk.views.images import ImageViews
from outrider.service.desk.views.jobs import JobViews
from outrider.service.desk.views.reservations import Views
from outrider.service.desk.views.site import SiteViews
from outrider.service.desk.views.transfers import Freight
from outrider.service.meter import Log, Meter
from outrider.service.ports import NodeRoom


@dataclass(frozen=True, kw_only=True, slots=True)
class Workings:
    """Everything that knows the site."""

    site: Site
    troubles: Troubles
    admitting: Admitting
    alarms: Alarms
    executing: Executing
    copies: Copies
    mending: Mending
    lifetimes: Lifetimes
    reconciling: Reconciling
    watching: Watching
    orders: JobOrders
    hauling: Hauling
    leading: Leading
    job_views: JobViews
    freight: Freight
    views: Views
    site_views: SiteViews
    image_views: ImageViews
    rooms: Rooms

    def take_up(self, rooms: Mapping[str, NodeRoom]) -> None:
        """Go on with what is on the disk; `rooms` is what nodes have said of their pools."""
        self.rooms.take_up(rooms)
        self.orders.take_up()
        self.lifetimes.take_up()


def make_workings(
    site: Site,
    staff: Staff,
    agenda: Agenda,
    policies: Policies,
    is_carrying: IsCarrying,
    log: Log,
    meter: Meter,
) -> Workings:
    events, troubles = EventRouter(), Troubles()
    carriage = Carriage(site, staff)
    alarms = Alarms(site, carriage, log, meter)
    admitting = Admitting(site, policies)
    executing = Executing(site, staff, agenda, carriage, alarms, events, log, meter)
    copies = Copies(site, staff, executing, alarms, troubles, events, log)
    mending = Mending(site, staff, admitting, executing, copies, alarms, troubles, log)
    watching = Watching(site, staff, agenda)
    lifetimes = Lifetimes(site, agenda, admitting, executing, alarms, troubles, watching, log, meter)
    hauling = Hauling(site, staff, carriage, events, log, meter)
    orders = JobOrders(site, staff, is_carrying, log)
    leading = Leading(site, staff, agenda, copies, events, hauling, orders, log, meter)
    return Workings(
        site=site,
        troubles=troubles,
        admitting=admitting,
        alarms=alarms,
        executing=executing,
        copies=copies,
        mending=mending,
        lifetimes=lifetimes,
        reconciling=Reconciling(site, staff, admitting, copies, troubles, mending, lifetimes, watching, log),
        watching=watching,
        orders=orders,
        hauling=hauling,
        leading=leading,
        job_views=JobViews(site, staff, leading),
        freight=Freight(site, staff, hauling, leading),
        views=Views(site, staff),
        site_views=SiteViews(site, staff),
        image_views=ImageViews(site, staff, leading),
        rooms=Rooms(site, staff, troubles, log),
    )
