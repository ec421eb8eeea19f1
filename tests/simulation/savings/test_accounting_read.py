"""Accounting in each of its forms, and maps from jobs to images."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from outrider.cli.main import main
from outrider.sim.workload.savings.reading import read_accounting
from outrider.sim.workload.savings.records import read_map
from outrider.sim.workload.trace import WorkloadError
from tests.repository import ROOT

SACCT = """\
JobID|User|Account|JobName|Comment|Submit|Start|End|NNodes|NodeList
7|ada|physics|train|a|b|1000|1100|1200|2|n[1-2]
7.batch|||batch||1100|1100|1200|1|n1
8_1|bob||web||2026-11-01T00:00:00|2026-11-01T00:00:10|2026-11-01T01:00:00|1|n3
9|bob||late||1000|Unknown|Unknown|1|None assigned
10|bob||runs||1000|1100|Unknown|1|n1
11|bob||short
12|bob||odd||1000|900|1200|1|n1
"""
# accounting(5): the fields, of which these tests need some.
LINE = (
    "all.q:{node}:users:ada:train:{job}:sge:0:1000:{start}:{end}:0:0:100:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:"
    "NONE:defaultdepartment:mpi:2:{task}:0:0:0:-U x:0:{part}:0:0:0"
)
TABLE = """\
job_id,user_id,partition,submit_time,start_time,end_time,num_nodes_alloc,nodes
1,17,boost,2020-05-01 00:00:00+00:00,2020-05-01 00:01:00+00:00,2020-05-01 01:00:00+00:00,2.0,"[12, 15]"
2,18,boost,2020-05-01 00:00:00+00:00,,,1,"[]"
"""


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_jobs_of_sacct_are_read_without_steps_and_what_is_odd_is_counted(tmp_path: Path) -> None:
    found = read_accounting(written(tmp_path / "log", SACCT))

    (first, second) = found.jobs
    assert (first.key, first.submit_s, first.start_s, first.end_s) == ("7", 1000, 1100, 1200)
    assert (first.nodes, first.count) == (("n1", "n2"), 2)
    assert (first.said["name"], first.said["comment"]) == ("train", "a|b")
    # 2026-11-01 is day 20,758 since 1970.
    assert (second.key, second.start_s) == ("8_1", 20_758 * 86_400 + 10)
    assert found.passed_over == {
        "that did not start": 1,
        "that have not ended": 1,
        "lines that are too short": 1,
        "whose times contradict each other": 1,
    }


def test_nodes_of_a_parallel_job_of_grid_engine_are_put_together(tmp_path: Path) -> None:
    lines = [
        "# Version: 8.1.9",
        LINE.format(node="n1", job=5, start=1100, end=1200, task=0, part="NONE"),
        LINE.format(node="n2", job=5, start=1105, end=1190, task=0, part="1.n2"),
        LINE.format(node="n2", job=6, start=1100, end=1200, task=1, part="NONE"),
        LINE.format(node="n1", job=6, start=1100, end=1200, task=2, part="NONE"),
    ]
    found = read_accounting(written(tmp_path / "accounting", "\n".join(lines) + "\n"))

    assert [(each.key, each.nodes, each.start_s, each.end_s) for each in found.jobs] == [
        ("5.0", ("n1", "n2"), 1100, 1200), ("6.1", ("n2",), 1100, 1200), ("6.2", ("n1",), 1100, 1200),
    ]  # fmt: skip
    assert found.jobs[0].said["user"] == "ada"


def test_table_with_columns_of_pm100_is_read_from_gzip(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "jobs.csv.gz", "wt") as file:
        file.write(TABLE)
    found = read_accounting(str(tmp_path / "jobs.csv.gz"))

    (job,) = found.jobs
    assert (job.nodes, job.count, job.start_s - job.submit_s) == (("12", "15"), 2, 60)
    assert found.passed_over == {"that did not start": 1}


def test_log_in_swf_counts_nodes_by_their_processors() -> None:
    path = str(ROOT / "tests/data/datastar-excerpt.swf")
    one, eight = read_accounting(path), read_accounting(path, processors_per_node=8)

    assert sum(each.count for each in one.jobs) > sum(each.count for each in eight.jobs)
    assert all(each.start_s >= each.submit_s for each in eight.jobs)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("JobID|Start|End|NNodes\n", "lacks Submit: run sacct -P -X -a -o"),
        ("JobID|Submit|Start|End\n", "lacks NNodes"),
        ("a,b\n1,2\n", "has no column submit_time"),
        (SACCT.splitlines()[0] + "\n", "has no jobs that ran, read as sacct"),
    ],
)
def test_file_that_says_too_little_is_an_error_that_names_what_is_missing(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(WorkloadError, match="log: ") as error:
        read_accounting(written(tmp_path / "log", text))

    assert words in str(error.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("name,x*,a.sif", "rule 1 has 3 columns"),
        ("colour,x*,a.sif,1GB", "'colour' is not one of user"),
        ("name,x*,a.sif,big", "rule 1: size: "),
        ("# nothing", "has no rules"),
    ],
)
def test_map_that_cannot_be_meant_is_an_error(tmp_path: Path, line: str, words: str) -> None:
    with pytest.raises(WorkloadError) as error:
        read_map(written(tmp_path / "map.csv", line + "\n"))

    assert words in str(error.value)


def test_first_rule_that_fits_counts(tmp_path: Path) -> None:
    images = read_map(
        written(
            tmp_path / "map.csv",
            "field,pattern,image,size\n# ours\nname,train*,torch.sif,6GiB\nany,*,base.sif,1GB\n",
        )
    )
    jobs = read_accounting(written(tmp_path / "log", SACCT)).jobs

    found = [images.image_of(job) for job in jobs]
    assert [each and (each.name, each.size_bytes) for each in found] == [
        ("torch.sif", 6 * 2**30), ("base.sif", 10**9),
    ]  # fmt: skip


def test_command_prints_what_would_have_been_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = written(tmp_path / "log", SACCT)
    images = written(tmp_path / "map.csv", "name,train,torch.sif,1GB\n")
    line = ["sim", "savings", log, "--map", images, "--link-mbit", "1000"]

    assert main([*line, "--picture", str(tmp_path / "a.svg")]) == 0
    told = capsys.readouterr()
    assert main([*line, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert main([*line, "--csv"]) == 0
    rows = capsys.readouterr().out.splitlines()

    # Two nodes fetch 1 GB at 125 MB/s: 16 s on each of them; once it takes 8 s of the 100 s until its start.
    assert plain["whole"]["before"]["sent_bytes"] == 2 * 10**9
    assert plain["whole"]["after"]["sent_bytes"] == 10**9
    assert plain["whole"]["before"]["lost_node_hours"] == pytest.approx(32 / 3600)
    assert (plain["whole"]["before"]["wait_mean_s"], plain["whole"]["after"]["wait_mean_s"]) == (116, 100)
    assert "1 jobs with an image in 1970-01, 1 without" in told.out
    assert "1 records passed over that did not start" in told.err
    assert (tmp_path / "a.svg").read_text().startswith("<?xml")
    assert rows[1].startswith("1970-01,1,2000000000,1000000000,")
