"""The next version and the one before, as the pages say, while users' jobs are of every kind there is.

`OUTRIDER_TEST_BEFORE` names the version before: a wheel, or a revision that the clone has. Without it the
short one alone runs, from a version to itself: service and nodes are exchanged all the same.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from testbed import gridengine, slurm
from testbed.batchcluster import HEAD
from testbed.bootedcluster import BootedCluster, BootedGridEngine, BootedSlurm
from testbed.wheel import built_of
from tests.daemons.installing.follow import Table, Typist, Walk
from tests.daemons.installing.grids import as_a_site_has_it
from tests.daemons.installing.machines import let_in, need_sshd, shared_of
from tests.daemons.walks.pages import GRIDENGINE, SLURM, give_archive, own_environment, table, typist
from tests.daemons.walks.people import GridQueue, Queue, SlurmQueue, UnderWay

BEFORE = "OUTRIDER_TEST_BEFORE"
FIRST_SLURM = ("Prepare the head", "Prepare the nodes", "Let Slurm know", "Start the service")
FIRST_GRID = ("Prepare the head", "Prepare the nodes", "Let Grid Engine know", "Start the service")


@pytest.fixture(scope="session")
def wheel_before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the version before."""
    named = os.environ.get(BEFORE, "")
    if not named:
        pytest.skip(f"{BEFORE} names no wheel and no revision of the version before")
    if named.endswith(".whl"):
        return Path(named)
    found = built_of(named, tmp_path_factory.mktemp("before"))
    if found is None:
        pytest.skip(f"{BEFORE}: this clone has no revision {named}")
    return found


@contextmanager
def slurm_site() -> Iterator[Queue]:
    _need(slurm.missing() or need_sshd())
    with BootedSlurm(nodes=2, shared=shared_of(Path(sys.prefix))) as cluster:
        let_in(cluster)
        yield SlurmQueue(cluster)


@contextmanager
def grid_site() -> Iterator[Queue]:
    _need(gridengine.missing() or need_sshd())
    with BootedGridEngine(nodes=2, shared=shared_of(Path(sys.prefix))) as cluster:
        as_a_site_has_it(cluster)
        let_in(cluster)
        yield GridQueue(cluster)


@pytest.mark.repeats(
    "tests/daemons/installing/test_bare_site.py"
    "::test_prolog_of_slurmctld_comes_when_it_is_wanted_and_stays_through_an_upgrade"
)
def test_jobs_of_every_kind_go_on_while_all_of_outrider_is_exchanged_on_slurm(wheel: Path) -> None:
    with slurm_site() as queue:
        install(queue, SLURM, wheel, FIRST_SLURM)
        found = exchange(queue, SLURM, "The next version", wheel, "once", is_same=True)

    assert found == AS_PROMISED


@pytest.mark.usefixtures("long")
def test_next_version_and_the_one_before_on_slurm(wheel: Path, wheel_before: Path) -> None:
    with slurm_site() as queue:
        install(queue, SLURM, wheel_before, FIRST_SLURM)
        up = exchange(queue, SLURM, "The next version", wheel, "up")
        down = exchange(queue, SLURM, "The version before", wheel_before, "down")

    assert up == down == AS_PROMISED


@pytest.mark.usefixtures("long")
def test_next_version_and_the_one_before_on_grid_engine(wheel: Path, wheel_before: Path) -> None:
    with grid_site() as queue:
        install(queue, GRIDENGINE, wheel_before, FIRST_GRID)
        up = exchange(queue, GRIDENGINE, "The next version", wheel, "up")
        down = exchange(queue, GRIDENGINE, "The version before", wheel_before, "down")

    assert up == down == AS_PROMISED


def install(queue: Queue, page: str, wheel: Path, titles: tuple[str, ...]) -> None:
    walk(queue.cluster, SLURM, wheel, "first").go("Get it")
    walk(queue.cluster, page, wheel, "first").go(*titles)


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchanged:
    """What was seen of an exchange."""

    kept_on: set[tuple[str, str]]
    """Processes of Outrider's that are those of before."""
    still_waited: bool
    """What could not begin meanwhile did not."""
    otherwise: dict[str, list[str]]
    """By kind of job, what one printed of its image where it was not its digest."""


AS_PROMISED = Exchanged(kept_on=set(), still_waited=True, otherwise={})


def exchange(
    queue: Queue, page: str, title: str, wheel: Path, name: str, *, is_same: bool = False
) -> Exchanged:
    """
    Another version, while users go on. Nothing is lost, fails, or begins without its image. Where the version
    is the same, nodes have no reason to begin anew, and are made to.
    """
    before = daemons(queue.cluster)
    jobs = UnderWay(queue, name)
    jobs.begin()
    type_ = typist(queue.cluster)

    def and_submit(prompt: str, line: str) -> CompletedProcess[str]:
        done = type_(prompt, line)
        if is_same and "nodes deploy" in line:
            for node in queue.cluster.nodes:
                queue.cluster.units(node, "restart", "cachemgr")
        jobs.more()
        return done

    walk(queue.cluster, page, wheel, name, and_submit).go(title)

    kept_on, still_waited = before & daemons(queue.cluster), jobs.still_wait()
    jobs.go_on()
    return Exchanged(kept_on=kept_on, still_waited=still_waited, otherwise=jobs.otherwise())


def daemons(cluster: BootedCluster) -> set[tuple[str, str]]:
    """The processes of Outrider's."""
    units = {HEAD: "outriderd", **dict.fromkeys(cluster.nodes, "cachemgr")}
    show = ["systemctl", "show", "--property=MainPID"]
    return {(host, cluster.run(host, [*show, unit]).stdout) for host, unit in units.items()}


def walk(cluster: BootedCluster, page: str, wheel: Path, name: str, type_: Typist | None = None) -> Walk:
    archive = give_archive(cluster, wheel, name)
    # What either version says at which command is its own affair here.
    screens = dict.fromkeys(Walk(page, typist(cluster), Table(), "head").lines(), "")
    words = table(archive, {}, own_environment())
    return Walk(page, type_ or typist(cluster), Table(words=words, screens=screens), shell_at="head")


def _need(lacking: str | None) -> None:
    if lacking is not None:
        if os.environ.get("CI"):
            pytest.fail(lacking)
        pytest.skip(lacking)
