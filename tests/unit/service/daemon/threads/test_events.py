"""Files are looked at with their user's rights, and sources of the site's own are asked."""

from __future__ import annotations

import os
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from outrider.metadata.notation.events import EventSpec
from outrider.service.daemon.threads import events
from outrider.service.daemon.threads.events import ask_event
from outrider.service.ports import AskEvent, EventAnswer

NOBODY_UID = 65534
IS_ROOT = os.geteuid() == 0


def ask(spec: EventSpec, uid: int) -> EventAnswer:
    return ask_event(AskEvent(reservation="beam-1", event=spec, uid=uid))


@pytest.mark.parametrize("uid", [os.geteuid(), *([NOBODY_UID] if IS_ROOT else [])])
def test_file_is_there_or_not(uid: int) -> None:
    answers = [ask(EventSpec("file", path), uid) for path in ("/etc/passwd", "/etc/no-such", "/etc/passwd/x")]

    assert [each.has_happened for each in answers] == [True, False, False]
    assert [each.words for each in answers] == ["", "", ""]


@pytest.mark.skipif(not IS_ROOT, reason="needs root")
def test_file_behind_a_door_that_is_shut_to_its_user_is_not_seen(tmp_path: Path) -> None:
    folder = tmp_path / "shut"
    folder.mkdir(mode=0o700)
    (folder / "run.done").touch()

    answer = ask(EventSpec("file", str(folder / "run.done")), NOBODY_UID)

    assert not answer.has_happened
    assert "Permission denied" in answer.words


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("hutch 3", EventAnswer(has_happened=True)),
        ("hutch 4", EventAnswer()),
        ("", EventAnswer(words="source beam gave no answer: ValueError: nothing is asked")),
    ],
)
def test_source_of_the_site_is_asked(
    monkeypatch: pytest.MonkeyPatch, question: str, expected: EventAnswer
) -> None:
    found = EntryPoint(name="beam", group=events.GROUP, value=f"{__name__}:has_beam")
    monkeypatch.setattr(events, "entry_points", lambda group, name: [found] if name == "beam" else [])

    assert ask(EventSpec("source", f"beam:{question}"), 1001) == expected
    assert ask(EventSpec("source", "dark"), 1001).words == "this site has no source of events called dark"


def has_beam(question: str) -> bool:
    if not question:
        raise ValueError("nothing is asked")
    return question == "hutch 3"
