"""The filter of the client and the option --workspace= in a real sbatch, srun and salloc."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons.slurm.filter.conftest import VERSIONS, able, tree_of
from tests.daemons.slurm.filter.slurm_site import PLUGINS, SLURM_USER, Answer, Site, loader, site

HEAD = "#!/bin/sh\n"
IMAGE = "#OUTRIDER image: http://h/a.qcow2\n"
WORKSPACE = """\
version: 1
metadata:
  name: web  # ours
  image:
    uri: "https://images.example.org/web.qcow2"
    size: 600MB
deployment:
  nodes: 1
  name: other
"""
# Answers like the service's command, and says what it was asked.
FAKE = """\
#!/bin/sh
echo "$@" >asked
echo '{{"result": "refused", "ready_s": null, "earliest_start_s": {at_s}}}'
"""


@pytest.fixture(scope="module", params=VERSIONS)
def clients(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A Slurm with both filters and, compiled for it, the plugin with the option."""
    able()
    files = {name: loader(name) for name in ("job_submit.lua", "cli_filter.lua")} | {"plugstack.conf": ""}
    more = "JobSubmitPlugins=lua\nCliFilterPlugins=cli_filter/lua\nPlugStackConfig={folder}/plugstack.conf"
    with site(tree=tree_of(request.param), files=files, more=more) as made:
        compile_plugin(made, (PLUGINS / "spank_outrider.c").read_text(), made.folder)
        (made.folder / "plugstack.conf").write_text(f"optional {made.folder}/spank_outrider.so\n")
        yield made


def compile_plugin(slurm: Site, source: str, folder: Path) -> None:
    """Compile it inside, for the Slurm that is there; skipped where that cannot be, but not in CI."""
    built = str(folder / "spank_outrider.so")
    argv = ["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-x", "c", "-o", built, "-"]
    answer = slurm.run(*argv, uid=0, text=source)
    is_there = "No such file" not in answer.said
    if not is_there and not os.environ.get("CI"):
        pytest.skip(f"gcc and Slurm's header files are needed: {answer.said}")
    assert answer.code == 0, answer.said


def metadata(slurm: Site, key: str) -> object:
    _, brace, rest = slurm.job(key)["AdminComment"].partition('{"outrider":1')
    return json.loads(brace + rest)["metadata"]


def submit(slurm: Site, *options: str, **environment: str) -> Answer:
    known = {"PATH": f"{slurm.folder}/jobs:/usr/bin:/bin", **environment}
    return slurm.run("sbatch", "--parsable", "--output=out.%j", *options, environment=known)


def write(slurm: Site, name: str, text: str) -> str:
    path = slurm.folder / "jobs" / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_job_without_metadata_hears_nothing(clients: Site) -> None:
    answer = clients.submit(HEAD + "hostname\n", "--comment=mine")

    assert (answer.code, answer.said) == (0, "")
    assert clients.run("srun", "--overlap", "true").code == 0


def test_faults_of_a_script_are_told_by_line_before_submission(clients: Site) -> None:
    answer = clients.submit(HEAD + IMAGE + "#OUTRIDER size: big\n#OUTRIDER digits: 1\nhostname\n")

    assert answer.code != 0
    assert 'sbatch: lua: outrider: line 3: size: "big" is not a size' in answer.said
    assert 'sbatch: lua: outrider: line 4: "digits": there is no such key' in answer.said
    assert "Batch job submission failed" not in answer.said


@pytest.mark.parametrize("text", ["http://h/c.qcow2", "image=http://h/c.qcow2"])
def test_option_names_an_image(clients: Site, text: str) -> None:
    answer = submit(clients, f"--workspace={text}", "--wrap=hostname")

    assert metadata(clients, answer.job) == "image: http://h/c.qcow2"


def test_option_can_stand_in_the_script(clients: Site) -> None:
    job = clients.submit(HEAD + "#SBATCH --workspace=d.qcow2\nhostname\n").job

    assert metadata(clients, job) == "image: d.qcow2"


def test_workspace_file_is_read_by_the_client(clients: Site) -> None:
    path = write(clients, "web.yaml", WORKSPACE)

    job = submit(clients, f"--workspace={path}", "--comment=mine", "--wrap=hostname").job

    assert metadata(clients, job) == "image: https://images.example.org/web.qcow2\nsize: 600MB\nname: web"
    assert clients.job(job)["Comment"].startswith("mine outrider:image=https://")


def test_workspace_file_can_be_short(clients: Site) -> None:
    path = write(
        clients, "short.yml", "version: 1\nmetadata: \n name: s\n image: {uri: s.qcow2, size: 2 GiB}\n"
    )

    job = submit(clients, f"--workspace={path}", "--wrap=hostname").job

    assert metadata(clients, job) == "image: s.qcow2\nsize: 2 GiB\nname: s"


def test_options_deadline_and_value_of_a_workspace_file_are_the_jobs(clients: Site) -> None:
    ways = "options: [{nodes: 1, duration: 1h}, {nodes: 1, duration: 35m, image: {uri: fast.qcow2}}]"
    more = f"deployment:\n  {ways}\n  finish_by: 2099-01-31T14:00Z\n  value: 12.5\n"
    path = write(clients, "ways.yaml", f"version: 1\nmetadata:\n  name: s\n  image: {{uri: s.qcow2}}\n{more}")

    job = submit(clients, f"--workspace={path}", "--wrap=hostname").job

    assert str(metadata(clients, job)).splitlines() == [
        "image: s.qcow2",
        "name: s",
        "option: nodes=1 time=60",
        "option: nodes=1 time=35 image=fast.qcow2",
        "finish-by: 2099-01-31T14:00:00Z",
        "value: 12.5",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WORKSPACE.replace("600MB", "2 gigs"), 'bad.yaml:6: size: "2 gigs" is not a size'),
        ("version: 1\n", "no image is found in it"),
        (None, "cannot be read"),
    ],
)
def test_faults_of_a_workspace_file_are_told_by_line(clients: Site, text: str | None, words: str) -> None:
    path = clients.folder / "jobs" / "bad.yaml"
    path.unlink(missing_ok=True)
    if text is not None:
        write(clients, "bad.yaml", text)

    answer = submit(clients, "--workspace=bad.yaml", "--wrap=hostname")

    assert answer.code != 0
    assert words in answer.said


def test_user_is_told_when_the_image_can_be_there(clients: Site) -> None:
    at_s = int(clients.run("date", "+%s").printed) + 600
    write(clients, "outrider", FAKE.format(at_s=at_s))

    answer = submit(
        clients, "--comment=outrider:e.qcow2", "--wrap=hostname", "-N1", "-t10", OUTRIDER_SERVER="x"
    )
    asked = (clients.folder / "jobs" / "asked").read_text()
    elsewhere = submit(clients, "--wrap=hostname", OUTRIDER_SERVER="x")
    (clients.folder / "jobs" / "asked").unlink()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(clients.folder / "jobs" / "socket"))
        by_socket = submit(clients, "--comment=outrider:e.qcow2", "--wrap=hostname", OUTRIDER_SOCKET="socket")
    (clients.folder / "jobs" / "asked").unlink()
    submit(clients, "--comment=outrider:e.qcow2", "--wrap=hostname", OUTRIDER_SOCKET="none")

    assert "outrider: its image can be there about " in answer.said
    assert ", in 10 min" in answer.said
    assert asked.startswith("plan --json --timeout 2 --image e.qcow2 --nodes 1 --duration 00:10:00 --start ")
    assert elsewhere.said == ""
    assert "outrider: its image can be there about " in by_socket.said
    assert not (clients.folder / "jobs" / "asked").exists()


@pytest.mark.parametrize(
    ("result", "in_s", "more", "words"),
    [
        ("accepted", 0, '"transfers": []', "its image is on nodes already"),
        ("accepted", 60, '"transfers": [{"number": 3}]', "its image can be there in about "),
        ("accepted", 60, '"transfers": []', "its image can be there in about "),
        ("accepted", 600, '"transfers": [{"number": 3}]', ", in 10 min"),
    ],
)
def test_absent_image_is_not_said_to_be_there(
    clients: Site, result: str, in_s: int, more: str, words: str
) -> None:
    at_s = int(clients.run("date", "+%s").printed) + in_s
    answer = f'{{"result": "{result}", "ready_s": {at_s}, {more}, "earliest_start_s": null}}'
    write(clients, "outrider", f"#!/bin/sh\necho '{answer}'\n")

    said = submit(clients, "--comment=outrider:e.qcow2", "--wrap=hostname", OUTRIDER_SERVER="x").said

    assert words in said
    assert "at once" not in said


def test_image_that_no_pool_can_hold_is_named_at_submission(clients: Site) -> None:
    reason = "image http://h/a.qcow2 (9 TiB) fits into the image pools of 0 nodes, and 1 are asked for"
    answer = f'{{"result": "refused", "cause": "pool", "reason": "{reason}", "earliest_start_s": null}}'
    write(clients, "outrider", f"#!/bin/sh\necho '{answer}'\n")

    said = submit(clients, "--comment=outrider:e.qcow2", "--wrap=hostname", OUTRIDER_SERVER="x").said

    assert f"outrider: its image cannot come to any nodes: {reason}" in said


def test_fault_that_the_service_finds_with_an_image_is_told_at_submission(clients: Site) -> None:
    fault = "the image http://h/a.qcow2 has 9 TiB: at most 1 TiB are staged here; make it smaller"
    write(clients, "outrider", f"#!/bin/sh\necho '--image: {fault}'\necho outrider: faults >&2\nexit 4\n")

    answer = submit(clients, "--comment=outrider:e.qcow2", "--wrap=hostname", OUTRIDER_SERVER="x")

    assert (
        f"outrider: its image cannot be fetched as it is named, so the job stays held: {fault}" in answer.said
    )
    assert "faults" not in answer.said
    assert metadata(clients, answer.job) == "image: e.qcow2"


def held(slurm: Site, key: str) -> dict[str, str]:
    """A job that is held, after Slurm has had time to start what it would."""
    other = slurm.run("sbatch", "--parsable", "--wrap=true", "--comment=plain").job
    slurm.until("JobState=COMPLETED", "scontrol", "show", "job", other)
    seen = slurm.job(key)
    assert (seen["JobState"], seen["Priority"]) == ("PENDING", "0"), seen
    return seen


def test_deadline_is_kept_beside_the_hold(clients: Site) -> None:
    job = submit(clients, "--comment=mine outrider:e.qcow2", "--wrap=true", "--deadline=now+1hour", "-t5").job
    in_script = clients.submit(HEAD + "#SBATCH --deadline=now+2hours\n" + IMAGE + "true\n", "-t5").job

    seen = held(clients, job)
    assert seen["Deadline"].isdigit()
    assert seen["Comment"] == "mine outrider:e.qcow2 outrider-ticket=none"
    assert metadata(clients, job) == "image: e.qcow2"
    assert held(clients, in_script)["Comment"] == "outrider-ticket=none"


@pytest.mark.parametrize(
    "change", [["release"], ["update", "Nice=30"], ["update", "Priority=7"], ["update", "StartTime=now"]]
)
def test_user_cannot_undo_the_hold_beside_a_deadline(clients: Site, change: list[str]) -> None:
    key = submit(clients, "--comment=outrider:e.qcow2", "--wrap=true", "--deadline=now+1hour", "-t5").job
    argv = [change[0], key] if change == ["release"] else [change[0], f"job={key}", change[1]]

    answer = clients.run("scontrol", *argv)

    assert answer.code != 0
    held(clients, key)


def test_user_changes_the_rest_of_a_job_with_a_deadline(clients: Site) -> None:
    key = submit(clients, "--comment=outrider:e.qcow2", "--wrap=true", "--deadline=now+1hour", "-t5").job

    codes = [clients.run("scontrol", "update", f"job={key}", each).code for each in ("TimeLimit=3", "Name=x")]

    assert codes == [0, 0]
    assert held(clients, key)["TimeLimit"] == "00:03:00"
    assert clients.run("scancel", key).code == 0


def test_word_of_the_client_written_by_hand_holds_all_the_same(clients: Site) -> None:
    comment = "outrider-hold=priority outrider:e.qcow2"
    own = {"SLURM_CONF": f"{clients.folder}/plain.conf"}
    configuration = (clients.folder / "slurm.conf").read_text()
    (clients.folder / "plain.conf").write_text(configuration.replace("CliFilterPlugins=", "#"))

    job = submit(clients, f"--comment={comment}", "--wrap=true", **own).job
    with_hold = submit(clients, f"--comment={comment}", "--wrap=true", "--hold", **own)

    assert held(clients, job)["Comment"] == "outrider:e.qcow2 outrider-ticket=none"
    assert with_hold.code != 0
    assert "leave --hold out" in with_hold.said


def start_s(answer: Answer) -> int:
    found = re.search(r"to start at (\d+)", answer.said)
    assert found is not None, answer
    return int(found[1])


def test_start_that_slurm_expects_is_that_of_a_job_without_an_image(clients: Site) -> None:
    # Slurm adds up what all other jobs may take.
    clients.run("sh", "-c", "squeue --noheader --format=%i | xargs -r scancel", uid=0)
    clients.until("none", "sh", "-c", '[ -n "$(squeue --noheader)" ] || echo none')
    plain = submit(clients, "--wrap=true", "--test-only", "-t1")
    answer = submit(clients, "--comment=outrider:e.qcow2", "--wrap=true", "--test-only", "-t1")

    assert abs(start_s(answer) - start_s(plain)) < 86_400
    assert (answer.code, answer.printed) == (0, "")


@pytest.mark.parametrize("service", ["exit 5", "sleep 30", "echo '{\"result\": 7'", "kill -9 $$"])
def test_trouble_of_the_service_stops_nobody(clients: Site, service: str) -> None:
    write(clients, "outrider", f"#!/bin/sh\n{service}\n")

    answer = submit(clients, "--comment=outrider:e.qcow2", "--wrap=hostname", OUTRIDER_SERVER="x")

    assert answer.said == 'sbatch: outrider: the job starts when "e.qcow2" is on its nodes\n'
    assert metadata(clients, answer.job) == "image: e.qcow2"


def test_jobs_of_a_job_do_not_inherit_its_workspace(clients: Site) -> None:
    path = write(clients, "outer.sh", HEAD + "sbatch --wrap=hostname\nsrun --overlap echo stepped\n")
    job = submit(clients, "--workspace=f.qcow2", path).job

    clients.run("scontrol", "update", f"job={job}", "StartTime=now", uid=SLURM_USER)
    clients.until("JobState=COMPLETED", "scontrol", "show", "job", job)

    printed = (clients.folder / "jobs" / f"out.{job}").read_text()
    assert "Submitted batch job" in printed
    assert "stepped\n" in printed
    assert "outrider:" not in printed


WANTED = {"OUTRIDER_IMAGE_WANTED": "image=http://h/e.qcow2;size=2GiB"}


@pytest.mark.parametrize("export", ["ALL", "NONE"])
def test_environment_counts_whatever_of_it_is_exported(clients: Site, export: str) -> None:
    answer = clients.run("sbatch", "--parsable", "--wrap=true", f"--export={export}", environment=WANTED)

    assert answer.said == 'sbatch: outrider: the job starts when "e.qcow2" is on its nodes\n'
    assert metadata(clients, answer.job) == "image: http://h/e.qcow2\nsize: 2GiB"


@pytest.mark.parametrize("words", [["salloc", "--no-shell"], ["srun", "true"]])
def test_environment_of_interactive_jobs_is_handed_on(clients: Site, words: list[str]) -> None:
    """That such a job does not wait without being told to is what shows that its image is known."""
    answer = clients.run(words[0], "--immediate=1", *words[1:], environment=WANTED)

    assert answer.code != 0
    assert "--immediate cannot wait for an image" in answer.said


def test_named_pipe_as_a_script_is_not_waited_for(clients: Site) -> None:
    pipe = clients.folder / "jobs" / "pipe"
    os.mkfifo(pipe, 0o666)
    pipe.chmod(0o666)
    with subprocess.Popen(["sh", "-c", f"printf '{HEAD}hostname\n' >{pipe}"]) as writer:
        answer = clients.run("sbatch", str(pipe))
        writer.kill()

    assert answer.said == ""
    assert answer.code == 0


def test_plugin_of_another_version_breaks_no_command(clients: Site) -> None:
    other = clients.folder / "other"
    other.mkdir()
    header = "#include <slurm/spank.h>\n"
    other_version = f"{header}#undef SLURM_VERSION_NUMBER\n#define SLURM_VERSION_NUMBER 0x010101\n"
    source = (PLUGINS / "spank_outrider.c").read_text()
    compile_plugin(clients, source.replace(header, other_version), other)
    (other / "plugstack.conf").write_text(f"optional {other}/spank_outrider.so\noptional {other}/none.so\n")
    configuration = (clients.folder / "slurm.conf").read_text()
    (other / "slurm.conf").write_text(configuration.replace("/plugstack.conf", "/other/plugstack.conf"))
    (other / "cli_filter.lua").write_text(loader("cli_filter.lua", other))

    answer = clients.run("sbatch", "--wrap=hostname", environment={"SLURM_CONF": str(other / "slurm.conf")})

    assert "ncompatible" in answer.said
    assert answer.code == 0
    assert answer.printed.startswith("Submitted batch job")
