"""The submit filter inside a real slurmctld."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.daemons.slurm.filter.conftest import able
from tests.daemons.slurm.filter.slurm_site import ADA, BOB, PLUGINS, SLURM_USER, Site, loader, site

HEAD = "#!/bin/sh\n"
IMAGE = "#OUTRIDER image: http://h/a.qcow2\n"
NONE = ("(null)", "", None)
YEAR_S = 365 * 86400
CHANGES = [
    "StartTime=now",
    "Comment=x",
    "Comment=",
    "AdminComment=x",
    "ReservationName=",
    "ReqNodeList=n1",
    "ExcNodeList=n1",
]


def record(slurm: Site, key: str) -> dict[str, object]:
    """What the service will read of a job, after the sentence."""
    words, brace, rest = slurm.job(key)["AdminComment"].partition('{"outrider":1')
    assert words.startswith("outrider: ")
    found = json.loads(brace + rest)
    assert isinstance(found, dict)
    return found


def is_held(slurm: Site, key: str) -> bool:
    seen = slurm.job(key)
    eligible = seen["EligibleTime"]
    ahead_s = int(eligible) - int(seen["SubmitTime"]) if eligible.isdigit() else 0
    return seen["JobState"] == "PENDING" and abs(ahead_s - YEAR_S) < 60


def test_job_with_an_image_is_marked_and_held(slurm: Site) -> None:
    answer = slurm.submit(HEAD + IMAGE + "#OUTRIDER size: 2GiB\nhostname\n")

    assert record(slurm, answer.job) == {"outrider": 1, "metadata": "image: http://h/a.qcow2\nsize: 2GiB"}
    assert is_held(slurm, answer.job)
    assert answer.said == 'sbatch: outrider: the job starts when "a.qcow2" is on its nodes\n'


def test_own_begin_is_handed_on(slurm: Site) -> None:
    job = slurm.submit(HEAD + IMAGE + "hostname\n", "--begin=now+1hour").job

    begin_s = record(slurm, job)["begin"]

    assert isinstance(begin_s, int)
    assert abs(begin_s - int(slurm.job(job)["SubmitTime"]) - 3600) < 60
    assert is_held(slurm, job)


def test_released_job_runs(slurm: Site) -> None:
    job = slurm.submit(HEAD + IMAGE + "echo ran\n").job

    done = slurm.run("scontrol", "update", f"job={job}", "StartTime=now", "ReqNodeList=n1", uid=SLURM_USER)
    slurm.until("JobState=COMPLETED", "scontrol", "show", "job", job)

    assert done.code == 0
    assert (slurm.folder / "jobs" / f"out.{job}").read_text() == "ran\n"


LOOKED = {"LastSchedEval": "", "Scheduler": "", "AccrueTime": ""}


@pytest.mark.parametrize("change", CHANGES)
def test_user_cannot_undo_the_hold(slurm: Site, change: str) -> None:
    job = slurm.submit(HEAD + IMAGE + "hostname\n").job
    before = slurm.job(job)

    answer = slurm.run("scontrol", "update", f"job={job}", change)

    assert answer.code != 0
    # The scheduler notes when it has looked last, whatever else happens.
    assert {**slurm.job(job), **LOOKED} == {**before, **LOOKED}


def test_user_can_change_what_is_the_users_own(slurm: Site) -> None:
    job = slurm.submit(HEAD + IMAGE + "hostname\n").job

    answers = [
        slurm.run("scontrol", "hold", job),
        slurm.run("scontrol", "release", job),
        slurm.run("scontrol", "update", f"job={job}", "TimeLimit=5"),
    ]

    assert [each.code for each in answers] == [0, 0, 0]
    assert is_held(slurm, job)
    assert slurm.run("scancel", job).code == 0


def test_job_of_another_user_is_protected_by_slurm(slurm: Site) -> None:
    job = slurm.submit(HEAD + IMAGE + "hostname\n").job

    answer = slurm.run("scontrol", "update", f"job={job}", "Comment=x", uid=BOB)

    assert answer.code != 0
    assert slurm.job(job)["Comment"] == "outrider-ticket=none"


def test_job_without_metadata_is_untouched(slurm: Site) -> None:
    script = HEAD + "cat <<END\n" + IMAGE + "END\n" + "# filler\n" * 400_000

    answer = slurm.submit(script, "--comment=mine")
    seen = slurm.job(answer.job)

    assert len(script) > 3_500_000
    assert answer.said == ""
    assert seen.get("AdminComment") in NONE
    assert seen["Comment"] == "mine"
    assert int(seen["EligibleTime"]) - int(seen["SubmitTime"]) < YEAR_S / 2


def test_user_can_change_a_job_without_metadata(slurm: Site) -> None:
    job = slurm.submit(HEAD + "sleep 30\n", "--begin=now+1hour").job

    code = slurm.run("scontrol", "update", f"job={job}", "Comment=mine", "StartTime=now+2hours").code
    forged = slurm.run("scontrol", "update", f"job={job}", "Comment=x outrider-ticket=1.2").code
    late = slurm.run("scontrol", "update", f"job={job}", "Comment=outrider:a.qcow2").code
    slurm.run("scancel", job)

    assert code == 0
    assert forged != 0
    assert late != 0


WANTED = {"OUTRIDER_IMAGE_WANTED": "image=http://h/e.qcow2;size=2GiB"}


def test_environment_names_the_image_where_nothing_else_does(slurm: Site) -> None:
    options = ["--parsable", "--comment=rule_all"]
    wrapped = slurm.run("sbatch", *options, "--wrap=hostname", environment=WANTED)
    emptied = slurm.run("sbatch", *options, "--wrap=hostname", environment={"OUTRIDER_IMAGE_WANTED": ""})
    wrong = slurm.run("sbatch", "--wrap=hostname", environment={"OUTRIDER_IMAGE_WANTED": "a b"})
    script = slurm.folder / "jobs" / "own.sh"
    script.write_text(HEAD + IMAGE + "hostname\n")
    own = slurm.run("sbatch", "--parsable", str(script), environment=WANTED)

    assert record(slurm, wrapped.job)["metadata"] == "image: http://h/e.qcow2\nsize: 2GiB"
    assert is_held(slurm, wrapped.job)
    assert slurm.job(wrapped.job)["Comment"] == "rule_all outrider-ticket=none"
    assert not is_held(slurm, emptied.job)
    assert record(slurm, own.job)["metadata"] == "image: http://h/a.qcow2"
    assert wrong.code != 0
    assert "OUTRIDER_IMAGE_WANTED: image: " in wrong.said


def test_environment_of_srun_and_salloc_is_unknown_to_slurmctld_and_no_trouble(slurm: Site) -> None:
    done = slurm.run("srun", "hostname", environment=WANTED)

    assert done.code == 0, done.said
    assert "environment is NULL" not in (slurm.folder / "state/slurmctld.log").read_text()


@pytest.mark.parametrize("options", [["--wrap=hostname"], ["--wrap=hostname", "--array=1-3"]])
def test_comment_says_the_same_as_lines(slurm: Site, options: list[str]) -> None:
    answer = slurm.run("sbatch", "--parsable", "--comment=my words outrider:http://h/b?x=1", *options)

    assert record(slurm, answer.job)["metadata"] == "image: http://h/b?x=1"
    assert slurm.job(answer.job)["Comment"] == "my words outrider:http://h/b?x=1 outrider-ticket=none"
    assert is_held(slurm, answer.job)


def test_wrapped_command_can_begin_with_a_line(slurm: Site) -> None:
    job = slurm.run("sbatch", "--parsable", f"--wrap={IMAGE}hostname").job

    assert record(slurm, job)["metadata"] == "image: http://h/a.qcow2"


@pytest.mark.parametrize("command", ["srun", "salloc"])
def test_job_without_a_script_waits_in_its_client(slurm: Site, command: str) -> None:
    name = f"--job-name=waiting-{command}"
    argv = slurm.command([command, name, "--comment=outrider:c.qcow2", "echo", "ran"], ADA)
    environment = {"PATH": "/usr/bin:/bin", "SLURM_CONF": str(slurm.folder / "slurm.conf")}
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as client:
        line = slurm.until("BeginTime", "squeue", "-h", "-o", "%i %r", f"--name=waiting-{command}")
        job = line.split()[0]
        assert record(slurm, job)["metadata"] == "image: c.qcow2"
        slurm.run("scontrol", "update", f"job={job}", "StartTime=now", uid=SLURM_USER)
        printed, _ = client.communicate(timeout=240)

    assert "ran\n" in printed
    assert "outrider: the job starts when" in printed
    assert client.returncode == 0


@pytest.mark.parametrize(
    ("lines", "options", "words"),
    [
        ("#OUTRIDER image: a b\n", [], 'line 2: image: " " cannot stand in an address: write it as %20'),
        (IMAGE + "#OUTRIDER sise: 1\n", [], 'line 3: "sise": there is no such key; known are image, digest'),
        ("", ["--comment=outrider:size=1"], "the comment: image is missing"),
        ("", ["--comment=x outrider-ticket=1.2.3"], "outrider-ticket="),
        ("", ["--comment=outrider:\udcff\udcfe"], "cannot stand in an address"),
        (IMAGE + "#SBATCH hetjob\n", [], "a heterogeneous job cannot have a workspace"),
    ],
)
def test_refusal_says_where_and_why(slurm: Site, lines: str, options: list[str], words: str) -> None:
    answer = slurm.submit(HEAD + lines + "hostname\n", *options)

    assert answer.code != 0
    assert words in answer.said
    assert answer.printed == ""


def test_job_in_a_reservation_is_marked_and_not_held(slurm: Site) -> None:
    made = slurm.run(
        "scontrol", "create", "reservation", "ReservationName=render-17", "Users=bin", "Nodes=n1",
        "StartTime=now+1hour", "Duration=10", "Flags=IGNORE_JOBS", uid=0,
    )  # fmt: skip
    assert made.code == 0, made.said

    answer = slurm.submit(HEAD + IMAGE + "hostname\n", "--reservation=render-17")

    assert record(slurm, answer.job)["metadata"] == "image: http://h/a.qcow2"
    assert not is_held(slurm, answer.job)
    assert 'the job uses "a.qcow2" in reservation render-17' in answer.said
    assert slurm.run("scontrol", "update", f"job={answer.job}", "ReservationName=").code != 0


def test_longest_address_fits_into_the_record(slurm: Site) -> None:
    address = "http://h/" + "a" * 2039

    job = slurm.submit(HEAD + f"#OUTRIDER image: {address}\nhostname\n").job

    assert record(slurm, job)["metadata"] == f"image: {address}"


def test_broken_filter_refuses_metadata_and_nothing_else(tmp_path: Path) -> None:
    able()
    tmp_path.joinpath("outrider_metadata.lua").write_text("return nonsense(")
    tmp_path.joinpath("outrider_submit.lua").write_text((PLUGINS / "outrider_submit.lua").read_text())
    files = {"job_submit.lua": loader("job_submit.lua", tmp_path)}
    with site(files=files, more="JobSubmitPlugins=lua") as broken:
        by_lines = broken.submit(HEAD + IMAGE + "hostname\n")
        by_comment = broken.run("sbatch", "--wrap=hostname", "--comment=outrider:a.qcow2")
        other = broken.submit(HEAD + "hostname\n", "--comment=mine", "--begin=now+1hour")
        changed = broken.run("scontrol", "update", f"job={other.job}", "Nice=5")

    assert by_lines.code != 0
    assert "the submit filter is broken" in by_lines.said
    assert by_comment.code != 0
    assert (other.code, other.said) == (0, "")
    assert changed.code == 0


def test_rules_of_a_site_stand_beside_the_filter(tmp_path: Path) -> None:
    able()
    tmp_path.chmod(0o755)
    documented = (PLUGINS.parents[1] / "docs" / "howto/slurm.md").read_text()
    own = documented.split("```lua\n")[1].split("```")[0]
    assert own.count("/usr/lib/outrider/slurm/") == 1
    files = {"outrider.lua": loader("job_submit.lua")}
    with site(files={**files, "job_submit.lua": ""}) as made:
        path = made.folder / "job_submit.lua"
        path.write_text(own.replace("/usr/lib/outrider/slurm/job_submit.lua", f"{made.folder}/outrider.lua"))
        with (made.folder / "slurm.conf").open("a") as configuration:
            configuration.write("JobSubmitPlugins=lua\n")
        assert made.run("scontrol", "reconfigure", uid=0).code == 0
        ruled = made.submit(HEAD + IMAGE + "hostname\n", "--exclusive")
        managed = made.submit(HEAD + IMAGE + "hostname\n")
        changed = made.run("scontrol", "update", f"job={managed.job}", "StartTime=now")

        assert ruled.code != 0
        assert "exclusive" in ruled.said
        assert is_held(made, managed.job)
        assert changed.code != 0
