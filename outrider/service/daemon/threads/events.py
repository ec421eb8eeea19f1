"""Looking whether an event has come: a file that is there, or a source of the site's own that says so.

A file is looked at with its user's rights and no others, since whether it is there can itself be a secret. A
service that is root lets a short-lived program become the user and look; one that is not root looks only for
the user that it runs as.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points

from outrider.metadata.notation.events import FILE
from outrider.service.daemon.threads.lookups import groups_of
from outrider.service.ports import AskEvent, EventAnswer

GROUP = "outrider.event_sources"
NOBODY = 65534
LOOK_S = 5.0
# Started as root, since users may not be able to run this interpreter. Reads who to become and a path.
PROGRAM = """
import os, sys
ids, _, path = sys.stdin.buffer.read().partition(b" ")
uid, *gids = map(int, ids.split(b","))
os.setgroups(gids)
os.setresgid(gids[0], gids[0], gids[0])
os.setresuid(uid, uid, uid)
try:
    os.stat(path)
except (FileNotFoundError, NotADirectoryError):
    sys.exit(10)
except OSError as error:
    sys.exit(20 + min(error.errno or 5, 200))
sys.exit(11)
"""
_ABSENT, _THERE, _ERRORS = 10, 11, 20


def ask_event(call: AskEvent) -> EventAnswer:
    """Whether the event has come, as far as can be seen now."""
    event = call.event
    if event.kind != FILE:
        return _ask_source(event.text)
    if os.geteuid() == 0:
        return look_by_program(event.text, call.uid, tuple(groups_of(call.uid)))
    if call.uid != os.geteuid():
        return EventAnswer(words=f"the service is not root, so it cannot look at {event.text} for you")
    try:
        os.stat(event.text)
    except (FileNotFoundError, NotADirectoryError):
        return EventAnswer()
    except OSError as error:
        return EventAnswer(words=_unseen(event.text, error.errno or 5))
    return EventAnswer(has_happened=True)


def look_by_program(path: str, uid: int, gids: tuple[int, ...], *, timeout_s: float = LOOK_S) -> EventAnswer:
    """For a service that is root."""
    ids = ",".join(map(str, (uid, *(gids or (NOBODY,)))))
    try:
        code = subprocess.run(
            [sys.executable, "-I", "-S", "-c", PROGRAM],
            # Not among the arguments, which everybody could see.
            input=ids.encode() + b" " + os.fsencode(path),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            timeout=timeout_s,
            check=False,
        ).returncode
    except subprocess.TimeoutExpired:
        return EventAnswer(
            words=f"{path} could not be looked at within {timeout_s:g} s: is its file system there?"
        )
    except OSError as error:
        return EventAnswer(words=f"{path} could not be looked at: {error.strerror}")
    if code in (_ABSENT, _THERE):
        return EventAnswer(has_happened=code == _THERE)
    return EventAnswer(words=_unseen(path, code - _ERRORS if code > _ERRORS else 5))


def _unseen(path: str, number: int) -> str:
    return f"you cannot look at {path} on the head node: {os.strerror(number)}"


def _ask_source(text: str) -> EventAnswer:
    """A function that the site has installed: it is called with what the user asks, and says yes or no."""
    name, _, question = text.partition(":")
    found = list(entry_points(group=GROUP, name=name))
    if not found:
        return EventAnswer(words=f"this site has no source of events called {name}")
    try:
        return EventAnswer(has_happened=bool(found[0].load()(question)))
    except Exception as error:  # noqa: BLE001 - the site's own program: whatever it is, its user is told
        return EventAnswer(words=f"source {name} gave no answer: {type(error).__name__}: {error}")
