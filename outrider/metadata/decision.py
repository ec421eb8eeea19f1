"""May this be reserved, as far as the site's policies go? Pure: what is booked is handed in.

Best effort is never asked about. Whether nodes, links and pools allow a reservation is the
core's question; these functions answer before it is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from outrider.core.model import Workspace
from outrider.core.reservations import refusal as texts
from outrider.core.reservations.admission import Policy
from outrider.core.reservations.refusal import size
from outrider.metadata.notation.durations import HOUR_S, format_duration
from outrider.metadata.policies import Policies, RuleSection

_OTHERWISE = "ask the administrators, or submit as best effort"


@dataclass(frozen=True, kw_only=True, slots=True)
class Requester:
    """Who asks, as the service knows from the system and never from the file."""

    user: str
    groups: tuple[str, ...] = ()
    account: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRequest:
    """A reservation that somebody asks for. `finish_by_s`: it may start later than `start_s`.

    `nodes` counts what each node has to give as one, however many instances share it.
    """

    who: Requester
    workspace: str
    nodes: int
    start_s: int
    duration_s: int
    finish_by_s: int | None = None
    image_uri: str = ""
    image_digest: str = ""
    image_size_bytes: int = 0

    def __post_init__(self) -> None:
        if self.nodes < 1 or self.duration_s < 1 or self.end_s < self.start_s + self.duration_s:
            raise ValueError(
                f"workspace {self.workspace}: {self.nodes} nodes for {self.duration_s} s "
                f"between {self.start_s} and {self.end_s} are no request"
            )

    @property
    def end_s(self) -> int:
        """The end of the time in which it may take place."""
        return self.start_s + self.duration_s if self.finish_by_s is None else self.finish_by_s

    @property
    def latest_start_s(self) -> int:
        return self.end_s - self.duration_s


@dataclass(frozen=True, kw_only=True, slots=True)
class BookedUsage:
    """What is booked without the request. The two peaks are over [start_s, end_s) of the request.

    `reservations` and `node_seconds` are the user's own that have not ended.
    """

    machine_nodes: int
    peak_nodes: int = 0
    peak_nodes_of_account: int = 0
    reservations: int = 0
    node_seconds: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """`remark`: what an administrator should read in the log all the same."""

    rule: str
    remark: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRefusal:
    """`sentence` names the rule, what it does not allow, and what would be allowed."""

    rule: str
    sentence: str


def decide(
    policies: Policies, request: PolicyRequest, standing: BookedUsage, *, now_s: int
) -> Allowed | PolicyRefusal:
    """What the policies say: denials first, then the first rule that is about whoever asks."""
    who = (request.who.user, request.who.groups, request.who.account)
    for denial in policies.deny:
        if denial.is_about(*who):
            sentence = texts.of_denial(request.who.user, denial.because)
            return PolicyRefusal(rule="deny", sentence=sentence)
    rule = next((each for each in policies.rules if each.is_about(*who)), None)
    if rule is None:
        return PolicyRefusal(rule="", sentence=texts.of_no_rule(request.who.user, _OTHERWISE))
    if not rule.may_reserve:
        sentence = texts.of_rule(rule.name, rule.because or _OTHERWISE)
        return PolicyRefusal(rule=rule.name, sentence=sentence)
    excesses = [*_of_request(rule, request, now_s), *_of_user(rule, request, standing)]
    excesses += _of_machine(policies, rule, request, standing)
    if excesses:
        return PolicyRefusal(rule=rule.name, sentence=texts.of_limits(rule.name, excesses))
    return Allowed(rule=rule.name)


def core_policy(
    policies: Policies, who: Requester, standing: Callable[[PolicyRequest], BookedUsage]
) -> Policy:
    """The policies in the form in which admission asks for them.

    `standing` is handed the request and counts what is booked in the time that it may take.
    A site's own program is not asked here, because admission must not wait.
    """

    def policy(workspace: Workspace, now_s: int) -> str:
        request = request_of(workspace, who)
        answer = decide(policies, request, standing(request), now_s=now_s)
        return answer.sentence if isinstance(answer, PolicyRefusal) else ""

    return policy


def request_of(workspace: Workspace, who: Requester) -> PolicyRequest:
    """A workspace as policies look at it; it has to have a start."""
    if workspace.start_s is None:
        raise ValueError(f"workspace {workspace.name} is best effort: policies are about reservations")
    image = workspace.image
    return PolicyRequest(
        who=who,
        workspace=workspace.name,
        nodes=workspace.instances,
        start_s=workspace.start_s,
        duration_s=workspace.duration_s,
        finish_by_s=workspace.finish_by_s,
        image_uri=image.uri if image else "",
        image_digest=image.digest if image else "",
        image_size_bytes=image.size_bytes if image else 0,
    )


def _of_request(rule: RuleSection, request: PolicyRequest, now_s: int) -> list[str]:
    """In what the request alone is too much."""
    excesses = []
    ahead_s = request.latest_start_s - now_s
    if rule.ahead_s is not None and ahead_s > rule.ahead_s:
        start = "its start" if request.finish_by_s is None else "its latest start"
        lengths = (ahead_s, rule.ahead_s, ahead_s - rule.ahead_s)
        excesses.append(texts.too_early(start, *map(format_duration, lengths)))
    if rule.duration_s is not None and request.duration_s > rule.duration_s:
        excesses.append(texts.too_long(format_duration(request.duration_s), format_duration(rule.duration_s)))
    if rule.image_size_bytes is not None and request.image_size_bytes > rule.image_size_bytes:
        sizes = (size(request.image_size_bytes), size(rule.image_size_bytes))
        excesses.append(texts.too_large(request.image_uri, *sizes))
    return excesses


def _of_user(rule: RuleSection, request: PolicyRequest, standing: BookedUsage) -> list[str]:
    """In what the request is too much beside what the user has booked."""
    excesses = []
    if rule.reservations is not None and standing.reservations >= rule.reservations:
        excesses.append(texts.too_many(request.who.user, standing.reservations, rule.reservations))
    if rule.node_hours is not None:
        left_s = rule.node_hours * HOUR_S - standing.node_seconds
        needed_s = request.nodes * request.duration_s
        if needed_s > left_s:
            longest_s = max(left_s, 0) // request.nodes
            longest = format_duration(longest_s) if longest_s else ""
            duration = format_duration(request.duration_s)
            excesses.append(
                texts.too_many_node_hours(request.who.user, request.nodes, duration, rule.node_hours, longest)
            )
    return excesses


def _of_machine(
    policies: Policies, rule: RuleSection, request: PolicyRequest, standing: BookedUsage
) -> list[str]:
    """In what the request takes too much of the machine, at its busiest instant."""
    excesses = []
    shares = [
        each for each in (policies.machine_share_percent, rule.machine_share_percent) if each is not None
    ]
    if shares:
        excesses += _share("of all reservations", min(shares), standing.peak_nodes, request, standing)
    if rule.account_share_percent is not None:
        of_whom = f"of account {request.who.account}" if request.who.account else "without an account"
        excesses += _share(
            of_whom, rule.account_share_percent, standing.peak_nodes_of_account, request, standing
        )
    return excesses


def _share(
    of_whom: str, percent: int, taken: int, request: PolicyRequest, standing: BookedUsage
) -> list[str]:
    most = standing.machine_nodes * percent // 100
    if request.nodes <= max(most - taken, 0):
        return []
    return [texts.too_large_share(of_whom, percent, most, standing.machine_nodes, taken)]
