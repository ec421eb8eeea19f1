"""Claims about the submit filters alone: whatever a user writes, and whatever breaks inside."""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import pwd
import re
import signal
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.amount import examples
from tests.unit.plugins.gridengine.jsv import CLIENT, SERVER, Qmaster, job, module, qmaster, run

jsv = module(SERVER)
DIGEST = "ab" * 32
KEY = "0123456789abcdef0123456789abcdef"
# The grammar of answers, written down anew: what Grid Engine takes without a complaint.
ANSWER = re.compile(
    r"PARAM ac (?:[A-Za-z_]\w*(?:=[^,\x00-\x1f\x7f]*)?)(?:,[A-Za-z_]\w*(?:=[^,\x00-\x1f\x7f]*)?)*"
    r"|PARAM h u|ENV ADD OUTRIDER_TICKET \S+|ENV DEL OUTRIDER_TICKET|ENV ADD OUTRIDER_RESERVED 1"
)
STATE = re.compile(r"RESULT STATE (?:ACCEPT|CORRECT|REJECT outrider: [ -~]+)")
NOW_S = 1_800_000_000
UNSIGNED = "ENV ADD OUTRIDER_TICKET none"


def answered(*lines: str, config: Path = Path("/nowhere")) -> list[str]:
    conversation = jsv.Conversation(jsv.Site(str(config)), lambda: NOW_S)
    for line in ("START", *lines, "BEGIN"):
        conversation.hear(line.encode("utf-8", "surrogateescape"))
    assert conversation.is_asked
    answer: list[str] = conversation.answer()
    return answer


def wrong(answer: Sequence[str]) -> list[str]:
    """The lines that Grid Engine would stumble over."""
    return [line for line in answer[:-1] if not ANSWER.fullmatch(line)] + [
        line for line in answer[-1:] if not STATE.fullmatch(line)
    ]


TEXT = st.text(max_size=60).map(lambda text: text.replace("\n", "\\n").replace("\r", ""))
PIECES = st.sampled_from(
    [
        "image: http://h/a",
        "image=",
        "digest",
        "sha256:" + DIGEST,
        ";",
        ":",
        "\\n",
        " ",
        ",",
        "=",
        "base64:",
        "aW1h",
        "\x00",
        "é",
        "name: ",
    ]
)
METADATA = st.lists(st.one_of(PIECES, TEXT), max_size=8).map("".join)
NAMES = st.sampled_from(
    ["ac", "ar", "h", "t_min", "t_max", "USER", "JOB_ID", "N", "l_hard", "CMDARG0", "global_l_hard"]
)
PARAMETER = st.builds(lambda name, text: f"PARAM {name} {text}", NAMES, st.one_of(TEXT, METADATA))
MANAGED = st.one_of(
    st.builds(
        lambda text, more: f"PARAM ac {more}OUTRIDER={text}", METADATA, st.sampled_from(["", "A=1,", "b c,"])
    ),
    st.builds(lambda text: f"ENV ADD OUTRIDER {text}", METADATA),
)


@given(st.lists(st.one_of(PARAMETER, MANAGED), max_size=10))
@settings(max_examples=examples(100), deadline=None)
def test_no_job_brings_forth_a_line_that_grid_engine_would_stumble_over(lines: list[str]) -> None:
    assert wrong(answered(*lines)) == []


@given(
    st.lists(PARAMETER.filter(lambda line: "OUTRIDER=" not in line and line.split()[1] != "ar"), max_size=10)
)
@settings(max_examples=examples(100), deadline=None)
def test_job_without_an_image_is_accepted_as_it_is(lines: list[str]) -> None:
    assert answered(*lines) == ["RESULT STATE ACCEPT"]


@given(MANAGED, st.lists(PARAMETER.filter(lambda line: line.split()[1] not in ("ac", "ar", "h")), max_size=5))
@settings(max_examples=examples(150), deadline=None)
def test_job_with_an_image_is_held_or_refused(managed: str, others: list[str]) -> None:
    answer = answered(managed, *others)

    assert "PARAM h u" in answer or answer[-1].startswith("RESULT STATE REJECT")


@pytest.mark.parametrize(
    "text",
    [
        "http://h/a.qcow2",
        "image=http://h/a.qcow2;digest=sha256:" + DIGEST,
        "image: http://h/a.qcow2\\ndigest: "
        + DIGEST
        + "\\nsize: 3 GiB\\nformat: qcow2\\nprivate: true\\nname: My image",
    ],
)
def test_each_form_of_metadata_is_understood_and_kept_in_the_context(text: str) -> None:
    *lines, ticket, state = answered(f"ENV ADD OUTRIDER {text}")
    words = dict(line.split(" ", 2)[1:] for line in lines)

    assert (ticket, state) == (UNSIGNED, "RESULT STATE CORRECT")
    kept, held = words["ac"].split(",")
    assert (words["h"], held) == ("u", "OUTRIDER_HELD=1")
    assert jsv.decoded(kept.partition("=")[2]) == text.replace("\\n", "\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("image: a b", "cannot be its image"),
        ("image: a\\nimage: b", "named twice"),
        ("image: a\\ncolour: red", "is not a key"),
        ("digest: " + DIGEST, "names no image"),
        ("image: a\\ndigest: sha1:12", "cannot be its digest"),
        ("base64:!!", "is not base64"),
        ("image: a\\npreemptible: suspend", "only a job in a virtual machine"),
        ("image: a\\npreemptible: requeue\\ncheckpoint: USR1", "leave checkpoint out"),
        ("image: a\\nrun: container", "cannot be its run"),
        ("image: a\\nboot: debian", "boot has no effect"),
        ("image: a\\nrun: vm\\nformat: sif", "a machine has disks"),
        ("image: a\\ngrace: 60s", "leave grace out"),
    ],
)
def test_mistake_is_refused_with_its_name(text: str, said: str) -> None:
    (line,) = answered(f"ENV ADD OUTRIDER {text}")

    assert line.startswith("RESULT STATE REJECT outrider: ")
    assert said in line


HELD = ["PARAM h u", "PARAM ac OUTRIDER=http://h/a,OUTRIDER_HELD=1", UNSIGNED, "RESULT STATE CORRECT"]


IN_RESERVATIONS = ("PARAM l_hard h_rt=5,outrider_reservation=TRUE", "PARAM global_l_hard orsv=1")


def test_hold_of_a_user_stays() -> None:
    managed = "PARAM ac OUTRIDER=http://h/a"

    assert answered(managed) == HELD
    assert answered(managed, "PARAM h n") == HELD
    assert answered(managed, "PARAM h u") == [UNSIGNED, "RESULT STATE CORRECT"]


PREEMPTIBLE = "PARAM ac OUTRIDER=image=http://h/a;preemptible=requeue"


def test_preemptible_job_may_be_run_again() -> None:
    answer = answered(PREEMPTIBLE)

    assert "PARAM r y" in answer
    assert answer[-1] == "RESULT STATE CORRECT"
    assert "PARAM r y" not in answered(PREEMPTIBLE.replace("requeue", "no"))


@pytest.mark.parametrize(
    "others", [["PARAM t_max 5"], ["PARAM ar 7", "PARAM l_hard outrider_reservation=TRUE"]]
)
def test_what_cannot_be_requeued_cannot_be_preemptible(others: list[str]) -> None:
    (line,) = answered(PREEMPTIBLE, *others)

    assert line.startswith("RESULT STATE REJECT outrider: ")
    assert "leave out preemptible" in line


def test_fault_of_ours_refuses_jobs_with_an_image_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(jsv.Job, "answer", broken)

    assert answered("PARAM N x") == ["RESULT STATE ACCEPT"]
    assert "has a fault" in answered("PARAM ac A=1,OUTRIDER=http://h/a")[0]
    assert "has a fault" in answered("ENV ADD OUTRIDER http://h/a")[0]
    assert "has a fault" in answered("ENV ADD OUTRIDER_IMAGE_WANTED http://h/a")[0]


def test_broken_configuration_refuses_jobs_with_an_image_and_no_others(tmp_path: Path) -> None:
    config = tmp_path / "jsv.json"
    config.write_text("{")

    assert answered("PARAM N x", config=config) == ["RESULT STATE ACCEPT"]
    assert str(config) in answered("PARAM ac OUTRIDER=http://h/a", config=config)[0]


def configured(folder: Path, allowed: object) -> Path:
    (folder / "key").write_text(KEY + "\n")
    (folder / "images").write_text(json.dumps({DIGEST: allowed}))
    config = folder / "jsv.json"
    config.write_text(json.dumps({"key": str(folder / "key"), "images": str(folder / "images")}))
    return config


def test_ticket_is_signed_for_who_may_use_the_image(tmp_path: Path) -> None:
    config = configured(tmp_path, [os.getuid()])
    user = pwd.getpwuid(os.getuid()).pw_name
    managed = f"PARAM ac OUTRIDER=image=http://h/a;digest=sha256:{DIGEST}"
    lines = answered(managed, f"PARAM USER {user}", "PARAM JOB_ID 17", config=config)
    array = answered(managed, f"PARAM USER {user}", "PARAM JOB_ID 17", "PARAM t_max 3", config=config)
    text = f"1.17.{os.getuid()}.{DIGEST}.{NOW_S + 30 * 86400}"
    mac = hmac.new(KEY.encode(), f"outrider-job|{text}".encode(), hashlib.sha256).hexdigest()

    assert f"ENV ADD OUTRIDER_TICKET {text}.{mac}" in lines
    assert [line.split(" ")[-1][:4] for line in array if line.startswith("ENV")] == ["1.-."]


def test_job_in_a_reservation_is_held_only_without_its_ticket(tmp_path: Path) -> None:
    """One in a reservation that has begun would start at once, and fail."""
    config = configured(tmp_path, [os.getuid()])
    user = pwd.getpwuid(os.getuid()).pw_name
    known = f"PARAM ac OUTRIDER=image=http://h/a;digest=sha256:{DIGEST}"
    for request in IN_RESERVATIONS:
        described = (known, f"PARAM USER {user}", "PARAM JOB_ID 17", "PARAM ar 7", request)
        signed = answered(*described, config=config)

        assert [line.partition(".")[0] for line in signed[:-1]] == ["ENV ADD OUTRIDER_TICKET 1"]
        assert answered("PARAM ac OUTRIDER=http://h/a", "PARAM ar 7", request) == HELD


def test_user_who_writes_another_name_and_number_into_the_options_gets_none_for_them(tmp_path: Path) -> None:
    config = configured(tmp_path, [os.getuid()])
    user = pwd.getpwuid(os.getuid()).pw_name
    managed = f"PARAM ac OUTRIDER=image=http://h/a;digest=sha256:{DIGEST}"
    lines = answered("PARAM USER bin", "PARAM JOB_ID 9", f"PARAM USER {user}", managed, config=config)
    own = answered(f"PARAM USER {user}", "PARAM JOB_ID 9", "PARAM JOB_ID 17", managed, config=config)

    assert UNSIGNED in lines
    assert [line for line in own if line.startswith("ENV ADD OUTRIDER_TICKET 1.9.")] != []


def test_nobody_else_gets_a_ticket(tmp_path: Path) -> None:
    config = configured(tmp_path, [os.getuid() + 1])
    user = pwd.getpwuid(os.getuid()).pw_name
    managed = f"PARAM ac OUTRIDER=image=http://h/a;digest=sha256:{DIGEST}"

    for lines in ((f"PARAM USER {user}", "PARAM JOB_ID 17"), ("PARAM USER no-such", "PARAM JOB_ID 17"), ()):
        assert UNSIGNED in answered(managed, *lines, config=config)


def test_ticket_of_a_users_own_is_replaced_or_taken_away() -> None:
    forged = "ENV ADD OUTRIDER_TICKET 1.5.0.forged"

    assert answered(forged, "PARAM ac OUTRIDER=http://h/a") == HELD
    assert answered(forged) == ["ENV DEL OUTRIDER_TICKET", "RESULT STATE CORRECT"]


def test_context_that_grid_engine_has_no_room_for_is_refused() -> None:
    """It reads a line of an answer into 10000 bytes, however long that is."""
    (line,) = answered("PARAM ac K=" + "é" * 4500 + ",OUTRIDER=http://h/a")

    assert line == "RESULT STATE REJECT outrider: its context has more than 8000 bytes"


def test_context_of_many_lines_is_refused_when_it_is_too_long_and_not_otherwise() -> None:
    plain = answered("PARAM ac K=a", *["x" * 99] * 10_000)
    long = answered("PARAM ac K=a", *["x" * 99] * 11_000)
    in_parts = answered(*["PARAM ac K=" + "x" * 99_999] * 11)

    assert plain == ["RESULT STATE ACCEPT"]
    assert long == in_parts
    assert long == [
        "RESULT STATE REJECT outrider: its -ac and -v OUTRIDER have more than 1048576 bytes: shorten them"
    ]


def test_process_answers_one_job_after_another_and_says_nothing_on_stderr() -> None:
    with qmaster() as master:
        states = [master.verdict("PARAM N x")[-1][:19]]
        states.append(master.verdict("PARAM ac OUTRIDER=http://h/a")[-1][:19])
        states.append(master.verdict("PARAM ac OUTRIDER=\udcff\udcfe")[-1][:19])
        end = master.end()

    assert states == ["RESULT STATE ACCEPT", "RESULT STATE CORREC", "RESULT STATE REJECT"]
    assert end == (0, b"")


# What a user can write into an option that Grid Engine hands on with its line breaks: an argument, a
# context, a folder, a name of a variable.
BREAKS = [
    "BEGIN",
    "BEGIN\nBEGIN",
    "START",
    "QUIT",
    "BEGIN\nSTART",
    "BEGIN\nQUIT",
    "BEGIN\nSTART\nPARAM VERSION 1.0\nPARAM USER root\nPARAM JOB_ID 18",
    "PARAM ac A=1\nBEGIN\nSTART\nPARAM ac B=1",
    "RESULT STATE ACCEPT",
    "ENV ADD OUTRIDER_TICKET none\nBEGIN",
]


@pytest.mark.parametrize("text", BREAKS)
@pytest.mark.parametrize("option", ["PARAM CMDARG0 x\n{}", "ENV ADD K\n{} 1 x", "PARAM o /tmp\n{}"])
def test_line_breaks_of_users_leave_the_protocol_in_step(option: str, text: str) -> None:
    managed = "PARAM ac OUTRIDER=http://h/a"
    with qmaster() as master:
        found = [
            master.verdict(option.format(text)),
            master.verdict(managed),
            master.verdict(option.format(text), managed),
            master.verdict("PARAM N x"),
            master.verdict(managed),
        ]
        end = master.end()

    assert found[1::3] == [HELD, HELD]
    assert found[0][-1] in ("RESULT STATE ACCEPT", "RESULT STATE CORRECT")
    assert found[2][-1].startswith("RESULT STATE ")
    assert found[3] == ["RESULT STATE ACCEPT"]
    assert end == (0, b"")


@pytest.mark.parametrize("text", BREAKS)
def test_verdict_that_came_too_early_is_the_only_one_of_its_job(text: str) -> None:
    """A qmaster that is interrupted for long after a user's BEGIN gets its answer, and then goes on."""
    with qmaster() as master:
        early = master.verdict("PARAM CMDARG0 x")
        master.say(f"PARAM CMDARG1 y\n{text}\nPARAM N x\nBEGIN\n".encode())
        wait_until_read(master, workers(master.process.pid)[0])
        following = [master.verdict("PARAM ac OUTRIDER=http://h/a") for _ in range(2)]

    assert early == ["RESULT STATE ACCEPT"]
    assert following == [HELD, HELD]


def workers(parent: int) -> list[str]:
    return Path(f"/proc/{parent}/task/{parent}/children").read_text().split()


def kill_worker(parent: int) -> None:
    """Kills it and waits for the next: what is written in between may still go to the dying one."""
    (before,) = workers(parent)
    os.kill(int(before), signal.SIGKILL)
    by_s = time.clock_gettime(time.CLOCK_MONOTONIC) + 20
    while (now := workers(parent)) in ([], [before]):
        if time.clock_gettime(time.CLOCK_MONOTONIC) > by_s:
            pytest.fail(f"no worker takes the place of {before}; there are {now}")
        time.sleep(0.01)


def wait_until_read(master: Qmaster, worker: str) -> None:
    """Waits until a worker has taken all that was said, and waits for more."""
    assert master.process.stdin is not None
    by_s = time.clock_gettime(time.CLOCK_MONOTONIC) + 20
    while True:
        left = fcntl.ioctl(master.process.stdin, termios.FIONREAD, bytes(4))
        where = Path(f"/proc/{worker}/wchan").read_text()
        if not any(left) and "pipe_read" in where:
            return
        if time.clock_gettime(time.CLOCK_MONOTONIC) > by_s:
            pytest.fail(f"worker {worker} is in {where} and has not read {left!r}")
        time.sleep(0.01)


def test_killed_worker_is_replaced_and_the_next_job_answered() -> None:
    with qmaster() as master:
        answers = []
        for _ in range(3):
            answers.append(master.verdict("PARAM ac OUTRIDER=http://h/a"))
            # One that is killed while it writes has no successor: nobody knows what was said.
            wait_until_read(master, workers(master.process.pid)[0])
            kill_worker(master.process.pid)
        end = master.end()

    assert answers == [HELD] * 3
    assert end == (0, b"")


def test_worker_killed_in_a_job_ends_the_process_and_with_it_the_pipe() -> None:
    with qmaster() as master:
        master.verdict("PARAM N x")
        master.say(b"START\nPARAM VERSION 1.0\n")
        (worker,) = workers(master.process.pid)
        wait_until_read(master, worker)
        os.kill(int(worker), signal.SIGKILL)
        status = master.process.wait(60)
        left = [master.read() for _ in range(3)]

    assert status == 1
    assert left == ["SEND ENV", "STARTED", ""]


def test_endless_option_is_neither_kept_nor_a_reason_to_refuse_a_job_without_an_image() -> None:
    long = "x" * (3 << 20)
    with qmaster() as master:
        plain = master.verdict(f"PARAM CMDARG0 {long}", f"ENV ADD A {long}")
        managed = master.verdict(f"PARAM ac OUTRIDER={long}")

    assert plain[-1] == "RESULT STATE ACCEPT"
    assert managed[-1].startswith("RESULT STATE REJECT")


def test_filters_load_nothing_but_the_standard_library() -> None:
    heads = [path.read_text().splitlines()[0] for path in (SERVER, CLIENT)]

    assert heads == ["#!/usr/bin/python3 -ISBWignore"] * 2
    assert [run(path, b"QUIT\n")[0] for path in (SERVER, CLIENT)] == [0, 0]


def client(*lines: str) -> list[str]:
    status, answer, error = run(CLIENT, job(*lines) + b"QUIT\n")
    assert (status, error) == (0, b"")
    return answer[1:]


def test_clients_filter_carries_the_lines_of_a_script(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n#OUTRIDER image: http://h/a\n#OUTRIDER size: 3 GiB\nsleep 1\n")
    line, state = client(f"PARAM CMDNAME {script}", "PARAM ac A=1")
    context = line.removeprefix("PARAM ac A=1,OUTRIDER=")

    assert state == "RESULT STATE CORRECT"
    assert jsv.decoded(context) == "image: http://h/a\nsize: 3 GiB"
    assert client(f"PARAM CMDNAME {script}", "PARAM b y") == ["RESULT STATE ACCEPT"]
    assert client(f"PARAM CMDNAME {tmp_path}/none") == ["RESULT STATE ACCEPT"]


@pytest.mark.parametrize("count", [2_800, 60_000])
def test_clients_filter_refuses_what_grid_engine_has_no_room_for(tmp_path: Path, count: int) -> None:
    """A line of an answer with more than 10000 bytes ends qsub with a segmentation fault."""
    script = tmp_path / "job.sh"
    script.write_text("#!/bin/sh\n" + "#OUTRIDER image: http://h/a\n" * count)
    (refused,) = client(f"PARAM CMDNAME {script}")
    script.write_text("#!/bin/sh\n#OUTRIDER image: http://h/a\n")
    (long_context,) = client(f"PARAM CMDNAME {script}", "PARAM ac A=" + "x" * 8000)
    (long_requests,) = client("PARAM ac OUTRIDER=http://h/a", "PARAM ar 3", "PARAM l_hard a=" + "x" * 8000)

    assert "outrider: the script begins with " in refused
    assert refused.endswith("at most 4000 can be handed on: write each key once")
    assert "the context (-ac) would have 80" in long_context
    assert "the requests (-l) have 8002 bytes" in long_requests
    assert {line.split(" outrider")[0] for line in (refused, long_context, long_requests)} == {
        "RESULT STATE REJECT"
    }


def test_clients_filter_takes_no_half_of_a_line(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    mark = "#OUTRIDER image: http://h/"
    script.write_text("#" * (65_536 - len(mark) - 3) + "\n" + mark + "abcdefg\n")

    assert client(f"PARAM CMDNAME {script}") == ["RESULT STATE ACCEPT"]


def test_clients_filter_asks_for_the_queue_of_reservations_as_it_was_asked(tmp_path: Path) -> None:
    managed = "PARAM ac OUTRIDER=http://h/a"

    assert client(managed, "PARAM ar 3", "PARAM l_hard h_rt=20")[0] == (
        "PARAM l_hard h_rt=20,outrider_reservation=TRUE"
    )
    assert client(managed, "PARAM ar 3", "PARAM global_l_hard h_rt=20")[0] == (
        "PARAM global_l_hard h_rt=20,outrider_reservation=TRUE"
    )
    assert client(managed) == ["RESULT STATE ACCEPT"]
    assert client("PARAM ar 3") == ["RESULT STATE ACCEPT"]
