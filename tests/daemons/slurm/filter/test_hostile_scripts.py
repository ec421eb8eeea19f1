"""Hostile texts in a real slurmctld: others' commands are answered meanwhile, as if nothing were there."""

from __future__ import annotations

import subprocess

import pytest

from tests.daemons.slurm.filter.slurm_site import ADA, BOB, Site

OTHERS = (("sbatch", "--hold", "--wrap=hostname"), ("sinfo", "-h"), ("squeue", "-h"), ("scontrol", "ping"))
OTHERS_S = 20
"""For an answer to another user. Slurm's own time-out is 30 s in these tests."""
SCRIPTS = {
    "blanks": "#!/bin/sh\n#OUTRIDER image: x" + " " * 3_900_000 + "y\ntrue\n",
    "tabs in a word": "#!/bin/sh\n#OUTRIDER" + "\t" * 3_900_000 + "\ntrue\n",
    "newlines": "#!/bin/sh\n" + "\n" * 3_900_000,
    "metadata lines": "#!/bin/sh\n" + "#OUTRIDER image: x\n" * 200_000,
    "short comments": "#!/bin/sh\n" + "#\n" * 1_900_000,
    "nearly the word": "#!/bin/sh\n" + "#OUTRIDE\n" * 430_000,
}


@pytest.mark.parametrize("kind", SCRIPTS)
def test_others_are_answered_while_a_hostile_script_is_submitted(slurm: Site, kind: str) -> None:
    script = slurm.folder / "jobs" / "hostile.sh"
    script.write_text(SCRIPTS[kind])
    argv = slurm.command(["sbatch", "--hold", "hostile.sh"], ADA)
    environment = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(slurm.folder / "slurm.conf")}
    answers = []
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as client:
        for command in OTHERS:
            begin_s = slurm.clock.monotonic_s()
            answer = slurm.run(*command, uid=BOB)
            answers.append((answer.code, slurm.clock.monotonic_s() - begin_s < OTHERS_S))
        _, said = client.communicate(timeout=240)

    assert answers == [(0, True)] * len(OTHERS)
    assert "Socket timed out" not in said


def test_hostile_script_is_refused_with_its_line_and_the_limit(slurm: Site) -> None:
    answer = slurm.submit(SCRIPTS["blanks"])

    assert answer.code != 0
    assert "line 2: is longer than 4096 bytes: shorten it" in answer.said
