"""A decision of the service on one screen: what is promised, or why not and what would work."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from cachemgr.base.sizes import in_words
from cachemgr.base.tables import printable
from cachemgr.base.times import span_in_words
from outrider.cli.asking.display.terminal import Paint, facts
from outrider.cli.asking.display.words import (
    When,
    image_name,
    money,
    nodes_in_words,
    short,
    slack_in_words,
)

if TYPE_CHECKING:
    from outrider.service.answers.decision import Decision
    from outrider.service.answers.events import OpenWindow
    from outrider.service.answers.images import ImageView

WORKFLOWS = {
    "slurm": "sbatch --reservation={name} --nodes={nodes} SCRIPT",
    "gridengine": "outrider submit --reservation {name} --nodes {nodes} SCRIPT",
    "embedded": "outrider submit --reservation {name} --nodes {nodes} SCRIPT",
}
"""How a job is let run in a reservation, for each batch system that has a short way."""
_PIECE = re.compile(r"\.p[0-9]+$")
MOST_REMEDIES = 8
MOST_ROLES = 64


def accepted_screen(decision: Decision, when: When, paint: Paint, head: str, following: str) -> str:
    """What was promised. `head` is the verb: is reserved, would be accepted."""
    times = ""
    if decision.start_s is not None and decision.end_s is not None:
        times = f", {when.period(decision.start_s, decision.end_s)}"
    title = f"{paint(printable(decision.name or decision.workspace), 'bold')} {paint(head, 'green')}"
    if decision.window is not None:
        times = (
            f", open from {when.clock(decision.window.from_s)} until {when.clock(decision.window.until_s)}"
        )
    lines = [f"{title}: {nodes_in_words(decision.node_count, printable(decision.nodes))}{times}"]
    shown = facts(
        [
            ("event", window_line(decision.window)),
            ("secret", decision.secret),
            ("image", image_line(decision.image)),
            ("options", _options(decision, when)),
            ("ready", _ready(decision, when)),
            ("to move", _to_move(decision)),
            ("saved", _saved(decision)),
            ("all", _occurrences(decision, when)),
            ("price", "" if decision.price is None else money(decision.price)),
            ("next", following),
        ],
        paint,
    )
    return "\n".join([*lines, shown])


def refused_screen(decision: Decision, when: When, paint: Paint, head: str, again: str) -> str:
    """Why not, and what would work. `again` is the command line with the earliest start in it."""
    title = f"{paint(printable(decision.name or decision.workspace), 'bold')} {paint(head, 'red')}"
    lines = [f"{title}: {printable(decision.reason)}"]
    earliest = ""
    if decision.earliest_start_s is not None:
        at = f"{when.clock(decision.earliest_start_s)} ({when.distance(decision.earliest_start_s)})"
        later = ""
        if decision.start_s is not None and decision.earliest_start_s > decision.start_s:
            later = f", {span_in_words(decision.earliest_start_s - decision.start_s)} later than asked for"
        earliest = f"{at}{later}\n{again}" if again else f"{at}{later}"
    remedies = [printable(each) for each in decision.remedies[:MOST_REMEDIES]]
    shown = facts(
        [
            ("image", image_line(decision.image)),
            ("options", _options(decision, when)),
            ("earliest", earliest),
            ("or" if earliest else "try", "\n".join(remedies)),
            ("offers", _offers(decision, when)),
        ],
        paint,
    )
    return "\n".join([*lines, shown])


_OFFERED = {
    "later": "later",
    "fewer-nodes": "fewer nodes",
    "shorter": "a shorter time",
    "fewer-nodes-later": "fewer nodes, later",
    "shorter-with-fewer-nodes": "a shorter time, fewer nodes",
}


def _occurrences(decision: Decision, when: When) -> str:
    """Of one that recurs: how many are accepted, and which are not. Of unlike roles: what each is called."""
    found = decision.occurrences
    kept = [each for each in found if each.result == "accepted"]
    if not kept:
        return ""
    if kept[0].role:
        return "\n".join(
            f"{printable(each.name or each.role)}: {printable(each.nodes)}" for each in kept[:MOST_ROLES]
        )
    last = f", the last {when.period(kept[-1].start_s, kept[-1].end_s)}" if len(kept) > 1 else ""
    named = f", {printable(kept[0].name)} to {printable(kept[-1].name)}" if kept[0].name else ""
    if _PIECE.search(kept[0].name):
        return f"{len(kept)} pieces{named}{last}"
    lines = [f"{len(kept)} of {len(found)} occurrences{named}{last}"]
    refused = [each for each in found if each.result != "accepted"]
    lines += [
        f"not {when.period(each.start_s, each.end_s)}: {printable(each.reason)}"
        for each in refused[:MOST_REMEDIES]
    ]
    return "\n".join(
        [*lines, *([f"and {len(refused) - MOST_REMEDIES} more"] * (len(refused) > MOST_REMEDIES))]
    )


def _options(decision: Decision, when: When) -> str:
    """Each way to carry it out: which is taken and why, and when the others could start."""
    lines = []
    are_unlike = len({each.image for each in decision.options}) > 1
    for each in decision.options:
        noun = "node" if each.node_count == 1 else "nodes"
        size = f"{each.node_count} {noun} for {span_in_words(each.duration_s)}"
        at_s = each.earliest_start_s
        start = "" if at_s is None else f"from {when.clock(at_s)}"
        if each.result == "refused":
            start = "no start is known" if at_s is None else f"earliest {when.clock(at_s)}"
        if are_unlike:
            size += f" with {printable(image_name(each.image, None))}"
        mark = "*" if each.result == "chosen" else " "
        lines.append(f"{mark} {size}, {start}: {printable(each.words)}")
    return "\n".join(lines)


def _offers(decision: Decision, when: When) -> str:
    """What would be accepted instead, each with what it is accepted by."""
    lines = []
    for each in decision.offers[:MOST_REMEDIES]:
        name = f"{printable(each.name)}  " if each.name else ""
        kind = printable(_OFFERED.get(each.kind, each.kind))
        nodes = nodes_in_words(each.node_count, printable(each.nodes))
        price = "" if each.price is None else f", for {money(each.price)}"
        lines.append(f"{name}{kind}: {nodes}, {when.period(each.start_s, each.end_s)}{price}")
    until_s = decision.offers_until_s
    if lines and until_s is not None:
        held = f"until {when.clock(until_s)} ({when.distance(until_s)})"
        protection = "" if decision.are_offers_protected else "; another user's request may take their place"
        lines.append(f"held {held}{protection}: outrider accept {printable(decision.offers[0].name)}")
    return "\n".join(lines)


def next_steps(decision: Decision, batch_system: str) -> str:
    """What to type next: to see it come about, and to use it."""
    first = next((each.name for each in decision.occurrences if each.name), decision.name)
    name, node_count = printable(first), decision.node_count
    shown = f"outrider show {shlex.quote(name)}"
    form = WORKFLOWS.get(batch_system)
    if form is None:
        return f"{shown}\noutrider watch {shlex.quote(name)} --until ready"
    steps = [shown, form.format(name=shlex.quote(name), nodes=node_count)]
    if batch_system == "gridengine":
        steps.append(
            f"{qsub_form('NUMBER', decision.environment, decision.slots)}, with the NUMBER shown then"
        )
    return "\n".join(steps)


def qsub_form(number: str, environment: str, slots: int) -> str:
    """How Grid Engine's own command has a job run in an advance reservation, on all of its nodes."""
    whole = f" -pe {printable(environment)} {slots}" if environment else ""
    return f"qsub -ar {printable(number)} -l outrider_reservation=TRUE{whole} SCRIPT"


def window_line(window: OpenWindow | None) -> str:
    """For what it waits, and how soon after it it starts."""
    if window is None:
        return ""
    events = " or ".join([*window.begins, "outrider trigger"])
    ends = f", or until {' or '.join(window.ends)}" if window.ends else ""
    within, lasts = span_in_words(window.within_s), span_in_words(window.duration_s)
    return printable(f"{events}: it starts within {within}, for {lasts}{ends}")


def image_line(image: ImageView) -> str:
    """ubuntu.qcow2, 2.1 GiB, sha256:9f86d081884c."""
    digest = f", sha256:{short(image.digest)}" if image.digest else ""
    private = ", private" if image.is_private else ""
    return f"{image_name(image.uri, image.digest)}, {in_words(image.size_bytes)}{digest}{private}"


def _ready(decision: Decision, when: When) -> str:
    if decision.ready_s is None:
        return ""
    if not decision.transfers and decision.ready_s <= when.now_s:
        return "now: the image is on all of these nodes and is kept there"
    slack = f", {slack_in_words(decision.slack_s)}" if decision.slack_s is not None else ""
    latest = decision.latest_ready_s
    more = "" if latest is None or latest == decision.ready_s else f"; at the latest {when.clock(latest)}"
    return f"about {when.clock(decision.ready_s)}{slack}{more}"


def _to_move(decision: Decision) -> str:
    if not decision.transfers:
        return "nothing"
    from outrider.cli.asking.display.staging import folded

    total_bytes = sum(each.size_bytes for each in decision.transfers)
    to = folded(each.nodes for each in decision.transfers)
    return f"{in_words(total_bytes)} to {to}"


def _saved(decision: Decision) -> str:
    if not decision.saved_bytes and not decision.nodes_with_image:
        return ""
    where = printable(decision.nodes_with_image)
    reason = (
        f": {where} {'have' if '[' in where or ',' in where else 'has'} the image, or will" if where else ""
    )
    return f"{in_words(decision.saved_bytes)}{reason}"
