"""`outrider sim savings` on what a real sacct prints."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.sim.workload.savings.reading import read_accounting
from tests.daemons.slurm.accounting.conftest import SOON_S
from tests.daemons.slurm.filter.slurm_site import Site

COLUMNS = "JobID,User,Group,Account,JobName,Partition,Comment,Submit,Start,End,NNodes,NodeList"


def ended(slurm: Site, count: int) -> str:
    """What sacct prints when so many jobs have ended."""
    by_s = slurm.clock.monotonic_s() + SOON_S
    while True:
        answer = slurm.run("sacct", "-P", "-X", "-a", "-S", "2020-01-01", "-o", COLUMNS, uid=0)
        lines = [line for line in answer.printed.splitlines() if "Unknown" not in line]
        if len(lines) == 1 + count:
            return answer.printed
        assert slurm.clock.monotonic_s() < by_s, f"{answer}\n{slurm.logs()}"
        slurm.clock.sleep(0.2)


def test_jobs_that_ran_are_replayed(slurm: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, comment in (("train", "a|b"), ("train", ""), ("web", "")):
        slurm.submit("#!/bin/sh\nsleep 1\n", f"--job-name={name}", f"--comment={comment}", "-t1", "-n4")
    held = slurm.submit("#!/bin/sh\n", "--begin=now+1hour", "--job-name=train").job
    printed = ended(slurm, 3)
    slurm.run("scancel", held, uid=0)
    log, images = tmp_path / "log", tmp_path / "map.csv"
    log.write_text(printed)
    images.write_text("field,pattern,image,size\nname,train,torch.sif,1GB\n")
    found = read_accounting(str(log))
    assert main(["sim", "savings", str(log), "--map", str(images), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)

    assert [each.said["name"] for each in found.jobs] == ["train", "train", "web"]
    assert [each.nodes for each in found.jobs] == [("n1",)] * 3
    assert found.jobs[0].said["comment"] == "a|b"
    # Each of both fetched it; what the first one brought is there for the second.
    assert answer["whole"]["before"]["sent_bytes"] == 2 * 10**9
    assert answer["whole"]["after"]["sent_bytes"] == 10**9
    assert answer["jobs_without_image"] == 1
