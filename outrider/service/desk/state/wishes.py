"""What somebody wants, in the words of the core and of the site's policies.

Who names sizes has as much of each node, where the batch system can keep that apart from the rest. Where it
cannot, a reservation has whole nodes, and its user is told so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import tzinfo

from outrider.core.model import LeaseOwner, Resources, Workspace
from outrider.core.nodes.capacity import LARGEST_AMOUNT
from outrider.core.reservations import refusal as texts
from outrider.core.reservations.book import ReservationPlan
from outrider.metadata.conversion import deployment_of, workspace_of
from outrider.metadata.decision import Requester, rule_of
from outrider.metadata.errors import MetadataError
from outrider.metadata.policies import Policies
from outrider.metadata.workspace import DeploymentSection, RoleSection
from outrider.service.answers.reply import Trouble
from outrider.service.desk.state.documents import Document, document_of, per_node, stem_of
from outrider.service.desk.state.node_list import is_part, part, parts, whole
from outrider.service.desk.state.open_terms import with_secret
from outrider.service.desk.state.site import Live, Site
from outrider.service.requests import Caller, Modify, Reserve
from outrider.service.settings import Settings

_WORDS = {"cpus": "processors", "memory_mib": "memory", "gpus": "gpus"}
MOST_NAME = 90
"""Of a reservation, in characters."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wish:
    """What somebody wants, as the core and the policies look at it."""

    caller: Caller
    account: str
    document: Document
    workspace: Workspace
    zone: tzinfo
    most_price: int | None = None
    offered_price: int | None = None
    """What it was offered for, if it is an offer that is accepted."""
    notes: tuple[str, ...] = ()
    """What it gets otherwise than it was asked for."""
    beside: tuple[ReservationPlan, ...] = ()
    """What is accepted together with it, and is in the book already, but not among the reservations."""

    @property
    def requester(self) -> Requester:
        return Requester(user=self.caller.user, groups=self.caller.groups, account=self.account)


def wish_of(site: Site, policies: Policies, caller: Caller, request: Reserve) -> Wish | Trouble:
    """A request in the words of the core; the name it would be booked under is in it."""
    document = document_of(request, caller)
    if document.open is not None and request.starts:
        words = f"workspace {document.workspace} waits for an event and recurs: ask for one or the other"
        return Trouble(code="invalid", message=words)
    if document.open is not None and not request.is_plan:
        document = replace(document, open=with_secret(document.open))
    name = f"{stem_of(document.workspace)}-{site.next_number}"
    try:
        workspace = workspace_of(request.workspace, document.image, now_s=site.now_s, name=name)
    except MetadataError as error:
        return Trouble(code="invalid", message=str(error))
    who = Requester(user=caller.user, groups=caller.groups, account=request.account)
    document = replace(document, lease_class=rule_of(policies, who))
    owner = LeaseOwner(
        user=caller.user,
        groups=caller.groups,
        account=request.account,
        lease_class=document.lease_class,
    )
    if workspace.image is not None and request.image.made_s is not None:
        workspace = replace(workspace, image=replace(workspace.image, made_s=request.image.made_s))
    resources, words = taken(workspace.resources, named(deployment_of(request.workspace)), site.settings)
    workspace = replace(workspace, resources=resources, is_spread=True, owner=owner)
    for role in request.workspace.metadata.roles if request.role_images else ():
        if len(name) + 1 + len(role.name) > MOST_NAME:
            words = f"role {role.name} of {document.workspace} has too long a name: shorten one of the two"
            return Trouble(code="invalid", message=words)
    if workspace.start_s is None:
        return Trouble(
            code="invalid",
            message=f"workspace {document.workspace} has no start: give one with --start, "
            "or submit it as best effort",
        )
    return Wish(
        caller=caller,
        account=request.account,
        document=document,
        workspace=workspace,
        zone=request.zone,
        most_price=request.most_price,
        offered_price=request.offered_price,
        notes=(words,) if words else (),
    )


def changed_wish(site: Site, live: Live, request: Modify, caller: Caller) -> Wish | Trouble:
    """A change in the words of the core. What is not asked for stays."""
    if live.document.open is not None:
        words = f"reservation {live.name} is open for an event: cancel it, and reserve again"
        return Trouble(code="conflict", message=words)
    if live.document.pieces:
        words = (
            f"reservation {live.name} is a piece of {live.document.series}, whose pieces belong together: "
            "cancel that, and reserve anew"
        )
        return Trouble(code="conflict", message=words)
    if live.document.role and (request.start_s, request.duration_s) != (None, None):
        words = (
            f"reservation {live.name} is one of the roles of {live.document.series}, which have one time: "
            "cancel them, and reserve anew"
        )
        return Trouble(code="conflict", message=words)
    workspace = live.reservation.workspace
    start_s = request.start_s
    if start_s is None:
        # A deadline lease keeps the start that it was given unless another is asked for.
        start_s = live.reservation.start_s
    resources, words = workspace.resources, ""
    if request.sizes:
        resources, words = changed(resources, request.sizes, per_node(live.document), site.settings)
    try:
        workspace = replace(
            workspace,
            resources=resources,
            is_spread=True,
            start_s=start_s,
            duration_s=request.duration_s or workspace.duration_s,
            instances=request.nodes or workspace.instances,
            finish_by_s=None,
        )
    except ValueError as error:
        return Trouble(code="invalid", message=str(error))
    owner = live.record.owner
    groups = caller.groups if caller.uid == owner.uid else ()
    whose = Caller(uid=owner.uid, user=owner.user, groups=groups, is_admin=caller.is_admin)
    return Wish(
        caller=whose,
        account=owner.account,
        document=live.document,
        workspace=workspace,
        zone=request.zone,
        notes=(words,) if words else (),
    )


def named(deployment: DeploymentSection) -> frozenset[str]:
    """The resources of which it says how much an instance needs."""
    found = {"cpus"} & deployment.model_fields_set
    if deployment.memory_mib is not None:
        found |= {"memory_mib"}
    if deployment.gpus:
        found |= {"gpus"}
    return frozenset(found)


def named_by(role: RoleSection) -> frozenset[str]:
    """The same of a role."""
    given = {"cpus": role.cpus, "memory_mib": role.memory_mib, "gpus": role.gpus or None}
    return frozenset(name for name, amount in given.items() if amount is not None)


def taken(resources: Resources, names: frozenset[str], settings: Settings) -> tuple[Resources, str]:
    """What is taken of each node for these needs, of which those named were asked for; and a sentence if
    that is more than was asked for."""
    if not names:
        return whole(resources), ""
    amounts = dict(resources.amounts)
    held = set(settings.parts)
    of_cpu_mib = settings.memory_of_cpu_mib
    if "memory_mib" in names and "memory_mib" not in held and "cpus" in held and of_cpu_mib:
        # The batch system lets no job have more memory than belongs to its processors.
        amounts["cpus"] = max(amounts.get("cpus", 0), -(-amounts.get("memory_mib", 0) // of_cpu_mib))
        held.add("memory_mib")
    missing = sorted(names - held)
    if missing:
        what = " and ".join(_WORDS.get(name, name) for name in missing)
        return whole(resources), (
            f"the batch system cannot keep {what} of a node for a reservation beside others: its nodes are "
            "its own as a whole"
        )
    step = settings.cpus_at_once
    cpus = -(-max(1, amounts.get("cpus", 0)) // step) * step
    if settings.cpu_numbers is not None:
        cpus = min((each for each in settings.cpu_numbers if each >= cpus), default=0)
        if not cpus:
            return whole(resources), (
                "the batch system has no parallel environment for so many processors of a node: its nodes "
                "are its own as a whole"
            )
    words = ""
    if cpus != resources["cpus"]:
        words = f"each of its nodes gives it {cpus} processors, the least that can be kept for what is asked"
    return part(Resources.from_mapping(amounts | {"cpus": cpus})), words


def changed(
    before: Resources, asked: dict[str, int], per_node: int, settings: Settings
) -> tuple[Resources, str]:
    """What is taken of each node if instances, of which there are so many on it, get other sizes."""
    amounts = dict(parts(before).amounts)
    names = set(asked)
    if is_part(before):
        # What was named before still is.
        names |= amounts.keys()
    amounts |= {name: amount * per_node for name, amount in asked.items()}
    return taken(Resources.from_mapping(amounts), frozenset(names), settings)


def too_large(site: Site, workspace: Workspace) -> str:
    """Why the site could not give this even if it were empty; nothing if it could."""
    timeline, wanted = site.book.timeline, parts(workspace.resources)
    unknown = timeline.layout.unknown(workspace.resources)
    if unknown:
        return texts.of_resource(unknown[0])
    huge = [name for name, amount in wanted.amounts if amount > LARGEST_AMOUNT]
    if huge:
        return texts.of_amount(wanted[huge[0]], huge[0])
    need = timeline.layout.pack(workspace.resources)
    room = sum(
        nodes.bit_count()
        for capacity, nodes in timeline.by_capacity.items()
        if timeline.layout.most(need, capacity, 1)
    )
    if room >= workspace.instances:
        return ""
    return texts.of_nodes(workspace.instances, wanted, room)


def too_much_for_pools(site: Site, workspace: Workspace) -> str:
    """Why its image could not be on so many nodes even if nothing else were there."""
    image = workspace.image
    if image is None:
        return ""
    large = site.book.pools.count_of_size(image.size_bytes)
    if large >= workspace.instances:
        return ""
    return texts.of_pools(image, large, workspace.instances)
