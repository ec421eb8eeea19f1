"""What people write and read: times, tables, progress, names."""

from __future__ import annotations

import io

import pytest

from cachemgr.base.errors import BadRequest, CacheError
from cachemgr.base.tables import cut, facts, table
from cachemgr.base.times import ago_in_words, read_span, read_time, span_in_words
from cachemgr.cli import answers
from cachemgr.cli.progress import CLEAR, QUIET, VERBOSE, ProgressLine, standing
from cachemgr.protocol import ListedTransfers


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("2h", 7200), ("2h30m", 9000), ("7d", 604_800), ("1W", 604_800)],
)
def test_lengths_of_time_are_read(text: str, seconds: int) -> None:
    assert read_span(text) == seconds


@pytest.mark.parametrize("text", ["", "h", "2 h", "-5m", "1.5h", "1y", "٣h", "9" * 13, "2h30m!"])
def test_what_is_no_length_of_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadRequest, match="2h30m"):
        read_span(text)


@pytest.mark.parametrize(
    ("text", "epoch_s"),
    [
        ("+2h", 1_000_007_200),
        ("+90", 1_000_000_090),
        # 2001-09-09T01:46:40Z is the thousand millionth second.
        ("2001-09-09T01:46:40Z", 1_000_000_000),
        ("2001-09-09T03:46:40+02:00", 1_000_000_000),
        ("2001-09-09T01:46:40+00:00", 1_000_000_000),
    ],
)
def test_points_in_time_are_read(text: str, epoch_s: int) -> None:
    assert read_time(text, 1_000_000_000) == epoch_s


def test_a_time_without_zone_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Etc/GMT-2")
    time.tzset()
    try:
        found = read_time("2001-09-09T03:46:40", 0)
    finally:
        monkeypatch.undo()
        time.tzset()

    assert found == 1_000_000_000


@pytest.mark.parametrize("text", ["", "tomorrow", "+", "+2 h", "2026-13-01", "now", "12:00", "Z"])
def test_what_is_no_point_in_time_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadRequest, match="2026-01-31T14:00"):
        read_time(text, 0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (-3, "0 s"), (59.6, "1 min"), (61, "1 min 1 s"), (3600, "1 h"), (90_000, "1 d 1 h")],
)
def test_lengths_of_time_are_written_with_two_units_at_most(seconds: float, text: str) -> None:
    assert span_in_words(seconds) == text


def test_ago_has_one_unit() -> None:
    assert [ago_in_words(1000 - back, 1000) for back in (-5, 5, 119, 3601, 200_000)] == [
        "0 s", "5 s", "1 min", "1 h", "2 d",
    ]  # fmt: skip


def test_table_aligns_columns_and_leaves_no_field_empty() -> None:
    text = table((">SIZE", "NAME", "END"), [("5", "a", ""), ("1000", "long", "x y")])

    assert text == "SIZE  NAME  END\n   5  a     -\n1000  long  x y"


def test_table_without_header_is_rows_alone() -> None:
    assert table(("A", "B"), [("1", "2")], has_header=False) == "1  2"


def test_what_users_named_cannot_move_the_cursor_or_forge_a_line() -> None:
    assert table(("A",), [("x\x1b[2J\ny",)], has_header=False) == "x?[2J?y"
    assert facts([("name", "a\rb")]) == "name  a?b"


def test_wide_letters_take_two_columns() -> None:
    assert table(("A", "B"), [("日", "x"), ("ab", "y")], has_header=False) == "日  x\nab  y"


class Time:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def now_s(self) -> int:
        return 1_000 + int(self.seconds)

    def monotonic_s(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


RUNNING: answers.Result = {
    "transfer": "t1", "state": "running", "bytes": 1 << 20, "size_bytes": 4 << 20,
    "rate_bytes_per_s": 1 << 20, "finish_s": 1_003, "source": "http://host/image",
}  # fmt: skip


def test_standing_tells_share_rate_rest_and_source() -> None:
    assert standing(RUNNING, 1_000) == (
        "25 %, 1.0 MiB of 4.0 MiB, 1.0 MiB/s, 3 s left, from http://host/image"
    )


def test_standing_of_a_transfer_that_waits_says_so() -> None:
    assert standing({"state": "waiting", "size_bytes": 1024}, 0) == "waiting, 0 %, 0 B of 1.0 KiB"
    assert standing({}, 0) == "waiting"


def test_terminal_shows_nothing_of_what_is_over_within_a_second() -> None:
    clock, terminal = Time(), Terminal()
    shown = ProgressLine("image", terminal, clock)
    clock.seconds = 0.9
    shown(RUNNING)
    shown.end()

    assert terminal.getvalue() == ""


def test_terminal_has_one_line_that_is_taken_away_at_the_end() -> None:
    clock, terminal = Time(), Terminal()
    shown = ProgressLine("image", terminal, clock)
    for clock.seconds in (1.0, 1.05, 1.2):
        shown(RUNNING)
    shown.end()

    pieces = terminal.getvalue().split(CLEAR)
    assert [piece[:5] for piece in pieces] == ["", "image", "image", ""]
    assert "\n" not in terminal.getvalue()


@pytest.mark.parametrize(("volume", "lines"), [(QUIET, 0), (0, 2), (VERBOSE, 13)])
def test_a_log_gets_a_line_now_and_then(volume: int, lines: int) -> None:
    clock, log = Time(), io.StringIO()
    shown = ProgressLine("image", log, clock, volume=volume)
    for second in range(66):
        clock.seconds = second
        shown(RUNNING)
    shown.end()

    assert log.getvalue().count("\n") == lines
    assert all(line.startswith("cachemgr: image: 25 %") for line in log.getvalue().splitlines())


def test_line_is_cut_to_the_terminal() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"
    assert cut("日本語", 5) == "日本…"


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"transfers": "x"}, "transfers"),
        ({"transfers": [5]}, "transfers"),
        ({"transfers": [{"transfer": 5}]}, "transfer"),
        ({"transfers": [{"bytes": True}]}, "bytes"),
        ({"transfers": [], "limit_bytes_per_s": float("inf")}, "limit_bytes_per_s"),
    ],
)
def test_answer_of_another_form_is_an_error_that_names_the_field(
    given: dict[str, object], field: str
) -> None:
    with pytest.raises(CacheError, match=f"unusable {field}: compare its version"):
        answers.read(ListedTransfers, given)
