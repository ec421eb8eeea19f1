"""Jobs of Grid Engine in virtual machines: what their context and requests say of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.core.model import Resources
from outrider.rms.base import RmsJob, RmsNode, Sight
from outrider.rms.gridengine import GridEngineCommands, context, seeing, submitting
from outrider.rms.gridengine.parsing import Detail, GridTask
from outrider.rms.gridengine.reserving import leading
from outrider.rms.gridengine.settings import GridEngineSettings
from outrider.rms.gridengine.snapshot import Snapshot
from outrider.rms.saved import SavedMachine
from tests.unit.rms.gridengine.test_stopping import AskedCommands

SAVED = SavedMachine(node="n2", limit_s=600, run_s=1000, asked_s=1250)


def detail(
    *,
    checkpoint: str = context.CHECKPOINT,
    memory: str = "1280M",
    saved: str = "",
    priority: int = 0,
    kept: str = "",
) -> Detail:
    found = {context.METADATA: "image=http://h/a;run=vm"}
    if kept:
        found[context.PRIORITY] = kept
    if saved:
        found[context.MACHINE] = saved
    return Detail(
        number="7", user="ada", uid=1, submitted_s=900, reservation=0, checkpoint=checkpoint,
        requests=(("h_rt", "600"), ("mem_free", memory)), context=found, priority=priority,
    )  # fmt: skip


def test_what_is_written_of_a_saved_machine_is_read_again() -> None:
    name, _, text = context.machine_word(SAVED).partition("=")

    assert name == context.MACHINE
    assert context.saved_machine(detail(saved=text)) == SAVED
    assert context.saved_machine(detail(saved="n2:1:2")) is None
    assert context.saved_machine(detail(saved=text, checkpoint="theirs")) is None


@pytest.mark.parametrize(("text", "count"), [("1280M", 1280 << 20), ("2G", 2 << 30), ("5k", 5000), ("x", 0)])
def test_memory_is_read_in_grid_engines_units(text: str, count: int) -> None:
    assert context.machine_bytes(detail(memory=text)) == count


def test_machine_goes_on_with_what_was_left_and_its_other_requests() -> None:
    requests = {"mem_free": "1280M", "h_rt": "600"}

    assert submitting.time_left(SAVED, requests) == ["-l", "h_rt=350,mem_free=1280M"]
    assert submitting.time_left(None, requests) == []


def test_job_with_a_saved_machine_may_run_where_that_is() -> None:
    settings = GridEngineSettings(account="outrider")
    rows = [GridTask(number="7", state="hRq")]
    text = context.machine_word(SAVED).partition("=")[2]
    (job,) = seeing.jobs({"7": detail(saved=text)}, rows, {"7"}, {}, {}, settings)

    assert (job.eligible, job.can_save, job.machine_bytes) == (("n2",), True, 1280 << 20)


HOSTS = [RmsNode(name=f"n{number}", capacity=Resources.of(cpus=number)) for number in range(1, 5)]


def seen(
    state: str = "hRq", *, node: str = "n2", queue: str = "", wished: tuple[str, ...] = (), **changes: object
) -> RmsJob:
    """A job with a saved machine, on nodes of 1 to 4 processors."""
    text = context.machine_word(replace(SAVED, node=node)).partition("=")[2]
    found = replace(detail(saved=text), **changes)  # type: ignore[arg-type]
    rows = [GridTask(number="7", state=state, start_s=1300, queues=(queue,) if queue else ())]
    settings = GridEngineSettings(account="outrider", environments=((2, "each2"),))
    (job,) = seeing.jobs({"7": found}, rows, {"7"}, {}, {"7": wished} if wished else {}, settings, HOSTS)
    return job


def test_waiting_machine_is_where_it_was_saved_and_could_be_where_its_job_has_room() -> None:
    job = seen(environment="each2", slots=2)

    assert (job.saved_on, job.elsewhere) == (("n2",), ("n3", "n4"))


def test_running_machine_is_on_its_node_alone_wherever_it_was_saved_before() -> None:
    job = seen("r", queue="all.q@n3")

    assert (job.nodes, job.saved_on, job.elsewhere) == (("n3",), (), ("n1", "n2", "n4"))


def test_machine_goes_only_where_its_user_allows_and_nowhere_from_a_reservation() -> None:
    assert seen(wished=("n1", "n2")).elsewhere == ("n1",)
    assert seen(reservation=5).elsewhere == ()


def test_place_that_a_user_has_made_up_is_none() -> None:
    job = seen(node="n9")

    assert (job.saved_on, job.elsewhere) == ((), ())


@pytest.mark.parametrize(
    ("priority", "goes_first", "more"),
    [
        (0, True, ["-ac", "OUTRIDER_PRIORITY=0", "-p", "1024"]),
        (-7, True, ["-ac", "OUTRIDER_PRIORITY=-7", "-p", "1024"]),
        (5, True, []),
        (0, False, []),
    ],
)
def test_machine_that_a_plan_moves_comes_first_there(
    priority: int, goes_first: bool, more: list[str]
) -> None:
    found = leading.led_elsewhere(SAVED, detail(priority=priority), "n4", goes_first=goes_first)

    assert found == ["-ac", "OUTRIDER_MACHINE_SAVED=n4:600:1000:1250", *more]


@pytest.mark.parametrize(
    ("kept", "priority", "given"),
    [("0", 1024, ["-p", "0"]), ("-7", 1024, ["-p", "-7"]), ("900", 1024, ["-p", "0"]), ("-7", 3, [])],
    ids=["none", "its own", "one that its user has made up", "another since"],
)
def test_job_that_runs_has_its_own_priority_again(kept: str, priority: int, given: list[str]) -> None:
    asked = AskedCommands()
    found = detail(priority=priority, kept=kept)
    for job in (seen(), seen("r", queue="all.q@n3")):
        sight = Sight(at_s=1300, nodes=(), jobs=(job,), reservations=())
        snapshot = Snapshot(sight=sight, details={"7": found}, instances=(), advances=(), guards=())
        leading.give_back_priority(GridEngineCommands(asked, variables={"PATH": "/usr/bin"}), snapshot)

    assert asked.last(9) == [["qalter", *given, "-dc", "OUTRIDER_PRIORITY", "7"]]
