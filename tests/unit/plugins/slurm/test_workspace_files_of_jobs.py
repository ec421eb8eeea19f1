"""A workspace file in sbatch: the client's filter makes the lines of it that the service makes of it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from outrider.metadata.joblines import parse_job_lines, write_job_lines
from outrider.service.ports import FoundImage
from outrider.service.web.requests.bodies import SubmitBody
from outrider.service.web.requests.understanding import understand_job
from outrider.service.web.routes.submissions import _lines
from tests.unit.plugins.slurm.test_filter_alone import HERE, PLUGINS, interpreter

NOW_S = 1_785_506_400
HEAD = """version: 1
metadata:
  name: web
  image: {uri: "https://images.example.org/web.qcow2"}
deployment:
  nodes: 2   # of the first
  duration: 1h
"""
DIGEST = "sha256:" + "0a" * 32
IN_ONE_LINE = "  options: [{nodes: 2, duration: 60}, {nodes: 4, duration: 2h30m}]  # two\n"
WITH_IMAGES = f"""
  options:
  - {{nodes: 2, duration: 1:30:00, image: {{uri: "fast", digest: {DIGEST}}}}}
  - {{nodes: 2, duration: 35:30}}
"""
WITH_SIZES = """  cpus: 2
  memory: 3GiB
  options:
    # Fewer nodes for longer.
    - nodes: 2
      duration: 90s

      cpus: 8
    - duration: "1d 2h"
      nodes: 4
      memory: 8GB
      instances_per_node: 1
      image:
        uri: https://images.example.org/fast.qcow2
        private: false
  finish_by: 2026-09-01T14:00Z
  value: 12.5
"""


def run(text: str, *more: str) -> str:
    argv = [*interpreter("lua5.4"), str(HERE / "file.lua"), str(PLUGINS), *more]
    return subprocess.run(argv, input=text, capture_output=True, text=True, timeout=240, check=True).stdout


def of_service(text: str) -> str:
    body = SubmitBody.model_validate({"argv": ["true"], "workspace": text, "zone": "UTC"})
    return write_job_lines(_lines(understand_job(body, NOW_S), FoundImage(size_bytes=5, digest=DIGEST)))


@pytest.mark.parametrize(
    "deployment", ["", IN_ONE_LINE, WITH_IMAGES, WITH_SIZES, "  finish_by: 2026-09-01T14:00Z\n"]
)
def test_job_has_options_deadline_and_value_of_its_file_as_by_the_service(deployment: str) -> None:
    read, served = parse_job_lines(run(HEAD + deployment)), parse_job_lines(of_service(HEAD + deployment))

    assert list(map(str, read.options)) == list(map(str, served.options))
    assert len(read.options) == deployment.count("nodes:")
    assert (read.finish_by_s, read.value) == (served.finish_by_s, served.value)
    assert (read.image, read.name) == (served.image, served.name)


@pytest.mark.parametrize("word", ["now+3hours", "now+3h", "now+180 minutes"])
def test_hours_from_now_are_read_in_full_words_too(word: str) -> None:
    assert parse_job_lines(run(f"{HEAD}  finish_by: {word}\n")).finish_by_s is not None


@pytest.mark.parametrize(
    ("deployment", "words"),
    [
        ("  options: [{nodes: 2, duration: 1h},\n", "ws.yaml:8: options: they are not read"),
        ("  options: &two [{nodes: 2, duration: 1h}]\n", "ws.yaml:8: options: they are not read"),
        ("  options:\n    - [2, 1h]\n", "ws.yaml:9: options: "),
        ("  options:\n    - {nodes: 2, duration: 1-12}\n", 'option 1: duration: "1-12" is not read'),
        ("  options:\n    - {nodes: -2, duration: 1h}\n", '"-2" is not a number of nodes from 1 to 99999'),
        ("  options:\n    - {nodes: 2, duration: 1h, gpus: 1}\n", 'option 1: "gpus" is not known'),
        ("  options:\n    - {nodes: 2, duration: 1h, memory: 8G}\n", 'option 1: memory: "8G" is not read'),
        ("  options:\n    - {nodes: 2, duration: 1h, instances_per_node: 2}\n", "one instance on each node"),
        ("  options:\n    - {nodes: 2, duration: 1h, image: {uri: a, format: raw}}\n", "image: format"),
        ("  options:\n    - {nodes: 2, duration: 1h, image: {uri: a, private: true}}\n", "image: private"),
        ("  options:\n    - nodes:\n      duration: 1h\n", "option 1: nodes: is no text"),
        ("  options:\n" + "    - {nodes: 2, duration: 1h}\n" * 100, "more than 32 keys"),
        ("  options:\n    - {nodes: \uff12, duration: 1h}\n", "is not of the form key=value"),
        ("  finish_by: tomorrow\n", 'ws.yaml:8: finish-by: "tomorrow" is not a time'),
        ("  value: much\n", 'ws.yaml:8: value: "much" is not a value'),
    ],
)
def test_what_is_not_read_is_refused_by_its_name_and_line(deployment: str, words: str) -> None:
    assert words in run(HEAD + deployment)


def test_deployment_in_braces_is_refused_where_something_of_it_would_be_lost() -> None:
    start = HEAD.partition("deployment:")[0]

    assert run(start + "deployment: {nodes: 2, duration: 1h}\n").startswith("image: ")
    assert "ws.yaml:5: finish_by is not read here" in run(
        start + "deployment: {nodes: 2, finish_by: now+3h}\n"
    )


def test_reservations_text_gives_a_job_its_image_alone() -> None:
    reserved = HEAD + IN_ONE_LINE + "  finish_by: now+3h\n"

    assert run(reserved, "reserved") == run(HEAD)
    assert run(reserved + "  start: now+1h\n") == run(HEAD)


ROLES = """  roles:
    - name: head  # runs the script
      hosts: head
      cpus: 2
    - {name: worker, hosts: "w[1-3]", memory: 2GiB, image: {uri: "http://h/w.raw"}}
"""
FIRST, LAST = HEAD.partition("deployment:")[0], "deployment: {nodes: 4, duration: 1h}\n"


def test_roles_of_a_file_are_those_of_its_jobs_machines() -> None:
    head, worker = parse_job_lines(run(FIRST + ROLES + LAST, "machines")).roles

    assert (head.hosts, head.cpus, head.memory_mib) == (("head",), 2, 0)
    assert (worker.hosts, worker.memory_mib) == (("w1", "w2", "w3"), 2048)
    assert (head.image, worker.image) == ("", "http://h/w.raw")
    assert "role has no effect without run: vm" in run(FIRST + ROLES + LAST)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("addresses: 10.0.0.1", "ws.yaml:6: role 1: addresses: machines of a job have 10.211.0.1 and on"),
        ("gpus: 1", "role 1: gpus: machines have none"),
        ("image: {uri: a, format: raw}", "role 1: image: format: a role says uri and digest"),
        ("image: a", "role 1: image: write image: {uri: ADDRESS}"),
        ("user_data: |\n        #!/bin/sh\n        - x", "role 1: user_data: name a file"),
        ("files:\n        - path: /etc/x\n          content: y", "role 1: files: machines of a job have the"),
        ("colour: red", 'role 1: "colour" is not known in a role'),
        ("memory: 8G", 'role 1: memory: "8G" is not read'),
    ],
)
def test_what_a_job_cannot_give_a_role_is_refused_by_its_line(key: str, words: str) -> None:
    text = FIRST + f"  roles:\n    - name: head\n      {key}\n      hosts: head\n" + LAST

    assert words in run(text, "machines")


CLIENT = """
local said = {}
slurm = { SUCCESS = 0, ERROR = -1 }
function slurm.log_info(form, ...) said[#said + 1] = string.format(form, ...) end
dofile(arg[1] .. "/outrider_cli.lua")
local options = { type = "sbatch", argv = { arg[3] }, spank = { outrider = { workspace = arg[2] } } }
io.write(outrider_cli_pre_submit(options), " ", options.comment or "", table.concat(said, " "))
"""


def client(folder: Path, file: str, script: str) -> str:
    (folder / "client.lua").write_text(CLIENT)
    (folder / "ws.yaml").write_text(file)
    (folder / "job.sh").write_text(f"#!/bin/sh\n{script}ls\n")
    argv = [*interpreter("lua5.4"), str(folder / "client.lua"), str(PLUGINS)]
    argv += [str(folder / "ws.yaml"), str(folder / "job.sh")]
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, check=True).stdout


def test_job_with_a_workspace_file_runs_in_machines_if_its_script_says_so(tmp_path: Path) -> None:
    done = client(tmp_path, FIRST + ROLES + LAST, "#OUTRIDER image: a\n#OUTRIDER run: vm\n")

    # What the script says slurmctld reads there.
    assert done == (
        "0 outrider:image=https://images.example.org/web.qcow2;name=web;role=head hosts=head cpus=2;"
        "role=worker hosts=w[1-3] memory=2048MiB image=http://h/w.raw"
    )


def test_roles_of_a_file_and_others_of_its_script_are_refused_by_their_line(tmp_path: Path) -> None:
    done = client(tmp_path, FIRST + ROLES + LAST, "#OUTRIDER run: vm\n#OUTRIDER role: x\n")

    assert done.startswith("-1 ")
    assert f"line 3: role: stands in {tmp_path}/ws.yaml, too: keep one of them" in done


def test_data_of_a_file_is_refused_by_its_line(tmp_path: Path) -> None:
    done = client(tmp_path, FIRST + "  data: [http://h/d.raw]\n" + LAST, "#OUTRIDER run: vm\n")

    assert "ws.yaml:5: data: is not read of a file" in done
