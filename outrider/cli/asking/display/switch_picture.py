"""A switch as a picture: nodes downwards, time to the right, what was done to each machine in colours."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outrider.service.answers.switch import SwitchStep, SwitchView

WIDE, LEFT, RIGHT, TOP, BOTTOM = 900, 70, 20, 64, 44
LANE, GAP = 22, 10
MOST_TICKS = 10
COLOURS = {
    "runs": ("#D9E2EC", "runs"),
    "suspend": ("#E69F00", "saves its memory"),
    "saved": ("#F7E7C1", "is saved"),
    "move": ("#0072B2", "is saved if it runs, and carried"),
    "return": ("#009E73", "waits for its start, and reads its memory"),
}
"""Okabe and Ito's, which everybody can tell apart."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineBar:
    """What a job's machine does on a node."""

    node: str
    job: str
    begin_s: int
    end_s: int
    kind: str


def bars(found: SwitchView) -> list[MachineBar]:
    """All of them, from the switch's beginning to its end; or to the last that is known of it."""
    assert found.begun_s is not None
    known = [each for step in found.steps for each in (step.asked_s, step.done_s, step.back_s) if each]
    end_s = max(found.ended_s or 0, found.begun_s + 1, *known)
    jobs: dict[str, list[SwitchStep]] = {}
    for step in found.steps:
        if step.kind != "run" and step.asked_s is not None:
            jobs.setdefault(step.job, []).append(step)
    return [bar for steps in jobs.values() for bar in _of_job(steps, found.begun_s, end_s)]


def _of_job(steps: Sequence[SwitchStep], begun_s: int, end_s: int) -> Iterator[MachineBar]:
    """Of all its machines: those that stay where they are while another moves are saved, too."""
    job, at_s, kind = steps[0].job, begun_s, "saved" if steps[0].kind == "resume" else "runs"
    nodes = _nodes(steps[0].source)

    def each_of(places: Iterable[str], from_s: int, until_s: int, what: str) -> Iterator[MachineBar]:
        return (MachineBar(node=place, job=job, begin_s=from_s, end_s=until_s, kind=what) for place in places)

    for step in steps:
        assert step.asked_s is not None
        done_s = step.done_s or end_s
        yield from each_of(nodes, at_s, step.asked_s, kind)
        if step.kind == "suspend":
            yield from each_of(nodes, step.asked_s, done_s, "suspend")
            at_s, kind = done_s, "saved"
            continue
        back_s, sources, targets = step.back_s or end_s, _nodes(step.source), _nodes(step.target)
        is_moved = step.source != step.target
        if is_moved:
            stays = [place for place in targets if place in sources]
            yield from each_of(stays, step.asked_s, done_s, "saved" if step.kind == "resume" else "suspend")
            moved = [place for place in dict.fromkeys((*sources, *targets)) if place not in stays]
            yield from each_of(moved, step.asked_s, done_s, "move")
        yield from each_of(targets, done_s if is_moved else step.asked_s, back_s, "return")
        at_s, nodes, kind = back_s, targets, "runs"
    yield from each_of(nodes, at_s, end_s, kind)


def _nodes(text: str) -> list[str]:
    return text.split(",")


def picture(found: SwitchView) -> str:
    """The whole as an SVG file."""
    drawn = [bar for bar in bars(found) if bar.end_s > bar.begin_s]
    begun_s = found.begun_s or 0
    last_s = max((bar.end_s for bar in drawn), default=begun_s + 1) - begun_s
    lanes = _lanes(drawn)
    tops, at = dict[tuple[str, str], int](), TOP
    body: list[str] = []
    for node, jobs in lanes.items():
        height = LANE * len(jobs)
        body.append(_text(LEFT - 8, at + height / 2 + 4, node, "end"))
        body.append(_box(LEFT, at, WIDE - LEFT - RIGHT, height, "#F8F8F8", ""))
        for place, job in enumerate(jobs):
            tops[node, job] = at + LANE * place
        at += height + GAP

    def x_of(at_s: int) -> float:
        return LEFT + (WIDE - LEFT - RIGHT) * (at_s - begun_s) / last_s

    for bar in drawn:
        left, wide = x_of(bar.begin_s), x_of(bar.end_s) - x_of(bar.begin_s)
        words = f"job {bar.job} {COLOURS[bar.kind][1]} on {bar.node}: {bar.end_s - bar.begin_s} s"
        body.append(_box(left, tops[bar.node, bar.job] + 2, wide, LANE - 4, COLOURS[bar.kind][0], words))
        if wide > 8 * len(bar.job) + 6:
            colour = "#FFFFFF" if bar.kind in ("move", "return") else "#222222"
            body.append(_text(left + wide / 2, tops[bar.node, bar.job] + 15, bar.job, "middle", colour))
    step_s = next(each for each in _STEPS_S if last_s / each <= MOST_TICKS)
    for tick_s in range(0, last_s + 1, step_s):
        x = x_of(begun_s + tick_s)
        body.append(
            f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{at}" stroke="#BBB" stroke-width="0.5"/>'
        )
        body.append(_text(x, at + 14, str(tick_s), "middle"))
    body.append(_text(WIDE - RIGHT, at + 32, "seconds since the switch began", "end"))
    title = f"switch {found.number} by {found.by}: {found.state}, {last_s} s"
    lines = [_text(LEFT, 20, title, "start", "#000000", ' font-weight="bold"'), *_legend(), *body]
    inside = "\n".join(lines)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {at + BOTTOM}" width="{WIDE}" '
        f'height="{at + BOTTOM}" font-family="sans-serif" font-size="12">\n'
        f'<rect width="100%" height="100%" fill="#FFFFFF"/>\n{inside}\n</svg>\n'
    )


_STEPS_S = tuple(base * 10**power for power in range(7) for base in (1, 2, 5))


def _lanes(drawn: Sequence[MachineBar]) -> dict[str, list[str]]:
    """By node, the jobs that it has at any time: each in a lane of its own."""
    found: dict[str, list[str]] = {}
    for bar in sorted(drawn, key=lambda bar: (len(bar.node), bar.node, bar.begin_s, bar.job)):
        jobs = found.setdefault(bar.node, [])
        if bar.job not in jobs:
            jobs.append(bar.job)
    return found


def _legend() -> Iterator[str]:
    x = float(LEFT)
    for colour, words in COLOURS.values():
        yield _box(x, 34, 12, 12, colour, "")
        yield _text(x + 17, 44, words, "start")
        x += 34 + 6.1 * len(words)


def _box(x: float, y: float, wide: float, high: float, colour: str, words: str) -> str:
    inside = f"<title>{html.escape(words)}</title>" if words else ""
    shape = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}"'
    return f'<rect {shape} fill="{colour}">{inside}</rect>'


def _text(x: float, y: float, words: str, anchor: str, colour: str = "#222222", more: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}"{more}>'
        f"{html.escape(words)}</text>"
    )
