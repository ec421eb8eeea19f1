"""What Grid Engine's submit filter answers to jobs whose script is to run in a virtual machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.plugins.gridengine.jsv import SERVER, module

jsv = module(SERVER)
WANTED = "PARAM ac OUTRIDER=image=http://h/a;run=vm;boot=debian"
MEMORY = "PARAM l_hard h_rt=60,mem_free=1G"
PLACE = "PARAM cwd /srv/ada"


def answered(*lines: str, config: Path = Path("/nowhere")) -> list[str]:
    conversation = jsv.Conversation(jsv.Site(str(config)), lambda: 0)
    for line in ("START", *lines, "BEGIN"):
        conversation.hear(line.encode())
    answer: list[str] = conversation.answer()
    return answer


def test_script_is_put_into_a_machine_with_the_memory_that_was_asked_for() -> None:
    answer = answered(WANTED, MEMORY, PLACE)

    assert "ENV ADD OUTRIDER_MACHINE run=vm,memory=1024,boot=debian" in answer
    # QEMU's own memory is beside the guest's: 1024 + 256.
    assert "PARAM l_hard h_rt=60,mem_free=1280M" in answer
    assert "PARAM ckpt outrider_machine" in answer
    assert "PARAM r y" not in answer
    assert answer[-1] == "RESULT STATE CORRECT"


def test_machine_that_may_be_suspended_may_be_run_again() -> None:
    assert "PARAM r y" in answered(f"{WANTED};preemptible=suspend", MEMORY, PLACE)


def test_arrays_run_in_machines_that_are_not_saved() -> None:
    answer = answered(WANTED, MEMORY, PLACE, "PARAM t_max 3")

    assert any(line.startswith("ENV ADD OUTRIDER_MACHINE ") for line in answer)
    assert not any("ckpt" in line for line in answer)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([PLACE], "say how much memory"),
        ([PLACE, "PARAM l_hard mem_free=1M"], "say how much memory"),
        ([PLACE, "PARAM l_hard mem_free=many"], "say how much memory"),
        ([PLACE, "PARAM l_hard mem_free=1G,mf=2G"], "say how much memory"),
        ([PLACE, "PARAM l_hard h_vmem=1G,mem_free=1G"], "h_vmem limits QEMU itself"),
        ([MEMORY], "-cwd or -wd"),
        ([PLACE, MEMORY, "PARAM b y"], "leave out -b y"),
        ([PLACE, MEMORY, "PARAM pe_name mpi"], "leave out -pe"),
        ([PLACE, MEMORY, "PARAM ckpt mine"], "leave out -ckpt"),
        ([PLACE, MEMORY, "PARAM notify y"], "by which a machine is suspended"),
        ([PLACE, "PARAM l_hard s_rt=60,mem_free=1G"], "by which a machine is suspended"),
        ([PLACE, "PARAM l_hard mem_free=1G,x=" + "y" * 9000], "its requests have more than 8000 bytes"),
    ],
)
def test_what_a_machine_cannot_give_is_refused(lines: list[str], words: str) -> None:
    (line,) = answered(WANTED, *lines)

    assert line.startswith("RESULT STATE REJECT outrider: ")
    assert words in line


def test_array_in_machines_cannot_be_suspended_and_is_refused() -> None:
    (line,) = answered(f"{WANTED};preemptible=suspend", MEMORY, PLACE, "PARAM t_max 2")

    assert line.startswith("RESULT STATE REJECT outrider: ")
    assert "an array's machines cannot be suspended" in line


@pytest.mark.parametrize("more", ["scratch=1GiB", "network-rate=1MB", "disk-rate=1MB", "lease=interactive"])
def test_what_only_slurms_machines_have_is_refused_and_not_ignored(more: str) -> None:
    (line,) = answered(f"{WANTED};{more}", MEMORY, PLACE)

    assert line.startswith(f"RESULT STATE REJECT outrider: {more.partition('=')[0]!r} is not a key")


def test_site_names_its_environments_of_one_node_and_may_have_no_machines(tmp_path: Path) -> None:
    config = tmp_path / "jsv.json"
    config.write_text(json.dumps({"machine_environments": ["smp"]}))
    is_taken = answered(WANTED, MEMORY, PLACE, "PARAM pe_name smp", config=config)[-1]
    config.write_text(json.dumps({"machines": False}))
    (refused,) = answered(WANTED, MEMORY, PLACE, config=config)

    assert is_taken == "RESULT STATE CORRECT"
    assert "has no virtual machines" in refused


def test_jobs_of_environments_of_several_nodes_have_machines_that_are_not_saved(tmp_path: Path) -> None:
    config = tmp_path / "jsv.json"
    config.write_text(json.dumps({"machine_environments": ["smp"], "cluster_environments": ["mpi"]}))
    taken = answered(WANTED, MEMORY, PLACE, "PARAM pe_name mpi", config=config)
    (saved,) = answered(f"{WANTED};preemptible=suspend", MEMORY, PLACE, "PARAM pe_name mpi", config=config)
    (other,) = answered(WANTED, MEMORY, PLACE, "PARAM pe_name make", config=config)

    assert "ENV ADD OUTRIDER_MACHINE run=vm,memory=1024,boot=debian" in taken
    assert not any("ckpt" in line for line in taken)
    assert "machines on several nodes cannot be suspended here: write preemptible=requeue" in saved
    assert "leave out -pe, or use one of smp, mpi" in other


def test_nobody_else_says_what_machine_a_script_runs_in() -> None:
    forged = "ENV ADD OUTRIDER_MACHINE run=vm,memory=1"

    assert answered(forged) == ["ENV DEL OUTRIDER_MACHINE", "RESULT STATE CORRECT"]
    assert "ENV DEL OUTRIDER_MACHINE" in answered(forged, "PARAM ac OUTRIDER=http://h/a")
    assert "ENV ADD OUTRIDER_MACHINE run=vm,memory=1024,boot=debian" in answered(
        forged, WANTED, MEMORY, PLACE
    )
