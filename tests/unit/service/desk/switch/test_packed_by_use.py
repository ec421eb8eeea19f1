"""Machines packed by the processors that they use, on a twin whose nodes tell what each has had of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from outrider.rms.base import JobState
from outrider.service.answers.switch import SwitchView
from outrider.service.ports import JOB_OWNER, MachineTime, NodeReport, TellNode
from outrider.service.requests import DecideSwitch, ShowSwitch
from tests.unit.service.desk.jobs.yielding_site import SETTINGS, SETTLED_S
from tests.unit.service.desk.sandbox import ALICE, FREE
from tests.unit.service.desk.switch.halls import Halls

CPUS, MEMORY_MIB = 8, 8_192
OVERBOOKED = FREE + b"overbook: {margin: 25%, age: 2m, most: 3}\n"
CONSOLIDATING = replace(SETTINGS, consolidates=True, consolidate_every_s=30, consolidate_actions=2)


class BusyHalls(Halls):
    """Machines want processors, and get fewer where a node has fewer."""

    def __init__(self, folder: Path, **options: object) -> None:
        self.wants: dict[str, int] = {}
        """By job, how many hundredths."""
        self._had_us: dict[tuple[str, str], int] = {}
        self._waited_us: dict[tuple[str, str], int] = {}
        self._told_s: dict[str, int] = {}
        super().__init__(folder, **options)  # type: ignore[arg-type]

    def tell(self, call: TellNode) -> NodeReport:
        report, node = super().tell(call), call.node
        here = [
            job.key for job in self.rms.look().jobs if job.state is JobState.RUNNING and node in job.nodes
        ]
        wants = {key: self.wants.get(f"{key} on {node}", self.wants.get(key, 0)) for key in here}
        wanted = sum(wants.values())
        passed_s = self.now_s - self._told_s.get(node, self.now_s)
        self._told_s[node] = self.now_s
        times = []
        for key in here:
            wants_us = passed_s * 10_000 * wants[key]
            had = passed_s * 10_000 * wants[key] * CPUS * 100 // max(wanted, CPUS * 100)
            self._had_us[node, key] = self._had_us.get((node, key), 0) + had
            self._waited_us[node, key] = self._waited_us.get((node, key), 0) + wants_us - had
            times.append(
                MachineTime(
                    owner=f"{JOB_OWNER}{key}",
                    uid=ALICE.uid,
                    used_us=self._had_us[node, key],
                    waited_us=self._waited_us[node, key],
                    at_us=self.now_s * 1_000_000,
                )
            )
        return replace(report, times=tuple(times))

    def whole(self, wants: int, nodes: int = 1) -> str:
        """A machine on each node that has asked for all processors there, and uses so many hundredths."""
        key = self.machine(MEMORY_MIB, cpus=CPUS, nodes=nodes)
        self.wants[key] = wants
        return key


@contextmanager
def busy_halls(
    folder: Path, *, policies: bytes = OVERBOOKED, shared: int = 3, settings: object = CONSOLIDATING
) -> Iterator[BusyHalls]:
    found = BusyHalls(folder, nodes=2, policies=policies, shared=shared, settings=settings)
    found.sleep(SETTLED_S)
    yield found
    found.close()


def crowded(site: BusyHalls, *wants: int) -> list[str]:
    """All these on one node, whose neighbour takes jobs again."""
    site.rms.outside.drain("n2")
    keys = [site.whole(each) for each in wants]
    assert {site.at(key) for key in keys} == {("n1",)}
    site.sleep(60)
    site.rms.outside.repair("n2")
    site.sleep(10)
    return keys


def uses(found: SwitchView) -> dict[str, tuple[int | None, int, str]]:
    return {each.job: (each.used, each.counted, each.words) for each in found.uses}


def test_idle_machines_share_processors_and_a_busy_one_leaves(tmp_path: Path) -> None:
    with busy_halls(tmp_path) as site:
        idle, other, busy = crowded(site, 10, 20, 800)
        before = site.switch(DecideSwitch(explain=idle))
        site.sleep(600)

        assert before.is_by_use
        # Had and waited for, with a quarter more, and at most what was asked for.
        assert uses(before) == {idle: (10, 13, ""), other: (20, 25, ""), busy: (800, 800, "")}
        assert any(
            each.startswith("use: it has asked for 8 processors, used 0.10 ") for each in before.explanation
        )
        assert (site.at(idle), site.at(other), site.at(busy)) == (("n1",), ("n1",), ("n2",))
        shown = site.switch(ShowSwitch())
        assert (shown.state, shown.by, len(shown.steps)) == ("done", "outrider", 1)
        assert site.starts(busy) == 2, "it moved once"


def test_node_that_is_overloaded_is_relieved_within_the_budget_alone(tmp_path: Path) -> None:
    with busy_halls(tmp_path, settings=replace(CONSOLIDATING, consolidate_actions=0)) as site:
        keys = crowded(site, 10, 800)
        site.sleep(600)

        assert [site.at(key) for key in keys] == [("n1",), ("n1",)]
        assert [each.kind for each in site.switch(DecideSwitch()).steps] == ["migrate"]


def test_nobody_is_suspended_for_processors(tmp_path: Path) -> None:
    """Three busy ones, and room for two: one leaves the others, which stay together."""
    with busy_halls(tmp_path) as site:
        keys = crowded(site, 800, 800, 800)
        site.sleep(900)

        assert sorted(site.at(key) for key in keys) == [("n1",), ("n1",), ("n2",)]
        assert sum(site.starts(key) for key in keys) == 4, "one moved, once"
        assert site.switch(DecideSwitch()).steps == ()


def test_without_the_policy_machines_count_as_what_they_have_asked_for(tmp_path: Path) -> None:
    with busy_halls(tmp_path, policies=FREE, settings=SETTINGS) as site:
        crowded(site, 10, 20)
        found = site.switch(DecideSwitch())

        assert (found.is_by_use, found.uses) == (False, ())
        assert [each.kind for each in found.steps] == ["migrate"], (
            "16 processors were asked for, and 8 are there"
        )


def test_policy_says_why_it_has_no_effect_where_jobs_share_no_processors(tmp_path: Path) -> None:
    with busy_halls(tmp_path, shared=1) as site:
        site.whole(10)
        site.sleep(120)
        found = site.switch(DecideSwitch())

        assert not found.is_by_use
        assert "gives each processor to one job alone" in found.words
        assert "OverSubscribe=FORCE" in found.words


def test_use_that_is_old_counts_as_what_was_asked_for(tmp_path: Path) -> None:
    with busy_halls(tmp_path, settings=SETTINGS) as site:
        (idle,) = crowded(site, 10)
        known = uses(site.switch(DecideSwitch()))
        site.pools["n1"].is_away = True
        site.sleep(150)
        old = uses(site.switch(DecideSwitch()))

        assert known == {idle: (10, 13, "")}
        assert old[idle][:2] == (10, 800)
        assert "s ago, which is too old" in old[idle][2]


def test_use_is_measured_anew_after_a_restart(tmp_path: Path) -> None:
    with busy_halls(tmp_path, settings=SETTINGS) as site:
        (idle,) = crowded(site, 10)
        site.restart()
        site.sleep(6)
        begun = uses(site.switch(DecideSwitch()))
        site.sleep(90)
        known = uses(site.switch(DecideSwitch()))

        assert begun == {idle: (None, 800, "its use is not known yet")}
        assert known == {idle: (10, 13, "")}


def test_each_machine_of_a_job_counts_as_the_one_that_uses_the_most(tmp_path: Path) -> None:
    with busy_halls(tmp_path, settings=SETTINGS) as site:
        key = site.whole(10, nodes=2)
        site.sleep(60)
        alike = site.switch(DecideSwitch())
        site.wants[f"{key} on n2"] = 40
        site.sleep(60)
        unlike = site.switch(DecideSwitch())
        site.pools["n1"].is_away = True
        site.sleep(150)
        old = site.switch(DecideSwitch())

        assert uses(alike) == {key: (10, 13, "")}
        assert uses(unlike) == {key: (40, 50, "")}
        assert [each.node for each in unlike.uses] == ["n1,n2"]
        assert uses(old)[key][1] == 800
        assert "too old" in uses(old)[key][2]
