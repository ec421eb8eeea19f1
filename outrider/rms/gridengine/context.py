"""What Outrider keeps in a job's context, and how texts get through it unchanged.

A context is a list of words `NAME=text`. Commas separate them and a line break is refused,
so that whatever is not plain stands there in base64. Jobs' owners may change their context:
nothing of it is trusted, and nothing that holds a job depends on it.
"""

from __future__ import annotations

import base64
import binascii
import re

METADATA = "OUTRIDER"
TAG = "OUTRIDER_TAG"
NOTE = "OUTRIDER_NOTE"
TICKET = "OUTRIDER_TICKET"
QUEUES = "OUTRIDER_QUEUES"
"""The queues that a job's user asked for, kept while it is led to nodes; `*` for any."""
SAVED = "OUTRIDER_SAVED"
"""Of a job that was suspended, while it is."""
HELD = "OUTRIDER_HELD"
"""Of a job whose user's hold is the submit filter's: it can set no other kind."""
ENCODED = "base64:"
PLAIN = re.compile(r"[A-Za-z0-9_.:/@%+~?&;=-][A-Za-z0-9_.:/@%+~?&;= -]*(?<! )")
LOW_COMMA = "\N{SINGLE LOW-9 QUOTATION MARK}"
MOST_NOTE_CHARACTERS = 500


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
