"""Grid Engine's filter of the client by itself: what a script says becomes a context, or is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins_gridengine.jsv import CLIENT, SERVER, job, module, run

jsv = module(SERVER)


def client(*lines: str) -> list[str]:
    status, answer, error = run(CLIENT, job(*lines) + b"QUIT\n")
    assert (status, error) == (0, b"")
    return answer[1:]


def test_clients_filter_carries_the_lines_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#OUTRIDER image: http://h/a\n#OUTRIDER size: 3 GiB\nsleep 1\n")
    line, state = client(f"PARAM CMDNAME {script}", "PARAM ac A=1")
    context = line.removeprefix("PARAM ac A=1,OUTRIDER=")

    assert state == "RESULT STATE CORRECT"
    assert jsv.decoded(context) == "image: http://h/a\nsize: 3 GiB"
    assert client(f"PARAM CMDNAME {script}", "PARAM b y") == ["RESULT STATE ACCEPT"]
    assert client(f"PARAM CMDNAME {tmp_path}/none") == ["RESULT STATE ACCEPT"]


@pytest.mark.parametrize("count", [2_800, 60_000])
def test_clients_filter_refuses_what_grid_engine_has_no_room_for(tmp_path: Path, count: int) -> None:
    """A line of an answer with more than 10000 bytes ends qsub with a segmentation fault."""
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n" + "#OUTRIDER image: http://h/a\n" * count)
    (refused,) = client(f"PARAM CMDNAME {script}")
    script.write_text("#!/bin/sh\n#OUTRIDER image: http://h/a\n")
    (long_context,) = client(f"PARAM CMDNAME {script}", "PARAM ac A=" + "x" * 8000)
    (long_requests,) = client("PARAM ac OUTRIDER=http://h/a", "PARAM ar 3", "PARAM l_hard a=" + "x" * 8000)

    assert "outrider: the script begins with " in refused
    assert refused.endswith("at most 4000 can be handed on: write each key once")
    assert "the context (-ac) would have 80" in long_context
    assert "the requests (-l) have 8002 bytes" in long_requests
    assert {line.split(" outrider")[0] for line in (refused, long_context, long_requests)} == {
        "RESULT STATE REJECT"
    }


def test_clients_filter_takes_no_half_of_a_line(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    mark = "#OUTRIDER image: http://h/"
    script.write_text("#" * (65_536 - len(mark) - 3) + "\n" + mark + "abcdefg\n")

    assert client(f"PARAM CMDNAME {script}") == ["RESULT STATE ACCEPT"]


def test_clients_filter_asks_for_the_queue_of_reservations_as_it_was_asked(tmp_path: Path) -> None:
    managed = "PARAM ac OUTRIDER=http://h/a"

    assert client(managed, "PARAM ar 3", "PARAM l_hard h_rt=20")[0] == (
        "PARAM l_hard h_rt=20,outrider_reservation=TRUE"
    )
    assert client(managed, "PARAM ar 3", "PARAM global_l_hard h_rt=20")[0] == (
        "PARAM global_l_hard h_rt=20,outrider_reservation=TRUE"
    )
    assert client(managed) == ["RESULT STATE ACCEPT"]
    assert client("PARAM ar 3") == ["RESULT STATE ACCEPT"]
