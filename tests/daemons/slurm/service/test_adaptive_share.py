"""The share of reservations that adapts, on a real Slurm: nobody waits, then many do, then nobody again.

Nothing but users' requests and jobs reaches the site meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from outrider_client.answers import Decision
from outrider_client.wishes import WorkspaceText
from testbed.site import OutriderSite
from testbed.slurm import HEAD
from tests.daemons.reservations import wait_reservation
from tests.daemons.slurm.service.conftest import (
    NODES,
)
from tests.daemons.slurm.service.policed import policed

LOWEST, START, HIGHEST, STEP = 10, 50, 90, 10
POLICIES = """version: 1
rules: [{{name: all}}]
leases:
  adaptive: {{booked: 1000, waiting: 1000, lowest: {lowest}%, start: {start}%, highest: {highest}%,
    step: {step}%, every: {every_s}s, memory: {memory_s}s}}
"""
SAID = re.compile(
    r"their share went from (\d+) to (\d+) %, because .* an hour of a node is worth \S+ and costs \S+"
)
LOGGED = re.compile(r"share of reservations has moved.* before=(\d+) after=(\d+)")
LOG = "/var/log/testbed/outriderd.log"
CROWD = 12
LOOK_S = 1.5
"""Between two looks at what is explained: half of the shortest time between two moves."""
MB = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How fast the share moves, and how long each of the three times lasts."""

    every_s: int
    memory_s: int
    quiet_s: int
    crowded_s: int
    after_s: int
    job_s: int
    """How long a job of the crowd runs."""
    wishes_s: int
    """Between two requests for reservations."""
    notice_s: int
    """How long before their start they come: with many jobs, longer than a job may run."""


SHORT = Pace(
    every_s=3, memory_s=12, quiet_s=14, crowded_s=40, after_s=45, job_s=600, wishes_s=200, notice_s=20
)
TWENTY_MINUTES = Pace(
    every_s=30, memory_s=120, quiet_s=240, crowded_s=480, after_s=480, job_s=10, wishes_s=30, notice_s=80
)


@contextmanager
def steered(request: pytest.FixtureRequest, pace: Pace) -> Iterator[OutriderSite]:
    """Four nodes under such a policy."""
    text = POLICIES.format(
        lowest=LOWEST, start=START, highest=HIGHEST, step=STEP, every_s=pace.every_s, memory_s=pace.memory_s
    )
    with policed(request, text) as made:
        yield made


@dataclass
class Users:
    """Who asks for reservations and hands in jobs, and what was answered and explained."""

    site: OutriderSite
    pace: Pace
    workspace: WorkspaceText
    anchor: str
    """A reservation that is asked about all the time."""
    explained: list[tuple[int, int]] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    wishes: int = 0
    wish_s: float = 0.0
    """When the next one is due."""
    probes: list[Decision] = field(default_factory=list)
    """What a large request would be answered at the end of each time."""
    moves: list[tuple[int, int]] = field(default_factory=list)
    """Those that the service wrote into its log until then."""

    def live(self, seconds: int, *, is_crowded: bool = False) -> int:
        """Let so much time pass; the share in the end."""
        clock = self.site.cluster.clock
        now_s = clock.monotonic_s()
        until_s, jobs_s = now_s + seconds, now_s
        while (now_s := clock.monotonic_s()) < until_s:
            if is_crowded and now_s >= jobs_s:
                jobs_s = now_s + min(self.pace.job_s, 40)
                self._hand_in()
            if now_s >= self.wish_s:
                self.wish_s = now_s + self.pace.wishes_s
                self._wish()
            self._listen()
            clock.sleep(LOOK_S)
        # At least a third of some hour of the site, and two thirds at most.
        self.probes.append(
            self.site.service().plan(self.workspace, nodes=NODES, start="now+3h", duration="40m")
        )
        return self.explained[-1][1] if self.explained else START

    def _hand_in(self) -> None:
        waiting = self.site.cluster.run(HEAD, ["squeue", "-h", "-r", "-tPD", "-o%A"]).stdout.split()
        if len(waiting) < CROWD:
            self.site.submit(
                f"#!/bin/sh\nsleep {self.pace.job_s}\n", "-t1", "--exclusive", f"--array=1-{CROWD + NODES}"
            )

    def _wish(self) -> None:
        """One node for a short time, every third time two for a minute."""
        self.wishes += 1
        nodes, duration_s = (2, 60) if self.wishes % 3 == 0 else (1, 20)
        answer = self.site.service().reserve(
            self.workspace, nodes=nodes, start=f"now+{self.pace.notice_s}s", duration=f"{duration_s}s"
        )
        if answer.result == "accepted":
            self.accepted.append(answer.name)

    def _listen(self) -> None:
        """Note a share that `outrider explain` tells of for the first time."""
        found = SAID.search(self.site.told("explain", self.anchor))
        if found is not None:
            move = int(found[1]), int(found[2])
            if self.explained[-1:] != [move]:
                self.explained.append(move)


def lived_through(site: OutriderSite, pace: Pace) -> tuple[Users, list[int]]:
    """The three times, and the share at the end of each; then all that was promised is over."""
    image = site.image("small.qcow2", 1 * MB)
    text = f"version: 1\nmetadata: {{name: small, image: {{uri: '{image.uri}', digest: '{image.digest}'}}}}\n"
    workspace = WorkspaceText(text + "deployment: {nodes: 1, duration: 10m}\n")
    anchor = site.service().reserve(workspace, start="now+5h", duration="60s")
    users = Users(site, pace, workspace, anchor.name)
    shares = [users.live(pace.quiet_s), users.live(pace.crowded_s, is_crowded=True)]
    site.cluster.run(HEAD, ["scancel", "--partition=main", "--user=ada"])
    shares.append(users.live(pace.after_s))
    users.moves = logged(site)
    for name in users.accepted:
        wait_reservation(site, name, "ended", "failed", "cancelled")
    site.service().cancel(anchor.name)
    return users, shares


def logged(site: OutriderSite) -> list[tuple[int, int]]:
    """Every move that the service wrote into its log."""
    return [(int(before), int(after)) for before, after in LOGGED.findall(site.cluster.read(HEAD, LOG))]


def check_moves(site: OutriderSite, users: Users) -> None:
    """Within the limits, a step at a time, each from where the last one ended, and explained to who asks."""
    moves = users.moves

    assert moves, site.logs()
    assert moves[0][0] == START
    assert all(LOWEST <= after <= HIGHEST and abs(after - before) == STEP for before, after in moves)
    assert [after for _, after in moves[:-1]] == [before for before, _ in moves[1:]]
    # Those before there was a reservation to ask about, and one after the last look, went unheard.
    first = moves.index(users.explained[0])
    assert first <= 2
    assert users.explained == moves[first:][: len(users.explained)]
    assert len(moves) - first - len(users.explained) <= 1


def check_answers(users: Users) -> None:
    """The same request is accepted while nobody waits, and refused by the share while many do."""
    quiet, crowded, _ = users.probes

    assert quiet.result == "accepted", quiet
    assert (crowded.result, crowded.cause) == ("refused", "policy"), crowded
    assert SAID.search(crowded.reason), crowded


def check_promises(site: OutriderSite, users: Users) -> None:
    assert users.accepted
    for name in users.accepted:
        found = site.service().show(name)
        assert found.reservation.state == "ended", found
        assert found.receipt is not None
        assert found.receipt.is_met, found


@pytest.mark.repeats(
    "tests/unit/service/desk/reservations/test_lease_policies.py"
    "::test_the_share_falls_while_jobs_wait_and_says_so"
)
def test_the_share_follows_those_who_wait_within_its_limits(request: pytest.FixtureRequest) -> None:
    with steered(request, SHORT) as site:
        users, (quiet, crowded, after) = lived_through(site, SHORT)

        assert quiet >= START + 2 * STEP
        assert crowded <= START - 2 * STEP
        assert after > crowded
        check_moves(site, users)
        check_answers(users)
        check_promises(site, users)


@pytest.mark.long
def test_twenty_minutes_without_a_hand_on_it(request: pytest.FixtureRequest) -> None:
    with steered(request, TWENTY_MINUTES) as site:
        users, (quiet, crowded, after) = lived_through(site, TWENTY_MINUTES)

        assert quiet == HIGHEST
        assert crowded == LOWEST
        assert after >= START
        check_moves(site, users)
        check_answers(users)
        check_promises(site, users)
