"""`outrider top`: who does it, at a glance."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outrider.cli.main import main
from outrider.service.answers.site import ShareList, ShareView
from tests.unit.cli.canned import Reply, Service
from tests.unit.cli.samples import NOW_S, SHARES

Capture = pytest.CaptureFixture[str]
PATH = "/v1/shares"


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cachemgr.base.clock.SystemClock.now_s", lambda clock: NOW_S)


def shown(service: Service, capsys: Capture, found: ShareList, *options: str) -> list[str]:
    service.on("GET", PATH, found)
    assert main(["top", *options]) == 0
    return capsys.readouterr().out.splitlines()


def view(**changes: object) -> ShareView:
    return replace(SHARES.shares[0], **changes)  # type: ignore[arg-type]


def test_who_takes_most_is_named_before_the_table(service: Service, capsys: Capture) -> None:
    lines = shown(service, capsys, SHARES)

    assert lines[0] == (
        "eve has 100% of the transfers that one user may have on n17, and was refused more 1,204 times"
    )
    assert lines[1].split()[:4] == ["USER", "SHARE", "THING", "WHERE"]
    assert lines[2].split() == ["eve", "100%", "transfers", "n17", "24", "24", "1,204", "960", "40"]
    assert lines[-1] == "5,000 nodes as they reported within the last 4 min"


def test_columns_are_aligned(service: Service, capsys: Capture) -> None:
    lines = shown(service, capsys, SHARES)[1:-1]

    at = lines[0].index("THING")
    assert {line[at - 2 : at] for line in lines} == {"  "}
    assert all(line[at] != " " for line in lines)


@pytest.mark.parametrize(
    ("is_of_all", "words"),
    [
        (True, "nobody has more than half of any limit"),
        (False, "you do not have more than half of any limit"),
    ],
)
def test_calm_is_said(service: Service, capsys: Capture, is_of_all: bool, words: str) -> None:
    few = replace(SHARES, shares=(view(held=12, most=24),), is_of_all=is_of_all)

    assert shown(service, capsys, few)[0] == words


def test_thing_without_a_limit_is_no_alarm_and_has_no_share(service: Service, capsys: Capture) -> None:
    many = replace(SHARES, shares=(view(most=None, held=10**6, refused=0),))
    lines = shown(service, capsys, many)

    assert lines[0] == "nobody has more than half of any limit"
    assert lines[2].split()[1] == "-"


def test_four_are_named_as_three_and_one_more(service: Service, capsys: Capture) -> None:
    found = replace(SHARES, shares=tuple(view(user=user) for user in ("a", "b", "c", "d")))

    assert shown(service, capsys, found)[3] == "and 1 more are above half of a limit"


def test_sizes_and_times_are_in_their_units(service: Service, capsys: Capture) -> None:
    found = replace(
        SHARES,
        shares=(
            view(thing="bytes held", unit="bytes", held=2**30, most=2**31, nodes=1),
            view(thing="reserved time", unit="node-seconds", held=7_500, most=None, nodes=0, where="head"),
        ),
    )
    first, second = (line.split() for line in shown(service, capsys, found, "-n"))

    assert first[4:6] == ["1.0GiB", "2.0GiB"]
    assert second[4] == "2h5min"


def test_noheader_leaves_rows_alone(service: Service, capsys: Capture) -> None:
    lines = shown(service, capsys, SHARES, "--noheader")

    assert len(lines) == len(SHARES.shares)


def test_nothing_shared_is_said(service: Service, capsys: Capture) -> None:
    nothing = replace(SHARES, shares=(), nodes=0, oldest_s=None)

    assert shown(service, capsys, nothing) == ["nobody has anything of what is shared"]


def test_what_is_missing_is_said(service: Service, capsys: Capture) -> None:
    found = replace(SHARES, missing=("the desk did not answer in time",), is_complete=False)
    lines = shown(service, capsys, found)

    assert lines[-3:-1] == ["the desk did not answer in time", "there are more than are listed at once"]


def test_options_are_what_is_asked_for(service: Service, capsys: Capture) -> None:
    shown(service, capsys, SHARES, "--user", "eve", "--thing", "transfers", "--node", "n[1-4]")

    assert service.last("GET").query == {"user": "eve", "thing": "transfers", "nodes": "n[1-4]"}


def test_json_is_the_answer_and_with_every_a_line_each(
    service: Service, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.on("GET", PATH, SHARES)
    looks = iter([None, None])

    def sleep(clock: object, seconds: float) -> None:
        if next(looks, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr("cachemgr.base.clock.SystemClock.sleep", sleep)
    once = main(["top", "--json"])
    answer = json.loads(capsys.readouterr().out)
    again = main(["top", "--json", "--every", "1"])
    lines = capsys.readouterr().out.splitlines()

    assert (once, again) == (0, 130)
    assert answer == json.loads(Reply(value=SHARES).content)
    assert [json.loads(line) for line in lines] == [answer] * 3
