"""`outrider switch` and `outrider nodes drain`: what is asked, and what is printed of the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.cli.main import main
from outrider.service.answers.switch import SwitchStep, SwitchUse, SwitchView
from tests.unit.cli.canned import Service
from tests.unit.cli.samples import NODES

Capture = pytest.CaptureFixture[str]
DRAINED = replace(NODES, nodes=(replace(NODES.nodes[0], state="drained"),))
STEP = SwitchStep(stage=2, kind="migrate", job="4711", source="n1", target="n2", pause_s=9, state="waits")
PLANNED = SwitchView(
    state="planned", number=1, by="root", begun_s=None, ended_s=None, cost_mib=512, bound_mib=256,
    steps=(STEP, replace(STEP, stage=3, kind="run", job="4714", source="", pause_s=0,
                         state="left to the batch system")),
    asleep=("4712",), kept=("job 4713: it was moved",), explanation=("4711 leaves n1",), words="",
    is_consolidating=False, actions_left=60,
)  # fmt: skip


def test_plan_is_printed_step_by_step(service: Service, capsys: Capture) -> None:
    service.on("POST", "/v1/switch", PLANNED)

    assert main(["switch", "plan", "--fence", "4711=n2", "--explain", "4711"]) == 0

    assert service.last("POST").body == {"is_plan": True, "fences": {"4711": "n2"}, "explain": "4711"}
    assert capsys.readouterr().out.splitlines() == [
        "a switch is planned; 512 MiB are moved, by no plan fewer than 256",
        "  stage 2  migrate job 4711 n1 to n2: waits, a pause of at most about 9 s",
        "  stage 3  run job 4714 n2: left to the batch system",
        "  job 4712 stays suspended until there is room",
        "  stays: job 4713: it was moved",
        "  4711 leaves n1",
    ]


def test_run_is_no_plan_and_show_asks_for_nothing(service: Service, capsys: Capture) -> None:
    service.on("POST", "/v1/switch", replace(PLANNED, state="runs"))
    service.on("GET", "/v1/switch", replace(PLANNED, state="none"))

    assert main(["switch", "run"]) == 0
    assert main(["switch", "show"]) == 0

    assert service.last("POST").body == {"is_plan": False, "fences": {}, "explain": ""}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("switch 1 by root: runs; ")
    assert lines[-1] == "no switch yet"


def test_nodes_are_drained_with_and_without_what_runs_there(service: Service, capsys: Capture) -> None:
    service.on("POST", "/v1/switch", PLANNED)
    service.on("POST", "/v1/nodes/drain", DRAINED)

    assert main(["nodes", "drain", "n[1-2]", "--live", "--plan"]) == 0
    assert service.last("POST").body == {"is_plan": True, "drained": "n[1-2]"}
    assert main(["nodes", "drain", "n1"]) == 0
    assert service.last("POST").body == {"nodes": "n1", "is_ended": False}
    assert main(["nodes", "drain", "n1", "--undo"]) == 0
    assert service.last("POST").body == {"nodes": "n1", "is_ended": True}
    assert main(["nodes", "drain", "n1", "--plan"]) == 1
    assert main(["nodes", "drain", "n1", "--undo", "--live"]) == 1
    assert main(["switch", "plan", "--fence", "4711"]) == 1
    assert main(["switch"]) == 1

    shown, errors = capsys.readouterr()
    assert "node n1 is drained" in shown
    assert "--plan says what --live would do" in errors
    assert "--undo lets nodes take jobs again" in errors
    assert "--fence 4711: write JOB=NODE" in errors
    assert "try outrider switch plan" in errors


def test_plan_tells_as_how_much_machines_count(service: Service, capsys: Capture) -> None:
    known = SwitchUse(job="4711", node="n1", asked=200, used=4, age_s=12, counted=5, words="")
    old = replace(known, job="4712", used=None, age_s=None, counted=200, words="its use is not known yet")
    service.on("POST", "/v1/switch", replace(PLANNED, is_by_use=True, uses=(known, old)))

    assert main(["switch", "plan"]) == 0

    assert [each for each in capsys.readouterr().out.splitlines() if "uses:" in each] == [
        "  uses: job 4711 on n1 counts as 0.05 processors of 2 asked for; it used 0.04 until 12 s ago",
        "  uses: job 4712 on n1 counts as 2 processors, as asked for: its use is not known yet",
    ]
