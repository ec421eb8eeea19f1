"""The service's log in both of its forms."""

from __future__ import annotations

import io
import json

from outrider.service.daemon.log import Format, TracingLog, make_log


class Noon:
    def now_s(self) -> int:
        return 1_800_000_000


def log(stream: io.StringIO, format: Format, **environment: str) -> TracingLog:
    return make_log(stream, level="info", format=format, clock=Noon(), environment=environment)


def test_text_is_a_phrase_and_pairs() -> None:
    stream = io.StringIO()
    log(stream, "text").info("reservation accepted", name="r-1", words="two words\nand a line")

    assert stream.getvalue() == 'info reservation accepted name=r-1 words="two words\\nand a line"\n'


def test_journal_is_told_how_important_a_line_is() -> None:
    stream = io.StringIO()
    log(stream, "text", JOURNAL_STREAM="8:1").warning("node away", node="n1")

    assert stream.getvalue() == "<4>node away node=n1\n"


def test_json_is_an_object_a_line() -> None:
    stream = io.StringIO()
    log(stream, "json").info("reservation accepted", name="r-1", bytes=7, words="a\nb", nothing=None)

    assert json.loads(stream.getvalue()) == {
        "time": "2027-01-15T08:00:00Z",
        "level": "info",
        "event": "reservation accepted",
        "name": "r-1",
        "bytes": 7,
        "words": "a\nb",
    }
    assert stream.getvalue().count("\n") == 1


def test_field_cannot_pass_for_the_level() -> None:
    stream = io.StringIO()
    log(stream, "json").info("x", level="error")

    assert json.loads(stream.getvalue())["level"] == "info"


def test_what_is_below_the_level_is_not_written() -> None:
    for format in ("text", "json"):
        stream = io.StringIO()
        log(stream, "json" if format == "json" else "text").debug("x")

        assert stream.getvalue() == ""


def test_traceback_stays_one_object() -> None:
    stream = io.StringIO()
    log(stream, "json").trace("the desk failed", "Traceback:\n  a\nb\n")

    assert json.loads(stream.getvalue())["traceback"] == ["Traceback:", "  a", "b"]
