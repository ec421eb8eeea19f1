"""When what recurs starts, with clocks that are changed and days that are no working days."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

import pytest

from outrider.metadata.errors import TextError
from outrider.metadata.notation.repetition import MOST_OCCURRENCES, starts

BERLIN = ZoneInfo("Europe/Berlin")
HOUR_S = 3_600


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def local(every: str, first: str, until: str, zone: tzinfo = BERLIN, duration_s: int = HOUR_S) -> list[str]:
    first_s = at(first)
    found = starts(every, until, first_s=first_s, duration_s=duration_s, now_s=first_s - HOUR_S, zone=zone)
    return [datetime.fromtimestamp(each, zone).isoformat(timespec="minutes") for each in found]


def test_time_of_day_stays_when_clocks_are_changed() -> None:
    # In 2027 clocks go forward in Berlin on 28 March and back on 31 October.
    assert local("daily", "2027-03-27T09:00+01:00", "2027-03-29") == [
        "2027-03-27T09:00+01:00",
        "2027-03-28T09:00+02:00",
        "2027-03-29T09:00+02:00",
    ]
    assert local("weekly", "2027-10-26T09:00+02:00", "2027-11-02") == [
        "2027-10-26T09:00+02:00",
        "2027-11-02T09:00+01:00",
    ]


def test_time_that_does_not_happen_is_later_and_one_that_happens_twice_is_the_first() -> None:
    assert local("daily", "2027-03-27T02:30+01:00", "2027-03-29") == [
        "2027-03-27T02:30+01:00",
        "2027-03-28T03:30+02:00",
        "2027-03-29T02:30+02:00",
    ]
    assert local("daily", "2027-10-30T02:30+02:00", "2027-10-31") == [
        "2027-10-30T02:30+02:00",
        "2027-10-31T02:30+02:00",
    ]


def test_duration_counts_seconds_whatever_clocks_do() -> None:
    assert local("24h", "2027-03-27T09:00+01:00", "2027-03-28") == [
        "2027-03-27T09:00+01:00",
        "2027-03-28T10:00+02:00",
    ]


def test_weekdays_leave_out_the_weekend_also_at_first() -> None:
    # 2 January 2027 is a Saturday.
    assert local("weekdays", "2027-01-02T09:00+01:00", "2027-01-11") == [
        f"2027-01-{day:02}T09:00+01:00" for day in (4, 5, 6, 7, 8, 11)
    ]


def test_date_means_its_whole_day_and_a_time_means_that_instant() -> None:
    first = "2027-06-01T20:00+00:00"
    assert len(local("daily", first, "2027-06-03", UTC)) == 3
    assert len(local("daily", first, "2027-06-03T19:59", UTC)) == 2
    assert len(local("daily", first, "2027-06-03T20:00", UTC)) == 3


@pytest.mark.parametrize(
    ("every", "until", "duration_s", "words"),
    [
        ("hourly", "2027-06-03", HOUR_S, "is not how often"),
        ("daily", "2027-05-30", HOUR_S, "is before the first start"),
        ("daily", "2037-06-03", HOUR_S, f"more than {MOST_OCCURRENCES} times"),
        ("2h", "2027-06-03", 3 * HOUR_S, "before the one before it has ended"),
        ("daily", "never", HOUR_S, "is not a point in time"),
    ],
)
def test_what_cannot_be_meant_is_refused(every: str, until: str, duration_s: int, words: str) -> None:
    with pytest.raises(TextError, match=words):
        local(every, "2027-06-01T20:00+00:00", until, UTC, duration_s)


def test_as_often_as_it_lasts_is_possible() -> None:
    assert len(local("2h", "2027-06-01T20:00+00:00", "2027-06-01T23:59", UTC, 2 * HOUR_S)) == 2
