"""What works on one site's state: made together, and made anew together when it is loaded again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.core.reservations.book import ReservationPlan
from outrider.metadata.policies import Policies
from outrider.rms.base import Sight
from outrider.service.desk.events import EventRouter
from outrider.service.desk.jobs.manager import JobManager
from outrider.service.desk.jobs.orders import IsCarrying, JobOrders
from outrider.service.desk.jobs.transfers import BestEffortTransfers
from outrider.service.desk.leases.negotiation import Negotiation
from outrider.service.desk.leases.open_reservations import OpenReservations
from outrider.service.desk.leases.recurring import RecurringAdmission
from outrider.service.desk.nodes.orders import NodeOrders
from outrider.service.desk.nodes.pool_room import PoolRooms
from outrider.service.desk.nodes.preemptible_jobs import PreemptibleJobs
from outrider.service.desk.nodes.watch import NodeWatch
from outrider.service.desk.reconcile.reconciler import Reconciler
from outrider.service.desk.reservations.admission import ReservationAdmission
from outrider.service.desk.reservations.alarms import ReservationAlarms
from outrider.service.desk.reservations.changes import ReservationChanges
from outrider.service.desk.reservations.copies import ReservationCopies
from outrider.service.desk.reservations.execution import PlanExecution
from outrider.service.desk.reservations.lifecycle import ReservationLifecycle
from outrider.service.desk.reservations.repair import ReservationRepair
from outrider.service.desk.reservations.transfers import DeadlineTransfers
from outrider.service.desk.state.agenda import Agenda, Topic
from outrider.service.desk.state.offers import HeldOffers
from outrider.service.desk.state.site import Site
from outrider.service.desk.state.troubles import Troubles
from outrider.service.desk.switch.switching import SiteSwitches
from outrider.service.desk.views.images import ImageViews
from outrider.service.desk.views.jobs import JobViews
from outrider.service.desk.views.leases import LeaseViews
from outrider.service.desk.views.report import ReportViews
from outrider.service.desk.views.reservations import ReservationViews
from outrider.service.desk.views.site import SiteViews
from outrider.service.desk.views.transfers import TransferViews
from outrider.service.meter import Log, Meter
from outrider.service.ports import AskEvent, Call, NodeRoom, PlanMoves, ResolveImage, Result, TellUser


@dataclass(frozen=True, kw_only=True, slots=True)
class DeskComponents:
    """Everything that knows the site."""

    site: Site
    troubles: Troubles
    admission: ReservationAdmission
    changes: ReservationChanges
    negotiation: Negotiation
    recurring: RecurringAdmission
    alarms: ReservationAlarms
    execution: PlanExecution
    copies: ReservationCopies
    repair: ReservationRepair
    lifecycle: ReservationLifecycle
    reconciler: Reconciler
    opening: OpenReservations
    watch: NodeWatch
    orders: JobOrders
    best_effort: BestEffortTransfers
    jobs: JobManager
    job_views: JobViews
    transfer_views: TransferViews
    views: ReservationViews
    site_views: SiteViews
    report_views: ReportViews
    lease_views: LeaseViews
    image_views: ImageViews
    rooms: PoolRooms
    switches: SiteSwitches

    def seen(self, sight: Sight, *, is_back: bool) -> None:
        """The batch system has been looked at, and what there is was compared. If it `is_back`, what it did
        not do meanwhile is tried again at once: a reservation may begin before the next attempt."""
        if is_back:
            now_s = self.site.now_s
            self.site.write_lightly(lambda progress: progress.retry_effects(now_s))
        self.jobs.seen(sight)
        self.opening.seen(sight)
        self.switches.seen(sight)

    def doubts(self, plan: ReservationPlan) -> dict[str, int]:
        """Who has to be asked before a plan is promised: nodes, or the batch system."""
        return self.rooms.doubts(plan) | self.reconciler.doubts(plan)

    def take_up(self, rooms: Mapping[str, NodeRoom]) -> None:
        """Go on with what is on the disk; `rooms` is what nodes have said of their pools."""
        self.rooms.take_up(rooms)
        self.orders.take_up()
        self.jobs.yielding.take_up()
        self.lifecycle.take_up()
        self.opening.take_up()
        self.switches.take_up()

    def make_way(self, name: str) -> None:
        """Those who made way for a new reservation have other nodes, or none any more."""
        changed, self.admission.made_way = self.admission.made_way, []
        for each in changed:
            if each.after is None:
                self.lifecycle.yielded(each.live, name)
            else:
                left = set(each.before.nodes) - set(each.live.nodes)
                self.execution.release(each.live, tuple(sorted(left)))
                self.execution.arrange(each.live)
        if changed:
            self.execution.prune()

    def heard(self, call: Call, result: Result) -> None:
        """What was asked for jobs or for events is answered."""
        if isinstance(call, ResolveImage):
            self.jobs.resolved(call, result)
        elif isinstance(call, TellUser):
            self.jobs.told(call, result)
        elif isinstance(call, AskEvent):
            self.opening.heard(call, result)
        elif isinstance(call, PlanMoves):
            self.switches.heard(call, result)

    def turn(self, topic: Topic, subject: str) -> None:
        """Something is due."""
        if topic is Topic.JOB:
            self.jobs.turn(subject)
        elif topic is Topic.OPEN:
            self.opening.turn(subject)
        else:
            self.lifecycle.turn(topic, subject)


def make_components(
    site: Site,
    node_orders: NodeOrders,
    agenda: Agenda,
    policies: Policies,
    is_carrying: IsCarrying,
    log: Log,
    meter: Meter,
) -> DeskComponents:
    events, troubles, preemptible = EventRouter(), Troubles(), PreemptibleJobs(site)
    deadlines, views = DeadlineTransfers(site, node_orders), ReservationViews(site, node_orders)
    alarms = ReservationAlarms(site, deadlines, log, meter)
    offers = HeldOffers(site.book, site.settings.offers_held_s, site.settings.most_offers)
    admission = ReservationAdmission(site, policies, preemptible, offers)
    execution = PlanExecution(site, node_orders, agenda, deadlines, alarms, events, log, meter)
    copies = ReservationCopies(site, node_orders, execution, alarms, troubles, events, log)
    repair = ReservationRepair(site, node_orders, admission, execution, copies, alarms, troubles, log)
    watch, orders = NodeWatch(site, node_orders, agenda), JobOrders(site, node_orders, is_carrying, log)
    lifecycle = ReservationLifecycle(site, agenda, admission, execution, alarms, troubles, watch, log, meter)
    best_effort = BestEffortTransfers(site, node_orders, deadlines, events, log, meter)
    jobs = JobManager(
        site,
        node_orders,
        agenda,
        copies,
        events,
        best_effort,
        orders,
        preemptible,
        repair,
        troubles,
        is_carrying,
        log,
        meter,
    )
    started = jobs.turns.started
    reconciler = Reconciler(
        site, node_orders, admission, copies, troubles, repair, lifecycle, watch, preemptible, started, log
    )
    opening = OpenReservations(
        site, agenda, admission, execution, lifecycle, preemptible, reconciler.busy_until_s, log
    )
    return DeskComponents(
        site=site,
        troubles=troubles,
        admission=admission,
        changes=ReservationChanges(site, admission),
        negotiation=Negotiation(site, admission, offers),
        recurring=RecurringAdmission(site, admission),
        alarms=alarms,
        execution=execution,
        copies=copies,
        repair=repair,
        lifecycle=lifecycle,
        reconciler=reconciler,
        opening=opening,
        watch=watch,
        orders=orders,
        best_effort=best_effort,
        jobs=jobs,
        job_views=JobViews(site, node_orders, jobs),
        transfer_views=TransferViews(site, node_orders, best_effort, jobs),
        views=views,
        lease_views=LeaseViews(site, views, offers),
        report_views=ReportViews(site),
        site_views=SiteViews(site, node_orders),
        image_views=ImageViews(site, node_orders, jobs),
        rooms=PoolRooms(site, node_orders, troubles, log),
        switches=SiteSwitches(site, node_orders, jobs, log),
    )
