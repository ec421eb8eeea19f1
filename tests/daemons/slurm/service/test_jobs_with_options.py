"""Jobs with several sizes on a real Slurm: one is taken in time, and another when nodes become free."""

from __future__ import annotations

import pytest

from testbed.commands import CommandFailed
from testbed.site import OutriderSite, ServedImage
from testbed.slurm import HEAD
from tests.daemons.slurm.service.failing import wait_told
from tests.daemons.slurm.service.jobs import arrived_s, ended, output, seen

MB = 1_000_000
TOLD_S = 90
# Says which option it has, what Slurm and its image say of that.
SCRIPT = """#!/bin/sh
{lines}
{options}
echo "option ${{OUTRIDER_OPTION-none}} on $SLURM_JOB_NUM_NODES"
srun --quiet sh -c 'echo "$SLURMD_NODENAME $(head -c3 "$OUTRIDER_IMAGE")"'
"""
NARROW, WIDE = "#OUTRIDER option: nodes=1 time=40", "#OUTRIDER option: nodes=3 time=10"


def put(site: OutriderSite, image: ServedImage, *options: str, arguments: tuple[str, ...] = ()) -> str:
    script = SCRIPT.format(lines=image.lines, options="\n".join(options))
    return site.submit(script, "--exclusive", *arguments)


def occupy(site: OutriderSite, node: str, minutes: int) -> str:
    """A job that takes all of a node, until it is cancelled, and says that it needs so long."""
    job = site.submit("#!/bin/sh\nsleep 600\n", f"-t{minutes}", f"-w{node}", "--exclusive", "-Jfill")
    site.cluster.wait_for(f"{node} to be full", lambda: seen(site, job).state == "RUNNING", logs=site.logs)
    return job


def wait_shape(site: OutriderSite, job: str, *wanted: str) -> None:
    site.cluster.wait_for(
        f"job {job} to be {wanted}", lambda: shape(site, job) == wanted, TOLD_S, lambda: site.logs()
    )


def shape(site: OutriderSite, job: str) -> tuple[str, str]:
    """How many nodes Slurm gives a job, and for how long."""
    argv = ["squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%D %l"]
    nodes, limit = site.cluster.run(HEAD, argv).stdout.split()
    return nodes, limit


def test_job_takes_the_option_that_meets_its_deadline(site: OutriderSite) -> None:
    image = site.image("deadline.qcow2", 5 * MB)

    job = put(site, image, NARROW, WIDE, "#OUTRIDER finish-by: now+20m")
    found = ended(site, job)

    assert found.state == "COMPLETED", output(site, job)
    first, *said = output(site, job).splitlines()
    assert first == "option 2 on 3"
    assert sorted(line.split()[0] for line in said) == sorted(arrived_s(site, image))
    assert all(line.endswith("QFI") for line in said)
    assert shape(site, job) == ("3", "10:00")


def test_patient_job_takes_the_option_that_needs_least(site: OutriderSite) -> None:
    image = site.image("patient.qcow2", 5 * MB)

    job = put(site, image, WIDE, "#OUTRIDER option: nodes=1 time=25", "#OUTRIDER finish-by: now+2h")
    found = ended(site, job)

    assert found.state == "COMPLETED", output(site, job)
    assert output(site, job).splitlines()[0] == "option 2 on 1"
    assert shape(site, job) == ("1", "25:00")


def test_waiting_job_is_switched_when_nodes_become_free(site: OutriderSite) -> None:
    image = site.image("switched.qcow2", 5 * MB)
    # Three nodes for long, and one for a little: narrow is first to end there.
    others = [occupy(site, node, 300) for node in ("n1", "n2", "n3")] + [occupy(site, "n4", 5)]
    job = put(site, image, NARROW, WIDE)
    before = wait_told(site, job, "option 1 of 2")
    asked = shape(site, job)
    # The node that it waits for stays busy: there it would start at once.
    site.cluster.run(HEAD, ["scancel", *others[:3]])
    found = ended(site, job)
    site.cluster.run(HEAD, ["scancel", others[3]])

    assert "expected to end first" in before
    assert asked == ("1", "40:00")
    assert found.state == "COMPLETED", output(site, job)
    assert output(site, job).splitlines()[0] == "option 2 on 3"
    assert shape(site, job) == ("3", "10:00")


def test_option_brings_its_own_image_processors_and_memory(site: OutriderSite) -> None:
    slow, quick = site.image("slow.qcow2", 5 * MB), site.image("quick.qcow2", 5 * MB)
    first = site.submit(SCRIPT.format(lines=quick.lines, options=""), "--exclusive", "-t5")
    assert ended(site, first).state == "COMPLETED", output(site, first)
    site.hold_back(slow)
    own = f"image={quick.uri} digest={quick.digest}"
    job = site.submit(
        SCRIPT.format(
            lines=slow.lines,
            options="#OUTRIDER option: nodes=1 time=20 cpus=1 memory=100MiB\n"
            f"#OUTRIDER option: nodes=1 time=20 cpus=2 memory=200MiB {own}\n#OUTRIDER value: 12.5",
        )
    )
    try:
        found = ended(site, job)
    finally:
        site.let_go(slow)

    assert found.state == "COMPLETED", output(site, job)
    assert output(site, job).splitlines()[0] == "option 2 on 1", site.outrider(
        "explain", job, check=False
    ).stdout
    shown = site.cluster.run(
        HEAD, ["squeue", "-h", "--states=all", "-j", job, "--format=%C %m %l"]
    ).stdout.split()
    assert shown == ["2", "200M", "20:00"]


def test_job_whose_owner_has_changed_it_is_left_alone(site: OutriderSite) -> None:
    image = site.image("changed.qcow2", 5 * MB)
    others = [occupy(site, node, 300) for node in ("n1", "n2", "n3", "n4")]
    job = put(site, image, NARROW, WIDE)
    wait_shape(site, job, "3", "10:00")
    site.cluster.run(HEAD, ["scontrol", "update", f"JobId={job}", "TimeLimit=7"])
    told = wait_told(site, job, "its options are left alone")
    site.cluster.run(HEAD, ["scancel", *others])
    found = ended(site, job)

    assert "its size was changed meanwhile" in told
    assert found.state == "COMPLETED", output(site, job)
    assert shape(site, job) == ("3", "7:00")


def test_array_is_left_alone_with_a_message(site: OutriderSite) -> None:
    image = site.image("array-left.qcow2", 5 * MB)
    script = SCRIPT.format(lines=image.lines, options=f"{NARROW}\n{WIDE}")

    job = site.submit(script, "--exclusive", "--array=1-2", "-t3")
    found = ended(site, f"{job}_1")

    assert found.state == "COMPLETED"
    assert shape(site, f"{job}_1") == ("1", "3:00")
    assert "array" in site.outrider("show", job, check=False).stdout + seen(site, f"{job}_1").admin_comment


def test_hostile_lines_are_refused_with_line_and_reason(site: OutriderSite) -> None:
    image = site.image("hostile.qcow2", 5 * MB)
    first = SCRIPT.format(lines=image.lines, options="here").splitlines().index("here") + 1
    refused = {
        "option: nodes=-1 time=5": f'line {first}: option: "-1" is not a number of nodes',
        "option: nodes=99999999999999999999 time=5": f"line {first}: option: ",
        "option: nodes=2 time=\u0665": f"line {first}: option: ",
        "option: nodes=2 gpus=3 time=5": f'line {first}: option: "gpus" is not a key of a job\'s option',
        "option: nodes=2 time=5 memory=9999999999GiB": f"line {first}: option: ",
        "option: nodes=2 time=5 image=http://h/" + "a" * 3_000_000: "",
        "\n#OUTRIDER ".join(f"option: nodes={n} time=5" for n in range(1, 101)): "more than 32 keys",
        "value: -5": f"line {first}: value: ",
        "finish-by: 2026-02-31T14:00": f"line {first}: finish-by: ",
    }
    for line, words in refused.items():
        with pytest.raises(CommandFailed) as failed:
            put(site, image, f"#OUTRIDER {line}")
        assert words in str(failed.value), line
