"""What Grid Engine's submit filter makes of a job with several sizes."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path

import pytest

from outrider.metadata.errors import TextError
from outrider.metadata.joblines import parse_job_lines
from outrider.metadata.notation.job_options import write_finish_by
from tests.unit.plugins.gridengine.jsv import SERVER, module

FILTER = module(SERVER)
AFTERNOON_S = 1_785_506_400  # 2026-07-31T14:00:00Z
TWO = "image=a;option=nodes=2 time=60;option=nodes=4 time=2h"
RIGHT = [
    TWO,
    TWO + ";finish-by=2026-07-31T14:00:00Z;value=3",
    "image=a;option=time=5m  nodes=1",
    "image=a;option=nodes=2 time=60 cpus=4 memory=4GiB;option=nodes=2 time=9 cpus=8 memory=9M image=b",
]
WRONG = {
    "image=a;option=nodes=2": "option 1: time is missing",
    "image=a;option=nodes=0 time=5": "option 1: '0' is not a number of nodes",
    "image=a;option=nodes=-1 time=5": "option 1: '-1' is not a number of nodes",
    "image=a;option=nodes=2 time=99999999": "option 1: '99999999' is not a time",
    "image=a;option=nodes=\u0662 time=5": "is not of the form key=value",
    "image=a;option=nodes=2 time=5 gpus=3": "gpus is not a key of a job's option",
    "image=a;option=nodes=2 time=5 cpus=0": "option 1: '0' is not a number of processors of a node",
    "image=a;option=nodes=2 time=5 memory=1TiB": "option 1: '1TiB' is not the memory of a node",
    "image=a;option=nodes=2 time=5 memory=99999999GiB": "'99999999GiB' is not the memory of a node",
    "image=a;option=nodes=2 time=5 digest=sha256:" + "0" * 64: "digest has no effect without image",
    "image=a;option=nodes=2 time=5;option=nodes=4 time=3 cpus=2": "option 2: cpus is in some options",
    "image=a;option=nodes=2 time=5;option=nodes=2 time=3": "option 2: it has the size of option 1",
    "image=a" + "".join(f";option=nodes={n} time=5" for n in range(1, 101)): "there are 100 options",
    TWO + ";finish-by=2026-02-31T14:00:00Z": "finish-by is '2026-02-31T14:00:00Z'",
    TWO + ";value=1234567890": "value is '1234567890'",
    TWO + ";value=-3": "cannot be its value",
    TWO + ";run=vm": "option and run=vm contradict each other",
}


def answer(text: str, *more: str) -> list[str]:
    lines = ["PARAM USER ada", "PARAM JOB_ID 7", f"PARAM ac OUTRIDER={text}", *more]
    found = FILTER.verdict(lines, FILTER.Site("/nowhere"), 0)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("text", RIGHT)
def test_job_with_options_is_held_and_knows_them(text: str) -> None:
    lines = answer(text)

    nodes = ",".join(str(each.nodes) for each in parse_job_lines(text).options)
    assert f"ENV ADD OUTRIDER_OPTIONS {nodes}" in lines
    assert "PARAM h u" in lines
    assert lines[-1] == "RESULT STATE CORRECT"


@pytest.mark.parametrize(("text", "words"), WRONG.items())
def test_hostile_options_are_refused_here_and_by_the_service(text: str, words: str) -> None:
    with pytest.raises(TextError):
        parse_job_lines(text)

    (line,) = answer(text)
    assert line.startswith("RESULT STATE REJECT outrider: ")
    assert words in line


def test_job_does_not_inherit_the_options_of_another() -> None:
    assert "ENV DEL OUTRIDER_OPTIONS" in answer("image=a", "ENV ADD OUTRIDER_OPTIONS 2,4")


def test_options_in_a_reservation_are_refused() -> None:
    (line,) = answer(TWO, "PARAM ar 3", "PARAM l_hard outrider_reservation=TRUE")

    assert "a job in a reservation has nodes enough" in line


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("now+3h", "2026-07-31T17:00:00Z"),
        ("now+90m", "2026-07-31T15:30:00Z"),
        ("18:00", "2026-07-31T18:00:00Z"),
        ("13:59", "2026-08-01T13:59:00Z"),
        ("2026-12-24T06:30", "2026-12-24T06:30:00Z"),
        ("2026-12-24T06:30Z", "2026-12-24T06:30:00Z"),
    ],
)
def test_deadline_is_handed_on_as_what_it_means_here_and_now(
    monkeypatch: pytest.MonkeyPatch, said: str, meant: str
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    lines = ["PARAM USER ada", "PARAM JOB_ID 7", f"PARAM ac OUTRIDER={TWO};finish-by={said}"]
    (context,) = [
        each
        for each in FILTER.verdict(lines, FILTER.Site("/nowhere"), AFTERNOON_S)
        if each.startswith("PARAM ac")
    ]

    word = next(each for each in context.split(" ", 2)[2].split(",") if each.startswith("OUTRIDER="))
    text = base64.b64decode(word.partition("base64:")[2], altchars=b"-_").decode()
    assert text.endswith(f"finish-by={meant}")
    assert write_finish_by(parse_job_lines(text).finish_by_s or 0) == meant


def test_job_whose_options_have_images_gets_no_ticket_of_the_filters(tmp_path: Path) -> None:
    key, digest = tmp_path / "key", "ab" * 32
    key.write_text("0123456789abcdef0123456789abcdef\n")
    (tmp_path / "images").write_text(json.dumps({digest: "*"}))
    config = tmp_path / "jsv.json"
    config.write_text(json.dumps({"key": str(key), "images": str(tmp_path / "images")}))
    site = FILTER.Site(str(config))

    def ticket(text: str) -> str:
        lines = ["PARAM USER root", "PARAM JOB_ID 7", f"PARAM ac OUTRIDER={text}"]
        (found,) = [
            each for each in FILTER.verdict(lines, site, 0) if each.startswith("ENV ADD OUTRIDER_TICKET")
        ]
        return str(found).rpartition(" ")[2]

    plain = f"image=a;digest=sha256:{digest};option=nodes=1 time=5"
    assert ticket(plain).startswith("1.7.0.")
    assert ticket(plain + " image=b") == "none"
