"""What works on one site's state: made together, and made anew together when it is loaded again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.metadata.policies import Policies
from outrider.service.desk.admitting import Admitting
from outrider.service.desk.agenda import Agenda
from outrider.service.desk.alarms import Alarms
from outrider.service.desk.carriage import Carriage
from outrider.service.desk.copies import Copies
from outrider.service.desk.executing import Executing
from outrider.service.desk.freight import Freight
from outrider.service.desk.hauling import Hauling
from outrider.service.desk.imageviews import ImageViews
from outrider.service.desk.joborders import IsCarrying, JobOrders
from outrider.service.desk.jobviews import JobViews
from outrider.service.desk.leading import Leading
from outrider.service.desk.lifetimes import Lifetimes
from outrider.service.desk.mending import Mending
from outrider.service.desk.reconciling import Reconciling
from outrider.service.desk.rooms import Rooms
from outrider.service.desk.site import Site
from outrider.service.desk.siteviews import SiteViews
from outrider.service.desk.staff import Staff
from outrider.service.desk.views import Views
from outrider.service.meter import Log, Meter
from outrider.service.ports import NodeRoom


@dataclass(frozen=True, kw_only=True, slots=True)
class Workings:
    """Everything that knows the site."""

    site: Site
    admitting: Admitting
    alarms: Alarms
    executing: Executing
    copies: Copies
    mending: Mending
    lifetimes: Lifetimes
    reconciling: Reconciling
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
    carriage = Carriage(site, staff)
    alarms = Alarms(site, carriage, log, meter)
    admitting = Admitting(site, policies)
    executing = Executing(site, staff, agenda, carriage, alarms, log, meter)
    copies = Copies(site, staff, executing, alarms, log)
    mending = Mending(site, staff, admitting, executing, copies, alarms, log)
    lifetimes = Lifetimes(site, agenda, admitting, executing, alarms, log, meter)
    hauling = Hauling(site, staff, carriage, log, meter)
    executing.begun = hauling.deadline_begun
    orders = JobOrders(site, staff, is_carrying, log)
    leading = Leading(site, staff, agenda, copies, hauling, orders, log, meter)
    return Workings(
        site=site,
        admitting=admitting,
        alarms=alarms,
        executing=executing,
        copies=copies,
        mending=mending,
        lifetimes=lifetimes,
        reconciling=Reconciling(site, staff, admitting, copies, alarms, mending, lifetimes, log),
        orders=orders,
        hauling=hauling,
        leading=leading,
        job_views=JobViews(site, staff, leading),
        freight=Freight(site, staff, hauling, leading),
        views=Views(site, staff),
        site_views=SiteViews(site, staff),
        image_views=ImageViews(site, staff, leading),
        rooms=Rooms(site, staff, alarms, mending, log),
    )
