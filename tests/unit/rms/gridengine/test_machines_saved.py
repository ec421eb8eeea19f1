"""Jobs of Grid Engine in virtual machines: what their context and requests say of them."""

from __future__ import annotations

import pytest

from outrider.rms.gridengine import context, seeing, submitting
from outrider.rms.gridengine.parsing import Detail, GridTask
from outrider.rms.gridengine.settings import GridEngineSettings
from outrider.rms.saved import SavedMachine

SAVED = SavedMachine(node="n2", limit_s=600, run_s=1000, asked_s=1250)


def detail(*, checkpoint: str = context.CHECKPOINT, memory: str = "1280M", saved: str = "") -> Detail:
    found = {context.METADATA: "image=http://h/a;run=vm"}
    if saved:
        found[context.MACHINE] = saved
    return Detail(
        number="7", user="ada", uid=1, submitted_s=900, reservation=0, checkpoint=checkpoint,
        requests=(("h_rt", "600"), ("mem_free", memory)), context=found,
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
