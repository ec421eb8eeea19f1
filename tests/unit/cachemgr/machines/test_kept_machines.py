"""What jobs' machines have left on a node, and how it is removed: in users' folders, with users' rights."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cachemgr.machines.batch import kept
from cachemgr.machines.batch.kept import OTHER, KeptMachine, Removals, discard, kept_machines
from testbed.waiting import awaited

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes files of other users")
OWN = os.geteuid() or 4242


def user_folder(folder: Path, uid: int) -> Path:
    made = folder / f"outrider-{uid}"
    made.mkdir()
    if os.geteuid() == 0:
        os.chown(made, OWN, -1)
    return made


def test_machines_are_found_in_folders_of_their_users_alone(tmp_path: Path) -> None:
    mine, foreign = user_folder(tmp_path, OWN), user_folder(tmp_path, OWN + 1)
    for name in ("job-7", "job-12-3", "machine", "job-x", "job-7.new"):
        (mine / name).mkdir()
    (foreign / "job-8").mkdir()
    (tmp_path / "outrider-0").mkdir()
    (tmp_path / "outrider-5").symlink_to(mine)

    found = kept_machines(str(tmp_path))

    # The folder of OWN + 1 belongs to OWN.
    assert found == [KeptMachine(OWN, "job-12-3"[4:]), KeptMachine(OWN, "7")]
    assert [each.job for each in found] == ["12.3", "7"]


def test_machine_says_how_far_it_is_by_a_links_text_and_nothing_is_opened(tmp_path: Path) -> None:
    mine = user_folder(tmp_path, OWN)
    texts = {
        "1": "2 worker1 10.211.0.2 runs",
        "2": "2 worker1 - flies",
        "3": "0 x - runs",
        "4": "/etc/shadow",
    }
    for job, text in texts.items():
        (mine / f"job-{job}").mkdir()
        (mine / f"job-{job}" / "readiness").symlink_to(text)
    (mine / "job-5").mkdir()
    (mine / "job-5" / "readiness").write_text("1 vm1 - runs")
    # Somebody's folder that is only called like a job's.
    (mine / "job-6").symlink_to(mine / "job-1")

    found = {each.key: each.readiness for each in kept_machines(str(tmp_path))}

    assert found == {"1": "2 worker1 10.211.0.2 runs", "2": "", "3": "", "4": "", "5": "", "6": ""}


def test_user_with_many_names_hides_no_machines_but_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MOST_PASSED", 5)
    mine = user_folder(tmp_path, OWN)
    for number in range(9):
        (mine / f"job-{number}").mkdir()
        (tmp_path / f"outrider-x{number}").touch()
    found = kept_machines(str(tmp_path))

    assert len(found) == 5
    assert {each.uid for each in found} == {OWN}


@needs_root
def test_users_with_many_machines_hide_none_of_who_has_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "MOST", 6)
    for uid, count in ((1001, 9), (1002, 9), (1003, 1)):
        mine = tmp_path / f"outrider-{uid}"
        for number in range(count):
            (mine / f"job-{uid}{number}").mkdir(parents=True)
        os.chown(mine, uid, uid)
    found = [each.key for each in kept_machines(str(tmp_path))]

    assert found == ["10010", "10020", "10030", "10011", "10021", "10012"]


def test_machine_is_discarded_with_the_rights_of_its_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    for each in tmp_path.parents:
        if each.stat().st_uid == os.geteuid() and each != Path("/"):
            each.chmod(each.stat().st_mode | 0o011)
    program = tmp_path / "machine"
    program.write_text(f'#!/bin/sh\necho "$(id -u) $*" >{tmp_path}/asked\n')
    program.chmod(0o755)

    is_done = discard(KeptMachine(OWN, "7"), str(program))
    (tmp_path / "machine").write_text("#!/bin/sh\nexit 1\n")

    assert is_done
    assert (tmp_path / "asked").read_text() == f"{OWN} discard 7\n"
    assert not discard(KeptMachine(OWN, "7"), str(program))
    assert not discard(KeptMachine(OWN, "7"), str(tmp_path / "none"))


def test_machine_whose_removal_hangs_keeps_no_other_users_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WAIT_S", 0.2)
    going_on, removed = threading.Event(), []

    def remove(machine: KeptMachine, program: str) -> bool:
        removed.append(machine.key)
        return going_on.wait(60) if machine.uid == 1 else True

    def removed_in_time(uid: int, key: str) -> bool:
        return True is awaited(lambda: removals.remove(KeptMachine(uid, key)), 60)

    monkeypatch.setattr(kept, "discard", remove)
    removals = Removals(most=2)
    hanging = [removals.remove(KeptMachine(1, key)) for key in ("7", "8", "7")]
    others = [removed_in_time(uid, "9") for uid in (2, 3)]
    before = list(dict.fromkeys(removed))
    going_on.set()

    assert hanging == [None, None, None]
    assert others == [True, True]
    assert before == ["7", "9"]
    assert [removed_in_time(1, key) for key in ("7", "8")] == [True, True]
    assert [key for key in removed if key != "9"] == ["7", "8"]


def test_no_more_are_removed_at_a_time_than_there_are_places_and_what_fails_is_told_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept, "WAIT_S", 0.2)
    going_on = threading.Event()
    monkeypatch.setattr(kept, "discard", lambda machine, program: going_on.wait(60) and machine.uid != 1)
    removals = Removals(most=1)
    before = [removals.remove(KeptMachine(uid, "7")) for uid in (1, 2)]
    going_on.set()
    monkeypatch.setattr(kept, "WAIT_S", 60)

    assert before == [None, None]
    assert [removals.remove(KeptMachine(uid, "7")) for uid in (1, 1, 2)] == [False, False, True]


def test_machine_in_its_second_folder_is_kept_like_one_in_the_first(tmp_path: Path) -> None:
    """A virtual node's machine has two, and is in one of them."""
    own = tmp_path / f"outrider-{os.geteuid()}"
    for each in (own, own / "job-7", own / OTHER, own / OTHER / "job-7", own / OTHER / "job-8"):
        each.mkdir(mode=0o700)

    assert [each.job for each in kept_machines(str(tmp_path))] == ["7", "8"]
