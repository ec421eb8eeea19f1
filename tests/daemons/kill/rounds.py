"""Rounds of killing: a service under load is killed again and again, and what it said is checked."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.daemons.kill import verdicts
from tests.daemons.kill.callers import Caller, Told
from tests.daemons.kill.origin import Origin, Source, origin
from tests.daemons.kill.victim import CLOCK, Preloaded, Victim, short_folder

MIB = 1 << 20
RATE = 4 * MIB
CALLERS = 3
FROM_NOTHING_EVERY = 10
"""One start out of so many is that of a program; the others are forked, and come sooner."""
SETTLE_S = 60.0
CALM, CALM_S = 0.1, 3.0
"""How often the service is left alone for so long: what is always dead cannot keep anything."""

SITE = f"""
link: {{rate: {RATE}, spread: 1s, reserve: at-once}}
"""


@dataclass
class Report:
    """What was done, what came of it, and what is wrong."""

    kills: Counter[str] = field(default_factory=Counter)
    told: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    starts_s: list[float] = field(default_factory=list)
    seconds: float = 0.0
    traffic: verdicts.Traffic | None = None
    wrong: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        starts = sorted(self.starts_s)
        lines = [
            f"kills: {dict(sorted(self.kills.items()))} in {self.seconds:.0f} s",
            f"told: {dict(sorted(self.told.items()))}",
            f"ends: {dict(sorted(self.ends.items()))}",
            *(f"  not met {count} times: {words}" for words, count in self.reasons.most_common(8)),
            f"start to first promise: median {starts[len(starts) // 2]:.2f} s, most {starts[-1]:.2f} s",
        ]
        if self.traffic is not None:
            lines.append(
                f"bytes sent: {self.traffic.sent_bytes} for {self.traffic.needed_bytes} "
                f"({self.traffic.ratio:.3f}), {self.traffic.resumed} answers from the middle"
            )
        return "\n".join([*lines, *self.wrong])


class Images:
    """Ever new images, and old ones again."""

    def __init__(self, place: Origin) -> None:
        self._origin = place
        self._known: list[Source] = []

    def pick(self, random: Random) -> Source:
        if self._known and random.random() < 0.6:
            return random.choice(self._known[-8:])
        name = f"image-{len(self._known)}-{random.randrange(10**9)}"
        size_bytes = random.choice((MIB // 4, MIB, 2 * MIB, 6 * MIB)) + random.randrange(1000)
        if random.random() < 0.5:
            return self._origin.served(name, size_bytes, is_solo=True)
        make = self._origin.filed if random.random() < 0.5 else self._origin.served
        self._known.append(make(name, size_bytes))
        return self._known[-1]


def campaign(
    rounds: int,
    seed: str,
    *,
    say: Callable[[str], object] = str,
    nodes: int = 2,
    is_killing_nodes: bool = True,
) -> Report:
    """Kill so often, then let everything end and look at what is left."""
    report, told = Report(), Told()
    began_s = CLOCK.monotonic_s()
    with short_folder() as folder, origin(folder / "images", rate_bytes_per_s=RATE) as place:
        preloaded = Preloaded()
        victim = Victim(folder, SITE, preloaded=preloaded, nodes=nodes)
        images = Images(place)
        callers = [Caller(number, victim, told, images.pick, seed) for number in range(CALLERS)]
        try:
            victim.init()
            _begin(victim, report, is_from_nothing=True)
            for each in callers:
                each.thread.start()
            killer = _Killer(victim, told, report, Random(seed), is_killing_nodes=is_killing_nodes)
            while report.kills.total() < rounds and not (report.wrong or told.wrong):
                killer.round()
                if report.kills.total() % 20 == 0:
                    say(f"{report.kills.total()} kills, {told.counts['accepted']} accepted")
            _settle(victim, callers, told, report)
            report.traffic = verdicts.traffic(place)
        finally:
            for each in callers:
                each.stop.set()
                each.abandon.set()
            victim.end()
            preloaded.close()
            for each in callers:
                if each.thread.ident is not None:
                    each.thread.join()
    report.told = told.counts
    report.wrong += told.wrong
    report.seconds = CLOCK.monotonic_s() - began_s
    return report


class _Killer:
    """One kill at a time, and what has to hold after it."""

    def __init__(
        self, victim: Victim, told: Told, report: Report, random: Random, *, is_killing_nodes: bool
    ) -> None:
        self._victim = victim
        self._told = told
        self._report = report
        self._random = random
        self._kinds = ["service"] * 5 + ["start"] * 2
        if is_killing_nodes:
            self._kinds += ["everything", "everything", "node"]

    def round(self) -> None:
        victim, random = self._victim, self._random
        kind = random.choice(self._kinds)
        is_calm = random.random() < CALM
        CLOCK.sleep(CALM_S if is_calm else random.uniform(0.05, 0.6))
        seen = verdicts.listed(victim)
        CLOCK.sleep(random.uniform(0.0, 0.1))
        self._kill(kind)
        self._report.kills[kind] += 1
        wrong = verdicts.unkept(victim, self._told, seen)
        if victim.pid is None:
            number = self._report.kills.total()
            _begin(victim, self._report, is_from_nothing=number % FROM_NOTHING_EVERY == 0)
        wrong += verdicts.lost(victim, self._told)
        self._report.wrong += [f"after kill {self._report.kills.total()} ({kind}): {each}" for each in wrong]

    def _kill(self, kind: str) -> None:
        victim, random = self._victim, self._random
        daemons = victim.daemons()
        if kind == "node" and daemons:
            _end(daemons[random.choice(sorted(daemons))])
            return
        if kind == "everything":
            for pid in daemons.values():
                _end(pid)
        victim.kill()
        if kind == "start":
            is_from_nothing = random.random() < 0.5
            victim.start(from_nothing=is_from_nothing)
            CLOCK.sleep(random.uniform(0.0, 1.2 if is_from_nothing else 0.6))
            victim.kill()


def _begin(victim: Victim, report: Report, *, is_from_nothing: bool) -> None:
    began_s = CLOCK.monotonic_s()
    victim.start(from_nothing=is_from_nothing)
    victim.await_ready()
    if not is_from_nothing:
        report.starts_s.append(CLOCK.monotonic_s() - began_s)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _settle(victim: Victim, callers: list[Caller], told: Told, report: Report) -> None:
    """Nobody asks any more; everything that was promised comes to its end."""
    for each in callers:
        each.stop.set()
    for each in callers:
        each.thread.join()
    report.wrong += verdicts.lost(victim, told)
    report.wrong += _soon(lambda: verdicts.unsettled(victim))
    report.wrong += _soon(lambda: [each for each in verdicts.ends(victim).wrong if "not over" in each])
    found = verdicts.ends(victim)
    report.ends, report.reasons = found.counts, found.reasons
    report.wrong += found.wrong
    report.wrong += _soon(lambda: verdicts.unsettled(victim))
    report.wrong += _soon(lambda: verdicts.pins_left(victim))
    code = victim.stop()
    if code:
        report.wrong.append(f"the service ended with {code}")
    report.wrong += victim.leftovers()
    report.wrong += [line for line in victim.last_words(1 << 30).splitlines() if "Traceback" in line]


def _soon(look: Callable[[], list[str]]) -> list[str]:
    """What is still wrong when there was time enough for it to come right."""
    until_s = CLOCK.monotonic_s() + SETTLE_S
    while (wrong := look()) and CLOCK.monotonic_s() < until_s:
        CLOCK.sleep(0.2)
    return wrong


def keep_log(victim: Victim, target: Path) -> None:
    """The service's log, for whoever wants to know why."""
    if victim.log.exists():
        target.write_bytes(victim.log.read_bytes())
