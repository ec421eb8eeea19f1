"""Points in time as users write them, in Berlin at 18:00 on Saturday, 21 November 2026."""

from __future__ import annotations

from calendar import timegm
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.metadata.errors import TextError
from outrider.metadata.notation.times import LAST_S, format_instant, parse_instant
from outrider.metadata.notation.zones import user_zone

BERLIN = ZoneInfo("Europe/Berlin")
NOW_S = timegm((2026, 11, 21, 17, 0, 0))
HOUR_S, DAY_S = 3600, 86_400


def utc_s(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    return timegm((year, month, day, hour, minute, second))


def parsed(text: str, *, now_s: int = NOW_S) -> int:
    return parse_instant(text, now_s=now_s, zone=BERLIN)


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [
        ("now", NOW_S),
        (" NOW ", NOW_S),
        ("now+90", NOW_S + 90),
        ("now+8hours", NOW_S + 8 * HOUR_S),
        ("now + 1 minute", NOW_S + 60),
        ("now+2days", NOW_S + 2 * DAY_S),
        ("now+1week", NOW_S + 7 * DAY_S),
        # Berlin is an hour ahead of UTC in winter, two in summer.
        ("today", utc_s(2026, 11, 20, 23)),
        ("tomorrow", utc_s(2026, 11, 21, 23)),
        ("tomorrow 16:00", utc_s(2026, 11, 22, 15)),
        ("16:00 tomorrow", utc_s(2026, 11, 22, 15)),
        ("tomorrow-teatime", utc_s(2026, 11, 22, 15)),
        ("18:01", utc_s(2026, 11, 21, 17, 1)),
        ("18:00", utc_s(2026, 11, 22, 17)),
        ("18:00:30", utc_s(2026, 11, 21, 17, 0, 30)),
        ("16:00", utc_s(2026, 11, 22, 15)),
        ("9:15", utc_s(2026, 11, 22, 8, 15)),
        ("8:30 PM", utc_s(2026, 11, 21, 19, 30)),
        ("12:00am", utc_s(2026, 11, 21, 23)),
        ("12:00pm", utc_s(2026, 11, 22, 11)),
        ("midnight", utc_s(2026, 11, 21, 23)),
        ("noon", utc_s(2026, 11, 22, 11)),
        ("elevenses", utc_s(2026, 11, 22, 10)),
        ("fika", utc_s(2026, 11, 22, 14)),
        ("teatime", utc_s(2026, 11, 22, 15)),
        ("2027-01-31", utc_s(2027, 1, 30, 23)),
        ("2027-01-31T14:00", utc_s(2027, 1, 31, 13)),
        ("2027-1-31t14:00:05", utc_s(2027, 1, 31, 13, 0, 5)),
        ("2027-07-31 14:00", utc_s(2027, 7, 31, 12)),
        ("01/31/27-14:00", utc_s(2027, 1, 31, 13)),
        ("01/31/2027 14:00", utc_s(2027, 1, 31, 13)),
        ("01.31.27", utc_s(2027, 1, 30, 23)),
        ("013127", utc_s(2027, 1, 30, 23)),
        ("0131", utc_s(2027, 1, 30, 23)),
        ("12/24", utc_s(2026, 12, 23, 23)),
        ("11/21-17:00", utc_s(2027, 11, 21, 16)),
        ("11/21-19:00", utc_s(2026, 11, 21, 18)),
        ("02/29", utc_s(2028, 2, 28, 23)),
        ("2027-01-31T14:00:00Z", utc_s(2027, 1, 31, 14)),
        ("2027-01-31T14:00:00.000Z", utc_s(2027, 1, 31, 14)),
        ("2027-01-31T14:00-05:00", utc_s(2027, 1, 31, 19)),
        ("2027-01-31T14:00+0530", utc_s(2027, 1, 31, 8, 30)),
        ("2027-01-31T14:00+01", utc_s(2027, 1, 31, 13)),
        ("17:30Z", utc_s(2026, 11, 21, 17, 30)),
        ("16:30Z", utc_s(2026, 11, 22, 16, 30)),
        ("uts1800000000", 1_800_000_000),
    ],
)  # fmt: skip
def test_text_means_this_instant(text: str, expected_s: int) -> None:
    assert parsed(text) == expected_s


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "write now"),
        ("soon", "write now"),
        ("4pm", "write now"),
        ("25:00", "hour 25 is not between 0 and 23"),
        ("12:60", "minute 60 is not between 0 and 59"),
        ("12:00:60", "second 60"),
        ("13:00 pm", "hour 13 is not between 1 and 12"),
        ("31.01.27", "month 31 is not between 1 and 12"),
        ("2027-02-29", "month 2 of 2027 has no day 29"),
        ("02/30", "month 2 has no day 30"),
        ("2027-01-31T", '"t" cannot be understood'),
        ("2027-01-31T14", "cannot be understood"),
        ("16:00 someday", '" someday" cannot be understood'),
        ("now+3fortnights", '"fortnights" is not a unit'),
        ("now-1hour", "write now"),
        ("1969-12-31", "year 1969 is not between 1970"),
        ("now+9999999999weeks", "between the years"),
        ("uts999999999999", "between the years"),
        ("2027-01-31T14:00+25:00", "hour of the zone 25"),
        ("2027-01-31T14:00:00.5Z", "cannot be understood"),
        ("２０２７-01-31", "write now"),
    ],
)
def test_error_names_the_part_that_is_wrong(text: str, part: str) -> None:
    with pytest.raises(TextError) as caught:
        parsed(text)

    assert part in str(caught.value)
    assert "is not a point in time" in str(caught.value)


def test_time_that_happens_twice_is_refused_with_both_readings() -> None:
    with pytest.raises(
        TextError, match=r"happens twice .* 2027-10-31T02:30:00\+02:00 or 2027-10-31T02:30:00\+01:00"
    ):
        parsed("2027-10-31T02:30")

    assert parsed("2027-10-31T02:30+02:00") == utc_s(2027, 10, 31, 0, 30)


def test_time_that_does_not_happen_is_refused_with_its_neighbours() -> None:
    with pytest.raises(
        TextError, match=r"does not happen .* 2027-03-28T01:30:00\+01:00 or 2027-03-28T03:30:00\+02:00"
    ):
        parsed("2027-03-28T02:30")

    assert parsed("2027-03-28T03:00") == utc_s(2027, 3, 28, 1)


def test_tomorrow_is_the_next_day_also_when_days_are_longer_or_shorter() -> None:
    # At 23:30 on the eve of the day of 25 hours, and 24 hours before that day's end.
    late_s = utc_s(2027, 10, 30, 21, 30)

    assert parsed("tomorrow noon", now_s=late_s) == utc_s(2027, 10, 31, 11)
    assert parsed("now+1day", now_s=late_s) == late_s + DAY_S


def test_limit_is_the_year_9000() -> None:
    assert utc_s(9000, 1, 1) == LAST_S
    assert parsed("8999-12-31T00:00Z") == LAST_S - DAY_S


@given(st.integers(0, LAST_S - 1), st.integers(-14 * 60, 14 * 60))
def test_what_is_printed_is_read_back(at_s: int, offset_minutes: int) -> None:
    zone = timezone(timedelta(minutes=offset_minutes))
    text = format_instant(at_s, zone=zone)

    # A zone ahead of UTC begins the year 9000 early; what is written then is out of reach.
    if not text.startswith(("9000", "1969")):
        assert parse_instant(text, now_s=NOW_S, zone=BERLIN) == at_s


@given(st.integers(utc_s(2000, 1, 1), utc_s(2037, 1, 1)))
def test_instants_of_a_real_zone_are_read_back(at_s: int) -> None:
    assert parsed(format_instant(at_s, zone=BERLIN)) == at_s


@given(st.integers(utc_s(2000, 1, 1), utc_s(2037, 1, 1)))
def test_local_time_is_refused_exactly_around_changes_of_the_clocks(at_s: int) -> None:
    local = datetime.fromtimestamp(at_s, BERLIN)
    other_fold = local.replace(fold=1 - local.fold)
    try:
        understood_s: int | None = parsed(local.strftime("%Y-%m-%dT%H:%M:%S"))
    except TextError:
        understood_s = None

    assert understood_s == (at_s if other_fold.utcoffset() == local.utcoffset() else None)


@given(st.text(max_size=30) | st.text("0123456789:-+/. TZapmnow", max_size=20))
def test_any_text_is_an_instant_or_refused(text: str) -> None:
    try:
        at_s = parsed(text)
    except TextError:
        return

    assert 0 <= at_s < LAST_S


def test_zone_is_that_of_the_environment() -> None:
    assert user_zone({"TZ": ":America/New_York"}).utcoffset(datetime(2027, 1, 1)) == timedelta(hours=-5)  # noqa: DTZ001


def test_zone_without_a_name_is_the_machine_s(tmp_path: Path) -> None:
    assert user_zone({}, localtime=tmp_path / "absent") is UTC
    (tmp_path / "broken").write_text("not a zone")
    assert user_zone({"TZ": ""}, localtime=tmp_path / "broken") is UTC


@pytest.mark.parametrize("name", ["Europe/Nowhere", "../../etc/passwd", "/etc/passwd", "\0", "x" * 5000])
def test_unknown_zone_is_refused_with_a_remedy(name: str) -> None:
    with pytest.raises(TextError, match="set it to one like Europe/Berlin"):
        user_zone({"TZ": name})
