"""What completes a look at the batch system: which queues are ours, users' shares, a site's own program."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from outrider.core.besteffort.jobs.schedule import CONSERVATIVE_PLACES, MOST_PLACES
from outrider.core.model import Resources
from outrider.metadata.external import ProgramError, ProgramResult, program_runner
from outrider.rms.base import JobState, RmsJob, RmsNode, Sight, Unavailable
from outrider.rms.slurm.fields import shares_in
from outrider.rms.twin import Twin
from outrider.service.daemon.configuration.jobs import ScheduleSection
from outrider.service.daemon.world.turns import TurnsLook, queues_in, text_of, unknown_queues


class SetClock:
    """A clock that stands still."""

    def now_s(self) -> int:
        return 1_000_000

    def monotonic_s(self) -> float:
        return 0.0

    def sleep(self, seconds: float) -> None: ...


class Sharing(Twin):
    """A batch system that keeps account of users' shares, if it answers."""

    told: dict[str, int] | None = None

    def shares(self) -> dict[str, int]:
        if self.told is None:
            raise Unavailable("nobody answers")
        return self.told


def job(key: str, queue: str = "batch", state: JobState = JobState.HELD) -> RmsJob:
    return RmsJob(
        key=key,
        user="ada",
        uid=1001,
        state=state,
        resources=Resources.of(cpus=1),
        limit_s=60,
        submitted_s=int(key),
        queue=queue,
    )


JOBS = (job("7"), job("8"), job("9", queue="other"), job("10", state=JobState.RUNNING), job("11"))
SIGHT = Sight(at_s=1_000_000, nodes=(), jobs=JOBS, reservations=(), queues=("batch", "other"))


def nobody(command: Sequence[str], question: bytes, limit_s: int) -> ProgramResult:
    raise AssertionError("no program is to be asked")


def section(folder: Path, **more: object) -> ScheduleSection:
    return ScheduleSection.model_validate({"queues": ["batch"], "file": f"{folder}/queues", **more})


def looked(found: ScheduleSection, run: object = nobody, told: dict[str, int] | None = None) -> Sight:
    rms = Sharing([RmsNode(name="n1", capacity=Resources.of(cpus=1))], clock=SetClock())
    rms.told = told
    return TurnsLook(found, rms, run, lambda: 0.0)(SIGHT)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "is_handed_back"),
    [
        (None, True),
        ("", True),
        ("[]", True),
        ('{"outrider starts": 7}', True),
        (text_of(()), True),
        (text_of(("batch",)), False),
        (text_of(("other",)), True),
    ],
)
def test_queues_are_ours_as_long_as_the_file_names_them(
    tmp_path: Path, text: str | None, *, is_handed_back: bool
) -> None:
    if text is not None:
        (tmp_path / "queues").write_text(text)

    assert looked(section(tmp_path)).is_handed_back is is_handed_back


def test_file_of_queues_is_read_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "queues").write_text(text_of(("all.q", "*")))

    assert queues_in(tmp_path / "queues") == ("all.q", "*")
    assert queues_in(tmp_path / "none") == ()


def test_program_is_told_of_the_jobs_that_wait_in_our_queues_and_puts_them_in_order(tmp_path: Path) -> None:
    (tmp_path / "queues").write_text(text_of(("batch",)))
    asked = []

    def run(command: Sequence[str], question: bytes, limit_s: int) -> ProgramResult:
        asked.append((command, json.loads(question), limit_s))
        return ProgramResult(exit_code=0, stdout=b"11 7\n", stderr=b"")

    found = looked(section(tmp_path, order="program", program="/opt/order", program_limit="3s"), run)

    assert (found.order, found.order_trouble) == (("11", "7"), "")
    assert [(command, limit_s) for command, _, limit_s in asked] == [(["/opt/order"], 3)]
    assert [each["job"] for each in asked[0][1]["jobs"]] == ["7", "8", "11"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exit 3", "exit code 3"),
        ("echo 7 7", "something else than keys"),
        ("echo 7 4711", "something else than keys"),
        ("sleep 60", "in time"),
    ],
)
def test_program_that_fails_is_told_of_and_changes_no_order(tmp_path: Path, script: str, words: str) -> None:
    (tmp_path / "queues").write_text(text_of(("batch",)))
    program = tmp_path / "order"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    run = program_runner(SystemClock().monotonic_s)

    found = looked(section(tmp_path, order="program", program=str(program), program_limit="1s"), run)

    assert found.order == ()
    assert words in found.order_trouble
    assert "in the order of their submission" in found.order_trouble


def test_program_that_is_not_there_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "queues").write_text(text_of(("batch",)))

    def run(command: Sequence[str], question: bytes, limit_s: int) -> ProgramResult:
        raise ProgramError("/opt/order cannot be started")

    found = looked(section(tmp_path, order="program", program="/opt/order"), run)

    assert "cannot be started" in found.order_trouble


@pytest.mark.parametrize(
    ("told", "shares", "words"),
    [
        ({"ada": 500_000, "bob": 250_000}, (("ada", 500_000), ("bob", 250_000)), ""),
        ({}, (), "does not tell users' shares"),
        (None, (), "nobody answers"),
    ],
)
def test_shares_are_the_batch_systems(
    tmp_path: Path, told: dict[str, int] | None, shares: tuple[tuple[str, int], ...], words: str
) -> None:
    (tmp_path / "queues").write_text(text_of(("batch",)))

    found = looked(section(tmp_path, order="shares"), told=told)

    assert found.shares == shares
    assert words in found.order_trouble
    assert bool(found.order_trouble) is bool(words)


def test_shares_are_read_as_sshare_prints_them() -> None:
    printed = b"|1.000000\nroot|1.000000\n|0.5\n ada|0.250000\nada|0.750000\nbob|0\neve|\nx|nan\n"

    assert shares_in(printed) == {"root": 1_000_000, "ada": 750_000, "bob": 0}


def test_queue_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    known = section(tmp_path)
    strange = section(tmp_path, queues=["batch", "nightly"])

    assert unknown_queues(known, SIGHT) == ""
    assert "no nightly: it has batch, other" in unknown_queues(strange, SIGHT)


def test_as_many_places_are_taken_as_are_asked_for(tmp_path: Path) -> None:
    settings = section(tmp_path, backfilling=MOST_PLACES).settings

    assert settings is not None
    assert settings.rules.places == MOST_PLACES > CONSERVATIVE_PLACES
    with pytest.raises(ValueError, match=f"from 1 to {MOST_PLACES}"):
        section(tmp_path, backfilling=MOST_PLACES + 1)
