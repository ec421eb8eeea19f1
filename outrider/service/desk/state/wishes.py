"""What somebody wants, in the words of the core and of the site's policies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import tzinfo

from outrider.core.model import LeaseOwner, Workspace
from outrider.core.reservations.book import ReservationPlan
from outrider.metadata.conversion import workspace_of
from outrider.metadata.decision import Requester, rule_of
from outrider.metadata.errors import MetadataError
from outrider.metadata.policies import Policies
from outrider.service.answers import Trouble
from outrider.service.desk.state.documents import Document, document_of, stem_of
from outrider.service.desk.state.node_list import whole
from outrider.service.desk.state.open_terms import with_secret
from outrider.service.desk.state.site import Live, Site
from outrider.service.requests import Caller, Modify, Reserve


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
    workspace = replace(workspace, resources=whole(workspace.resources), owner=owner)
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
    )


def changed_wish(live: Live, request: Modify, caller: Caller) -> Wish | Trouble:
    """A change in the words of the core. What is not asked for stays."""
    if live.document.open is not None:
        words = f"reservation {live.name} is open for an event: cancel it, and reserve again"
        return Trouble(code="conflict", message=words)
    workspace = live.reservation.workspace
    start_s = request.start_s
    if start_s is None:
        # A deadline lease keeps the start that it was given unless another is asked for.
        start_s = live.reservation.start_s
    try:
        workspace = replace(
            workspace,
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
    )
