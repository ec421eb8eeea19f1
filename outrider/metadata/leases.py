"""The part of a site's policies that is about leases: admission, preemption, nodes, prices.

The sections are the file's form. `LeasePolicies` makes of them the core's policies; a name that is not one
of Outrider's own is looked up among the Python entry points of the group `outrider.lease_policies`, whose
object is called with the section's `options` and returns a policy with the method of the Protocol
(`outrider.core.leases`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from outrider.core.leases import adaptive, admission, nodes, preemption, pricing
from outrider.core.model import Workspace
from outrider.metadata.errors import MetadataError, shown
from outrider.metadata.fields import Account, Duration, Name, Share
from outrider.metadata.validation import Section, contradiction

GROUP = "outrider.lease_policies"
MOST_POLICIES = 100

_Listed = Field((), max_length=MOST_POLICIES, strict=False)
Price = Annotated[int, Field(ge=0, le=10**9)]
Options = dict[str, str | int | bool]


class SitePolicySection(Section):
    """A policy of the site's own, or one of Outrider's by its name."""

    by: Name = Field(description="the policy: one of Outrider's, or an entry point of the site")
    weight: int = Field(1, ge=0, le=1000, description="its weight beside the others")
    options: Annotated[Options, Field(max_length=100)] = Field(
        default_factory=dict, description="options of a policy of the site's own"
    )


class PreemptionMeasureSection(SitePolicySection):
    """One reason to let something yield sooner: youngest, shortest, least_work_lost, cheapest_to_suspend,
    lowest_value, class, or an entry point."""

    classes: Annotated[tuple[Name, ...], _Listed] = Field(
        (), description="of class: the classes in the order in which they yield"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if bool(self.classes) != (self.by == "class"):
            contradiction("classes are needed by class, and by nothing else", "classes")
        return self


class PreemptionSection(Section):
    """Who yields first, and who never does."""

    order: Annotated[tuple[PreemptionMeasureSection, ...], _Listed] = Field(
        (), description="measures that are weighed against each other; without any the youngest yields"
    )
    spare_classes: Annotated[tuple[Name, ...], _Listed] = Field((), description="classes that never yield")
    spare_users: Annotated[tuple[Account, ...], _Listed] = Field((), description="users that never yield")
    ranks: Annotated[tuple[Name, ...], _Listed] = Field(
        (),
        description="classes, the highest first: a reservation that may yield does so for a higher one; "
        "without any it yields to every reservation that may not yield",
    )


class HourOfDaySection(Section):
    """24 surcharges in percent, from midnight (UTC, or so many hours ahead of it) on."""

    percents: Annotated[tuple[int, ...], Field(min_length=24, max_length=24, strict=False)] = Field(
        description="the surcharge of each hour, in percent; a negative one is a discount"
    )
    ahead_hours: int = Field(0, ge=-12, le=14, description="how far the site's time is ahead of UTC")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if min(self.percents) < -100:
            contradiction("a discount of more than 100 percent is impossible", "percents")
        return self


class LoadStepSection(Section):
    """A surcharge from a load on."""

    from_share_percent: Share = Field(
        alias="from", description="how much of the machine others have reserved at that time"
    )
    percent: int = Field(ge=-100, le=10_000, description="what is added")


class NoticeStepSection(Section):
    """A surcharge for short notice."""

    within_s: Duration = Field(alias="within", description="how soon it starts")
    percent: int = Field(ge=-100, le=10_000, description="what is added")


class PricingSection(Section):
    """What a reservation costs."""

    rate: int = Field(
        ge=0, le=10**12, description="of a node (in the simulator: a processor) for an hour, in thousandths"
    )
    hours: HourOfDaySection | None = Field(None, description="surcharges by the hour of the day")
    load: Annotated[tuple[LoadStepSection, ...], _Listed] = Field((), description="by load, rising")
    notice: Annotated[tuple[NoticeStepSection, ...], _Listed] = Field((), description="by notice, rising")
    yielding_discount_percent: int = Field(
        0, alias="yielding_discount", ge=0, le=100, description="in percent, of what may yield"
    )
    others: Annotated[tuple[SitePolicySection, ...], _Listed] = Field(
        (), description="surcharges of the site's own"
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        loads = [step.from_share_percent for step in self.load]
        notices = [step.within_s for step in self.notice]
        if loads != sorted(set(loads)):
            contradiction("its steps do not rise: sort them", "load")
        if notices != sorted(set(notices)):
            contradiction("its steps do not rise: sort them", "notice")
        return self


class AdaptiveSection(Section):
    """A share of each hour that follows what users do, towards what the site says is worth most."""

    booked: Price = Field(0, description="what an hour of a node brings that a reservation books")
    used: Price = Field(0, description="what an hour of a node brings that is used, by reservation or job")
    waiting: Price = Field(0, description="what an hour costs in which one job waits")
    lowest_percent: Share = Field(0, alias="lowest", description="the share never falls below")
    highest_percent: Share = Field(100, alias="highest", description="and never rises above")
    start_percent: Share = Field(50, alias="start", description="the share at first, and after a restart")
    step_percent: Share = Field(10, alias="step", description="by how much it moves at once")
    every_s: Duration = Field(3600, alias="every", description="how often it may move")
    memory_s: Duration = Field(2 * 86_400, alias="memory", description="how long what is seen counts")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.booked and not self.used and not self.waiting:
            contradiction("without a price nothing is steered to: give booked, used or waiting", "booked")
        if not self.lowest_percent <= self.start_percent <= self.highest_percent:
            contradiction("lowest, start and highest do not rise", "start")
        if not self.step_percent:
            contradiction("a step of nothing never moves it", "step")
        if min(self.every_s, self.memory_s) < 1:
            contradiction("every and memory are a second or more", "every")
        return self


class LeasesSection(Section):
    """What is accepted, who yields, which nodes are taken and what it costs."""

    accept: Literal["all", "none"] = Field("all", description="none: no reservation is accepted")
    hour_share_percent: Share | None = Field(
        None, alias="hour_share", description="how much of each hour of the machine may be reserved"
    )
    adaptive: AdaptiveSection | None = Field(
        None, description="a share of each hour that adapts to what users ask for"
    )
    most_slowdown_percent: int | None = Field(
        None,
        alias="most_slowdown",
        ge=100,
        le=10**9,
        description="accept only while the mean bounded slowdown of best effort stays below, in hundredths",
    )
    within_idle_percent: Share | None = Field(
        None,
        alias="within_idle",
        description="how much of the machine reservations may fill, with what jobs run on and wait for",
    )
    first_slice_s: Duration | None = Field(
        None,
        alias="first_slice",
        ge=1,
        description="how long a job that reservations keep waiting runs at once; in the simulator only",
    )
    admission: Annotated[tuple[SitePolicySection, ...], _Listed] = Field(
        (), description="policies of the site's own, asked last"
    )
    preemption: PreemptionSection | None = Field(None, description="who yields first")
    nodes: Annotated[tuple[SitePolicySection, ...], _Listed] = Field(
        (), description="images, packing, spreading, least_preemption, energy, or entry points"
    )
    pricing: PricingSection | None = Field(None, description="what a reservation costs")


_MEASURES: dict[str, Callable[[], preemption.PreemptionMeasure]] = {
    "youngest": preemption.Youngest,
    "shortest": preemption.Shortest,
    "least_work_lost": preemption.LeastWorkLost,
    "cheapest_to_suspend": preemption.CheapestToSuspend,
    "lowest_value": preemption.LowestValue,
}
_NODE_RULES: dict[str, Callable[[], nodes.NodeRule]] = {
    "images": nodes.WithImage,
    "packing": nodes.Packing,
    "spreading": nodes.Spreading,
    "least_preemption": nodes.LeastPreemption,
    "energy": nodes.Energy,
}

_Policy = TypeVar("_Policy")


def admission_policies(section: LeasesSection) -> tuple[admission.AdmissionPolicy, ...]:
    """What a plan is asked for, in this order."""
    found: list[admission.AdmissionPolicy] = []
    if section.accept == "none":
        found.append(admission.AcceptNone())
    if section.hour_share_percent is not None:
        found.append(admission.HourShare(section.hour_share_percent))
    if section.most_slowdown_percent is not None:
        found.append(admission.ProtectBestEffort(section.most_slowdown_percent))
    if section.within_idle_percent is not None:
        found.append(admission.WithinIdle(section.within_idle_percent))
    for each in section.admission:
        found.append(_brought(each, "refuse"))
    return tuple(found)


def steering_rules(section: AdaptiveSection) -> adaptive.SteeringRules:
    """By which the share of reservations adapts."""
    return adaptive.SteeringRules(
        booked=section.booked,
        used=section.used,
        waiting=section.waiting,
        lowest_percent=section.lowest_percent,
        highest_percent=section.highest_percent,
        start_percent=section.start_percent,
        step_percent=section.step_percent,
        every_s=section.every_s,
        memory_s=section.memory_s,
    )


def preemption_order(section: PreemptionSection) -> preemption.PreemptionOrder:
    """Who yields first."""
    measures: list[tuple[preemption.PreemptionMeasure, int]] = []
    for each in section.order:
        if each.by == "class":
            measures.append((preemption.ByClass(each.classes), each.weight))
        else:
            measures.append((_named(_MEASURES, each, "measure"), each.weight))
    spared_classes, spared_users = frozenset(section.spare_classes), frozenset(section.spare_users)
    if not measures:
        return preemption.PreemptionOrder(spared_classes=spared_classes, spared_users=spared_users)
    return preemption.PreemptionOrder(
        measures=tuple(measures), spared_classes=spared_classes, spared_users=spared_users
    )


def outranks_by(ranks: Sequence[str]) -> Callable[[Workspace, Workspace], bool]:
    """Whether one class stands above another; who is in none stands below all."""

    def place(workspace: Workspace) -> int:
        name = workspace.owner.lease_class
        return ranks.index(name) if name in ranks else len(ranks)

    def outranks(one: Workspace, other: Workspace) -> bool:
        return place(one) < place(other) if ranks else not one.may_yield

    return outranks


def node_order(section: LeasesSection) -> nodes.NodeOrder | None:
    """The site's order of nodes; None: Algorithm 1's alone."""
    if not section.nodes:
        return None
    return nodes.NodeOrder(tuple((_named(_NODE_RULES, each, "score"), each.weight) for each in section.nodes))


def price_list(section: PricingSection) -> pricing.PriceList:
    """What a reservation costs."""
    hours: tuple[pricing.HourRate, ...] = ()
    if section.hours is not None:
        hours = (pricing.ByHourOfDay(section.hours.percents, section.hours.ahead_hours),)
    surcharges: list[pricing.Surcharge] = []
    if section.load:
        surcharges.append(
            pricing.ByLoad(tuple((each.from_share_percent, each.percent) for each in section.load))
        )
    if section.notice:
        surcharges.append(pricing.ByNotice(tuple((each.within_s, each.percent) for each in section.notice)))
    if section.yielding_discount_percent:
        surcharges.append(pricing.ForYielding(section.yielding_discount_percent))
    for each in section.others:
        surcharges.append(_brought(each, "percent"))
    return pricing.PriceList(rate=section.rate, hours=hours, surcharges=tuple(surcharges))


def _named(known: dict[str, Callable[[], _Policy]], section: SitePolicySection, method: str) -> _Policy:
    """One of Outrider's own, or the site's."""
    make = known.get(section.by)
    if make is not None:
        if section.options:
            raise MetadataError(f"policy {section.by} takes no options: leave them out")
        return make()
    found: _Policy = _brought(section, method)
    return found


def _brought(section: SitePolicySection, method: str) -> Any:
    """A policy that the site has installed."""
    found = list(entry_points(group=GROUP, name=section.by))
    if not found:
        known = ", ".join(sorted(each.name for each in entry_points(group=GROUP))) or "none"
        raise MetadataError(
            f"no policy is called {shown(section.by)}: Python entry points of the group {GROUP} are {known}"
        )
    try:
        policy = found[0].load()(**section.options)
    except Exception as error:
        raise MetadataError(f"policy {section.by} of {found[0].value} cannot be made: {error}") from error
    if not callable(getattr(policy, method, None)):
        raise MetadataError(f"policy {section.by} of {found[0].value} has no method {method}")
    return policy
