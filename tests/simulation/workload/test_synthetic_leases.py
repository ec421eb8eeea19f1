"""The workload of gang leases for speed comparisons."""

import pytest

from outrider.sim.workload.synthetic import synthetic_leases


def test_it_has_the_leases_that_were_asked_for() -> None:
    trace = synthetic_leases(200, 10, nodes=16, seed=3)

    kinds = [one.workspace.is_best_effort for one in trace.submissions]
    assert (kinds.count(True), kinds.count(False), len(trace.nodes)) == (200, 10, 16)
    assert all(one.workspace.is_parallel for one in trace.submissions)
    assert {one.workspace.image.uri for one in trace.submissions if one.workspace.image} == {
        f"image-{number}" for number in range(1, 7)
    }


@pytest.mark.parametrize("load", [0.5, 0.9])
def test_work_really_done_is_the_load_times_what_the_nodes_can_do(load: float) -> None:
    trace = synthetic_leases(1000, 0, nodes=8, load=load, seed=1)

    work = sum(one.workspace.instances * one.run_s for one in trace.submissions)
    assert work / (8 * trace.submissions[-1].at_s) == pytest.approx(load, rel=0.01)


def test_leases_run_half_to_all_of_what_they_asked_for() -> None:
    shares = [one.run_s / one.workspace.duration_s for one in synthetic_leases().submissions]

    assert 0.5 <= min(shares) < 0.52
    assert 0.98 < max(shares) <= 1


def test_reservations_give_notice() -> None:
    later = [
        (one.workspace.start_s or 0) - one.at_s
        for one in synthetic_leases().submissions
        if not one.workspace.is_best_effort and one.at_s > 0
    ]

    assert 3_600 <= min(later) <= max(later) <= 4 * 3_600


def test_without_images_nothing_else_changes() -> None:
    bare = synthetic_leases(50, 5, has_images=False)

    assert {one.workspace.image for one in bare.submissions} == {None}
    assert len(bare.submissions) == 55


@pytest.mark.parametrize(("best_effort", "nodes"), [(-1, 8), (0, 8), (1, 0)])
def test_workload_without_leases_or_nodes_is_refused(best_effort: int, nodes: int) -> None:
    with pytest.raises(ValueError, match="needs leases and nodes"):
        synthetic_leases(best_effort, 0, nodes)


def test_load_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a load of 0\.0"):
        synthetic_leases(load=0.0)
