"""What works on one site's state: made together, and made anew together when it is loaded again."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.metadata.policies import Policies
from outrider.service.admitting import Admitting
from outrider.service.agenda import Agenda
from outrider.service.executing import Executing
from outrider.service.lifetimes import Lifetimes
from outrider.service.mending import Mending
from outrider.service.meter import Log, Meter
from outrider.service.reconciling import Reconciling
from outrider.service.site import Site
from outrider.service.staff import Staff
from outrider.service.views import Views


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Everything that knows the site."""

    site: Site
    admitting: Admitting
    executing: Executing
    mending: Mending
    lifetimes: Lifetimes
    reconciling: Reconciling
    views: Views


def make_parts(site: Site, staff: Staff, agenda: Agenda, policies: Policies, log: Log, meter: Meter) -> Parts:
    admitting = Admitting(site, policies)
    executing = Executing(site, staff, agenda, log, meter)
    mending = Mending(site, staff, admitting, executing, log)
    lifetimes = Lifetimes(site, agenda, admitting, executing, log, meter)
    return Parts(
        site=site,
        admitting=admitting,
        executing=executing,
        mending=mending,
        lifetimes=lifetimes,
        reconciling=Reconciling(site, staff, admitting, executing, mending, lifetimes, log),
        views=Views(site, staff),
    )
