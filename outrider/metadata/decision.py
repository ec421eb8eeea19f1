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
class BookedUsage:
    """What is booked without the request. The two peaks are over the time in which it may take place.

    `reservations` and `node_seconds` are the user's own that have not ended.
    """

    machine_nodes: int
    peak_nodes: int = 0
    peak_nodes_of_account: int = 0
    reservations: int = 0
    node_seconds: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Allowed:
    """`remark` is what the log is told."""

    rule: str
    remark: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyRefusal:
    """`sentence` names the rule, what it does not allow, and what would be allowed. `remark` is what the log
    is told."""

    rule: str
    sentence: str
    remark: str = ""


def decide(
    policies: Policies, workspace: Workspace, who: Requester, standing: BookedUsage, *, now_s: int
) -> Allowed | PolicyRefusal:
    """What the policies say: denials first, then the first rule that is about whoever asks.

    A workspace's instances are its nodes, however many share what each node has to give.
    """
    whose = (who.user, who.groups, who.account)
    for denial in policies.deny:
        if denial.is_about(*whose):
            return PolicyRefusal(rule="deny", sentence=texts.of_denial(who.user, denial.because))
    rule = next((each for each in policies.rules if each.is_about(*whose)), None)
    if rule is None:
        return PolicyRefusal(rule="", sentence=texts.of_no_rule(who.user, _OTHERWISE))
    if not rule.may_reserve:
        sentence = texts.of_rule(rule.name, rule.because or _OTHERWISE)
        return PolicyRefusal(rule=rule.name, sentence=sentence)
    excesses = [*_of_request(rule, workspace, now_s), *_of_user(rule, workspace, who, standing)]
    excesses += _of_machine(policies, rule, workspace.instances, who, standing)
    if excesses:
        return PolicyRefusal(rule=rule.name, sentence=texts.of_limits(rule.name, excesses))
    return Allowed(rule=rule.name)


def rule_of(policies: Policies, who: Requester) -> str:
    """The name of the rule that is about somebody: the class of what they reserve."""
    whose = (who.user, who.groups, who.account)
    return next((rule.name for rule in policies.rules if rule.is_about(*whose)), "")


def core_policy(policies: Policies, who: Requester, standing: Callable[[int, int], BookedUsage]) -> Policy:
    """The policies in the form in which admission asks for them.

    `standing` is handed the time in which a workspace may take place and counts what is booked then.
    A site's own program is not asked here, because admission must not wait.
    """

    def policy(workspace: Workspace, now_s: int) -> str:
        answer = decide(policies, workspace, who, standing(*_window(workspace)), now_s=now_s)
        return answer.sentence if isinstance(answer, PolicyRefusal) else ""

    return policy


def _window(workspace: Workspace) -> tuple[int, int]:
    """The time in which it may take place."""
    if workspace.start_s is None:
        raise ValueError(f"workspace {workspace.name} is best effort: policies are about reservations")
    end_s = workspace.finish_by_s
    return workspace.start_s, workspace.start_s + workspace.duration_s if end_s is None else end_s


def _of_request(rule: RuleSection, workspace: Workspace, now_s: int) -> list[str]:
    """In what the request alone is too much."""
    excesses = []
    image, latest_start_s = workspace.image, _window(workspace)[1] - workspace.duration_s
    ahead_s = latest_start_s - now_s
    if rule.ahead_s is not None and ahead_s > rule.ahead_s:
        start = "its start" if workspace.finish_by_s is None else "its latest start"
        lengths = (ahead_s, rule.ahead_s, ahead_s - rule.ahead_s)
        excesses.append(texts.too_early(start, *map(format_duration, lengths)))
    if rule.duration_s is not None and workspace.duration_s > rule.duration_s:
        lasts, most = format_duration(workspace.duration_s), format_duration(rule.duration_s)
        excesses.append(texts.too_long(lasts, most))
    most_bytes = rule.image_size_bytes
    if most_bytes is not None and image is not None and image.size_bytes > most_bytes:
        excesses.append(texts.too_large(image.uri, size(image.size_bytes), size(most_bytes)))
    return excesses


def _of_user(rule: RuleSection, workspace: Workspace, who: Requester, standing: BookedUsage) -> list[str]:
    """In what the request is too much beside what the user has booked."""
    excesses = []
    if rule.reservations is not None and standing.reservations >= rule.reservations:
        excesses.append(texts.too_many(who.user, standing.reservations, rule.reservations))
    if rule.node_hours is not None:
        left_s = rule.node_hours * HOUR_S - standing.node_seconds
        nodes, duration_s = workspace.instances, workspace.duration_s
        if nodes * duration_s > left_s:
            longest_s = max(left_s, 0) // nodes
            longest = format_duration(longest_s) if longest_s else ""
            duration = format_duration(duration_s)
            excesses.append(texts.too_many_node_hours(who.user, nodes, duration, rule.node_hours, longest))
    return excesses


def _of_machine(
    policies: Policies, rule: RuleSection, nodes: int, who: Requester, standing: BookedUsage
) -> list[str]:
    """In what the request takes too much of the machine, at its busiest instant."""
    excesses = []
    shares = [
        each for each in (policies.machine_share_percent, rule.machine_share_percent) if each is not None
    ]
    if shares:
        excesses += _share("of all reservations", min(shares), standing.peak_nodes, nodes, standing)
    if rule.account_share_percent is not None:
        of_whom = f"of account {who.account}" if who.account else "without an account"
        taken = standing.peak_nodes_of_account
        excesses += _share(of_whom, rule.account_share_percent, taken, nodes, standing)
    return excesses


def _share(of_whom: str, percent: int, taken: int, nodes: int, standing: BookedUsage) -> list[str]:
    most = standing.machine_nodes * percent // 100
    if nodes <= max(most - taken, 0):
        return []
    return [texts.too_large_share(of_whom, percent, most, standing.machine_nodes, taken)]
