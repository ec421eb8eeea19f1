"""What Outrider keeps in a job's context, and how texts get through it unchanged.

A context is a list of words `NAME=text`. Commas separate them and a line break is refused,
so that whatever is not plain stands there in base64. Jobs' owners may change their context:
nothing of it is trusted, and nothing that holds a job depends on it.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from outrider.rms.saved import SavedMachine

if TYPE_CHECKING:
    from outrider.rms.gridengine.parsing import Detail

METADATA = "OUTRIDER"
TAG = "OUTRIDER_TAG"
NOTE = "OUTRIDER_NOTE"
TICKET = "OUTRIDER_TICKET"
QUEUES = "OUTRIDER_QUEUES"
"""The queues that a job's user asked for, kept while it is led to nodes; `*` for any."""
SAVED = "OUTRIDER_SAVED"
"""Of a job that was suspended, while it is."""
MACHINE = "OUTRIDER_MACHINE_SAVED"
"""Of a job whose machine was told to save itself: where that is, and what is left of the job's time."""
STOPPED = "OUTRIDER_STOPPED"
"""Of a job that is to be requeued: which run of it was stopped, and when."""
HELD = "OUTRIDER_HELD"
"""Of a job whose user's hold is the submit filter's: it can set no other kind."""
OPTION = "OUTRIDER_OPTION"
"""Of a job with several options the one whose size it was given: its prolog tells the job."""
PRIORITY = "OUTRIDER_PRIORITY"
"""The own priority of a job that goes before others until it runs."""
HOLDER, NEXT_HOLDER = "OUTRIDER_HOLDER", "OUTRIDER_NEXT_HOLDER"
"""The holder job in which a job's machine runs, or ran last, and one to which it goes."""
HOLDS = "OUTRIDER_HOLDS"
"""Of a holder job: for whose machine it is, what was left of its time (0: it has no limit), and where."""
ENCODED = "base64:"
PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+~?&;=-][A-Za-z0-9_.:/@%+~?&;= -]*(?<! )")
LOW_COMMA = "\N{SINGLE LOW-9 QUOTATION MARK}"
MOST_NOTE_CHARACTERS = 500
CHECKPOINT = "outrider_machine"
"""The checkpoint environment that the submit filter gives a job whose script runs in a virtual machine."""
MEMORY = ("mem_free", "mf")
_AMOUNT = re.compile(r"([0-9]{1,15})(?:\.0*)?([kKmMgG]?)")
_UNITS = {"": 1, "k": 1000, "K": 1 << 10, "m": 10**6, "M": 1 << 20, "g": 10**9, "G": 1 << 30}
_STOPPED = re.compile(r"([0-9]{1,12}):([0-9]{1,12})")
_HOLDS = re.compile(r"([0-9]{1,10}):([0-9]{1,12}):([A-Za-z0-9._-]{1,255})")
_SAVED = re.compile(r"([A-Za-z0-9._-]{1,255}):([0-9]{1,12}):([0-9]{1,12}):([0-9]{1,12})")


def encoded(text: str) -> str:
    """A text that survives: as it is, if it is plain."""
    if PLAIN.fullmatch(text) and not text.startswith(ENCODED):
        return text
    return ENCODED + base64.urlsafe_b64encode(text.encode()).decode()


def decoded(word: str) -> str:
    """The text behind a word; one that is not base64 is its own."""
    if not word.startswith(ENCODED):
        return word
    try:
        return base64.b64decode(word.removeprefix(ENCODED), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        return word


def shown(text: str) -> str:
    """A note as people read it in qstat: one line, with a sign for commas that looks like one."""
    line = "".join(letter if letter.isprintable() else " " for letter in text)
    return line.replace(",", LOW_COMMA).replace('"', "”").strip()[:MOST_NOTE_CHARACTERS] or "-"


def runs_in_machine(detail: Detail) -> bool:
    """Whether a job was given the means to save its machine."""
    return detail.checkpoint == CHECKPOINT and METADATA in detail.context and HOLDS not in detail.context


def option(detail: Detail) -> int:
    """Which of its options a job was given; 0 if none."""
    text = detail.context.get(OPTION, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 3 else 0


def machine_bytes(detail: Detail) -> int:
    """The memory that it asks for its machine; 0 if it does not say, or has none."""
    for name, text in detail.requests if runs_in_machine(detail) else ():
        found = _AMOUNT.fullmatch(text) if name in MEMORY else None
        if found is not None:
            return int(found[1]) * _UNITS[found[2]]
    return 0


def stopped_s(detail: Detail, start_s: int | None) -> int | None:
    """When the run that began then was stopped; its user could have written that."""
    found = _STOPPED.fullmatch(detail.context.get(STOPPED, ""))
    return int(found[2]) if found is not None and int(found[1]) == start_s else None


def saved_machine(detail: Detail) -> SavedMachine | None:
    """Where its machine is saved, or about to be; its user could have written that."""
    found = _SAVED.fullmatch(detail.context.get(MACHINE, ""))
    if found is None or not runs_in_machine(detail):
        return None
    return SavedMachine(node=found[1], limit_s=int(found[2]), run_s=int(found[3]), asked_s=int(found[4]))


def holds(detail: Detail) -> tuple[str, int, str] | None:
    """For whose machine a holder job is, for how long, and where; its user could have written that."""
    found = _HOLDS.fullmatch(detail.context.get(HOLDS, ""))
    return None if found is None else (found[1], int(found[2]), found[3])


def machine_word(machine: SavedMachine) -> str:
    """The same, as a word of the job's context."""
    return f"{MACHINE}={machine.node}:{machine.limit_s}:{machine.run_s}:{machine.asked_s}"
