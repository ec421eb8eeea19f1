"""Suspension before a reservation and what follows: in time, one disk at a time, nothing lost."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.board import BestEffortRun, Yielding
from outrider.core.besteffort.suspension import (
    BYTES_PER_MIB,
    DiskQueue,
    Segment,
    SegmentShare,
    SuspensionRules,
    plan_run,
)
from outrider.core.leases.admission import HourShare
from outrider.core.model import Node, Resources, Workspace
from outrider.core.nodes.timeline import SiteTimeline
from outrider.core.reservations.admission import Rejected
from outrider.core.reservations.book import ReservationPlan
from outrider.core.scheduler import Decided, LeaseRules, Scheduler
from outrider.sim.setup import Setup
from tests.amount import examples

MEMORY_MIB = 20
OVERHEAD_S = 20
"""What writing, or reading, one instance of that much memory takes in these tests."""


def costly(**changes: object) -> SuspensionRules:
    given: dict[str, object] = {"disk_bytes_per_s": BYTES_PER_MIB, **changes}
    return SuspensionRules(**given)  # type: ignore[arg-type]


def site(cpus: tuple[int, ...] = (1,), rules: SuspensionRules | None = None, **changes: object) -> Scheduler:
    given: dict[str, object] = {
        "has_images": False,
        "backfilling": Backfilling.GREEDY,
        "suspension": costly() if rules is None else rules,
        **changes,
    }
    nodes = tuple(
        Node(name=f"n{n}", capacity=Resources.of(cpus=count, memory_mib=1000)) for n, count in enumerate(cpus)
    )
    return Setup(**given).scheduler(nodes)  # type: ignore[arg-type]


def workspace(
    name: str, duration_s: int, start_s: int | None = None, *, instances: int = 1, cpus: int = 1
) -> Workspace:
    return Workspace(
        name=name,
        instances=instances,
        resources=Resources.of(cpus=cpus, memory_mib=MEMORY_MIB),
        duration_s=duration_s,
        start_s=start_s,
    )


def started(scheduler: Scheduler, *wanted: Workspace, now_s: int = 0) -> list[BestEffortRun]:
    for each in wanted:
        assert scheduler.submit(each)
    runs = scheduler.schedule(now_s)
    for run in runs:
        if run.start_s == now_s:
            scheduler.queue.begin(run, now_s)
    return runs


def reserve(
    scheduler: Scheduler, start_s: int, *, now_s: int, name: str = "reservation", **more: int
) -> Decided:
    return scheduler.reserve(workspace(name, 40, start_s, **more), now_s)


def spans(run: BestEffortRun) -> list[tuple[int, int, int, int]]:
    return [(each.start_s, each.end_s, each.resume_s, each.suspend_s) for each in run.segments]


def test_a_run_is_written_just_before_the_reservation_and_read_after_it() -> None:
    scheduler = site()
    [run] = started(scheduler, workspace("run", 200))

    answer = reserve(scheduler, 100, now_s=10)

    assert isinstance(answer.admission, ReservationPlan)
    assert [moved.name for moved in answer.moved] == ["run/0"]
    assert spans(run) == [(0, 100, 0, OVERHEAD_S), (140, 280, OVERHEAD_S, 0)]
    assert sum(segment.useful_s for segment in run.segments) == 200


def test_a_reservation_that_starts_just_when_the_run_can_be_written_is_accepted() -> None:
    scheduler = site()
    [run] = started(scheduler, workspace("run", 200))

    answer = reserve(scheduler, 50 + OVERHEAD_S, now_s=50)

    assert isinstance(answer.admission, ReservationPlan)
    assert spans(run)[0] == (0, 70, 0, OVERHEAD_S)


def test_a_reservation_that_starts_before_the_run_can_be_written_is_refused_with_the_first_start() -> None:
    scheduler = site()
    [run] = started(scheduler, workspace("run", 200))

    answer = reserve(scheduler, 50 + OVERHEAD_S - 1, now_s=50)

    assert isinstance(answer.admission, Rejected)
    assert answer.admission.earliest_start_s == 50 + OVERHEAD_S
    assert scheduler.what_if(workspace("other", 40, 69), 50) == answer.admission
    assert spans(run) == [(0, 200, 0, 0)]


def test_a_reservation_that_starts_too_soon_for_one_node_gets_another() -> None:
    scheduler = site(cpus=(1, 1))
    [run] = started(scheduler, workspace("run", 200))

    answer = reserve(scheduler, 50, now_s=50)

    assert isinstance(answer.admission, ReservationPlan)
    assert [chosen.node for chosen in answer.admission.fits] == [1]
    assert spans(run) == [(0, 200, 0, 0)]


def test_nobody_is_held_back_where_suspending_takes_no_time() -> None:
    scheduler = site(rules=SuspensionRules())
    [run] = started(scheduler, workspace("run", 200))

    answer = reserve(scheduler, 50, now_s=50)

    assert isinstance(answer.admission, ReservationPlan)
    assert spans(run) == [(0, 50, 0, 0), (90, 240, 0, 0)]


def test_one_disk_writes_three_runs_one_after_the_other_and_so_needs_three_times_the_notice() -> None:
    scheduler = site(cpus=(3,))
    runs = started(scheduler, *(workspace(f"run-{n}", 200) for n in range(3)))

    too_soon = reserve(scheduler, 50 + 3 * OVERHEAD_S - 1, now_s=50, cpus=3)
    in_time = reserve(scheduler, 50 + 3 * OVERHEAD_S, now_s=50, cpus=3)

    assert isinstance(too_soon.admission, Rejected)
    assert isinstance(in_time.admission, ReservationPlan)
    written = sorted(each for run in runs for each in run.segments[0].disk)
    assert written == [(0, 50, 20), (0, 70, 20), (0, 90, 20)]
    assert all(run.segments[0].end_s == 110 for run in runs)


def test_disks_that_write_everything_at_once_need_the_notice_once() -> None:
    scheduler = site(cpus=(3,), rules=costly(is_serialised=False))
    started(scheduler, *(workspace(f"run-{n}", 200) for n in range(3)))

    assert isinstance(reserve(scheduler, 69, now_s=50, cpus=3).admission, Rejected)
    assert isinstance(reserve(scheduler, 70, now_s=50, cpus=3).admission, ReservationPlan)


def test_what_is_being_written_for_one_reservation_is_written_whole_when_another_comes() -> None:
    scheduler = site()
    [run] = started(scheduler, workspace("run", 200))
    reserve(scheduler, 100, now_s=0)
    before = run.segments[0]

    answer = reserve(scheduler, 150, now_s=90, name="second")

    assert isinstance(answer.admission, ReservationPlan)
    assert run.segments[0] == before
    assert sum(segment.useful_s for segment in run.segments) == 200
    assert all(segment.start_s >= 190 for segment in run.segments[1:])


def test_a_reservation_ahead_of_a_planned_suspension_moves_it_ahead() -> None:
    scheduler = site()
    [run] = started(scheduler, workspace("run", 200))
    reserve(scheduler, 100, now_s=0)

    reserve(scheduler, 55, now_s=10, name="second")

    assert spans(run)[0] == (0, 55, 0, OVERHEAD_S)
    assert [each[:2] for each in spans(run)[1:]] == [(140, 325)]
    assert sum(segment.useful_s for segment in run.segments) == 200


def test_who_turns_out_not_to_be_in_the_way_is_not_suspended() -> None:
    """The youngest moves first, but then a wider one must move too, and leaves it room enough."""
    scheduler = site(cpus=(4,))
    narrow_old, wide, young = started(
        scheduler, workspace("old", 200), workspace("wide", 200, cpus=2), workspace("young", 200)
    )

    answer = reserve(scheduler, 100, now_s=0, cpus=2)

    assert isinstance(answer.admission, ReservationPlan)
    assert spans(narrow_old) == [(0, 200, 0, 0)]
    assert spans(young) == [(0, 200, 0, 0)]
    assert len(wide.segments) == 2


def test_the_youngest_make_way_first() -> None:
    scheduler = site(cpus=(2,), rules=SuspensionRules())
    old, young = started(scheduler, workspace("old", 200), workspace("young", 200))

    answer = reserve(scheduler, 100, now_s=10)

    assert answer.moved == (young,)
    assert len(old.segments) == 1


def test_what_may_not_be_suspended_keeps_reservations_away_once_it_runs() -> None:
    scheduler = site(rules=SuspensionRules(is_allowed=False))
    started(scheduler, workspace("run", 200))

    answer = reserve(scheduler, 100, now_s=10)

    assert isinstance(answer.admission, Rejected)
    assert answer.admission.earliest_start_s == 200


@pytest.mark.parametrize("makes_way_for_all", [False, True])
def test_best_effort_is_torn_around_other_best_effort_only_if_told_to(makes_way_for_all: bool) -> None:
    scheduler = site(
        cpus=(1, 1),
        rules=SuspensionRules(makes_way_for_all=makes_way_for_all),
        backfilling=Backfilling.RESERVING,
    )
    started(scheduler, workspace("running", 50))
    [promised] = started(scheduler, workspace("promised", 100, instances=2))
    runs = started(scheduler, workspace("long", 80))

    assert promised.start_s == 50
    if makes_way_for_all:
        [long] = runs
        assert spans(long) == [(0, 50, 0, 0), (150, 180, 0, 0)]
    else:
        assert runs == []


def test_what_is_suspended_goes_on_elsewhere_if_that_is_sooner_and_it_may() -> None:
    """Its own node is free again at 500; moving 20 MiB at 1 MiB/s brings it to the other by 120."""
    rules = costly(is_migrating=True, migration_bytes_per_s=BYTES_PER_MIB)
    scheduler = site(cpus=(1, 1), rules=rules, yielding=Yielding.SITE_ORDER)
    [run, _] = started(scheduler, workspace("run", 200), workspace("other", 110))

    answer = scheduler.reserve(workspace("reservation", 400, 100), 0)

    assert answer.moved == (run,)
    assert spans(run) == [(0, 100, 0, OVERHEAD_S), (120, 260, OVERHEAD_S, 0)]
    assert [segment.shares[0].node for segment in run.segments] == [0, 1]
    assert sum(segment.useful_s for segment in run.segments) == 200


def test_what_may_not_move_waits_for_its_node() -> None:
    scheduler = site(cpus=(1, 1))
    [run] = started(scheduler, workspace("run", 200))
    scheduler.book.available &= 1

    scheduler.reserve(workspace("reservation", 400, 100), 0)

    assert [segment.shares[0].node for segment in run.segments] == [0, 0]
    assert run.segments[1].start_s == 500


def table_with(taken: list[list[tuple[int, int]]], *, is_tidy: bool) -> SiteTimeline:
    nodes = [Node(name=f"n{number}", capacity=Resources.of(cpus=1)) for number in range(len(taken))]
    table = SiteTimeline(nodes, is_tidy=is_tidy)
    for node, spans in enumerate(taken):
        for start_s, end_s in spans:
            table.reserve(node, 1, start_s, end_s)
    return table


def random_gaps(random: Random) -> list[tuple[int, int]]:
    taken: list[tuple[int, int]] = []
    at_s = 0
    for _ in range(random.randint(0, 6)):
        start_s = at_s + random.randint(1, 60)
        at_s = start_s + random.randint(1, 30)
        taken.append((start_s, at_s))
    return taken


def test_a_planned_run_fits_its_gaps_and_does_all_its_work_in_segments_worth_it() -> None:
    planned = 0
    for seed in range(examples(1500)):
        random = Random(seed)
        # Of one of two kinds of tables, which tell in ways of their own when whole nodes are free.
        table = table_with([random_gaps(random), random_gaps(random)], is_tidy=seed % 2 == 0)
        lanes = [DiskQueue(), DiskQueue()]
        rules = costly(is_serialised=random.random() < 0.5, least_run_s=random.choice([1, 5, 20]))
        shares = tuple(SegmentShare(node, 1, 1) for node in range(random.randint(1, 2)))
        work_s, overhead_s = random.randint(1, 150), random.choice([0, 3, 8])
        start_s = random.randint(0, 40)

        segments = plan_run(table, lanes, shares, start_s, work_s, rules, overhead_s)

        if segments is None:
            continue
        planned += 1
        assert sum(segment.useful_s for segment in segments) == work_s
        assert segments[0].start_s == start_s
        for index, segment in enumerate(segments):
            assert all(table.rows[share.node].fits(1, segment.start_s, segment.end_s) for share in shares)
            assert (segment.resume_s >= overhead_s) if index else not segment.resume_s
            if index < len(segments) - 1:
                assert segment.suspend_s >= overhead_s
                assert segment.useful_s >= min(rules.least_run_s, work_s)
                work_s -= segment.useful_s
        assert_ordered(segments)
    assert planned > examples(500)


def assert_ordered(segments: tuple[Segment, ...]) -> None:
    for before, after in pairwise(segments):
        assert before.end_s <= after.start_s


def test_a_lane_serves_one_thing_at_a_time_as_late_or_as_early_as_it_can() -> None:
    """Against a lane of seconds, each of which is free or not."""
    for seed in range(examples(800)):
        random = Random(seed)
        lane, seconds = DiskQueue(), [False] * 200
        for _ in range(random.randint(0, 6)):
            at_s, length_s = random.randint(0, 90), random.randint(1, 12)
            if not any(seconds[at_s : at_s + length_s]):
                lane.take(at_s, length_s)
                seconds[at_s : at_s + length_s] = [True] * length_s
        length_s, at_s = random.randint(1, 15), random.randint(0, 110)

        free = [start for start in range(150) if not any(seconds[start : start + length_s])]

        assert lane.earliest_start(at_s, length_s) == min(start for start in free if start >= at_s)
        latest = [start for start in free if start + length_s <= at_s]
        if latest:
            assert lane.latest_start(at_s, length_s) == max(latest)
        else:
            assert lane.latest_start(at_s, length_s) < 0


def test_an_end_that_is_called_safe_leaves_room_for_everything_whenever_it_is() -> None:
    for seed in range(examples(800)):
        random = Random(seed)
        lane = DiskQueue()
        taken: list[tuple[int, int]] = []
        for _ in range(random.randint(0, 8)):
            at_s, length_s = random.randint(0, 150), random.randint(1, 15)
            if all(at_s + length_s <= start or end <= at_s for start, end in taken):
                lane.take(at_s, length_s)
                taken.append((at_s, at_s + length_s))
        from_s = random.randint(0, 60)
        lengths = [random.randint(1, 15) for _ in range(random.randint(1, 5))]

        safe_s = lane.safe_by(from_s, lengths)

        end_s = safe_s + random.choice([0, random.randint(0, 80)])
        for length_s in random.sample(lengths, len(lengths)):
            begin_s = lane.latest_start(end_s, length_s)
            assert begin_s >= from_s, f"seed {seed}"
            lane.take(begin_s, length_s)


@pytest.mark.parametrize(
    ("backfilling", "start_s"), [(Backfilling.GREEDY, None), (Backfilling.RESERVING, 100)]
)
def test_nobody_starves_who_is_promised_a_place(backfilling: Backfilling, start_s: int | None) -> None:
    """Every 50 s something narrow comes that runs for 100 s, so that one of two nodes is always busy."""
    scheduler = site(cpus=(1, 1), rules=SuspensionRules(is_allowed=False), backfilling=backfilling)
    started(scheduler, workspace("narrow-0", 100))
    started(scheduler, workspace("wide", 50, instances=2))
    for now_s in range(50, 1500, 50):
        begun = [run for run in scheduler.board.runs.values() if run.has_begun]
        for run in [run for run in begun if run.end_s == now_s]:
            scheduler.queue.finish(run, now_s)
        scheduler.submit(workspace(f"narrow-{now_s}", 100))
        scheduler.schedule(now_s)
        for run in [run for run in scheduler.board.runs.values() if run.start_s == now_s]:
            scheduler.queue.begin(run, now_s)
            if run.workspace.name == "wide":
                assert now_s == start_s
                return

    assert start_s is None


def test_who_runs_is_looked_at_only_where_a_reservation_could_come_too_soon() -> None:
    """What is held from a reservation and given back is noted as freed. Buckets are hours."""
    soon, late, refused = site(), site(), site()
    for scheduler in (soon, late, refused):
        started(scheduler, workspace("run", 9000))

    assert isinstance(reserve(late, 3600, now_s=100).admission, ReservationPlan)
    assert isinstance(reserve(soon, 3599, now_s=100).admission, ReservationPlan)
    assert isinstance(reserve(refused, 110, now_s=100).admission, Rejected)

    assert (late.book.timeline.freed, soon.book.timeline.freed, refused.book.timeline.freed) == (0, 1, 1)


def test_no_nodes_are_chosen_for_what_the_policy_refuses() -> None:
    scheduler = site(leases=LeaseRules(admission=(HourShare(50),)))
    asked: list[str] = []

    def choice(plan: ReservationPlan, now_s: int) -> ReservationPlan:
        asked.append(plan.workspace.name)
        return plan

    scheduler.choice = choice
    refused = scheduler.reserve(workspace("long", 3600, 7200), 0)
    accepted = scheduler.reserve(workspace("short", 1800, 7200), 0)

    assert isinstance(refused.admission, Rejected)
    assert isinstance(accepted.admission, ReservationPlan)
    assert asked == ["short"]
