"""What the service keeps with a job: a sentence for people and a record, in Slurm's AdminComment.

Users cannot write an AdminComment. Between a submission of ours and its first change the record stands
in the job's Comment, which its user can write: nothing in it is worth forging, since metadata and tag
are the user's own, and a tag counts for the user who submitted with it alone.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from outrider.rms.saved import SavedMachine

MARK = '{"outrider":1'
HINT = '{"outrider-hint":'
"""In an AdminComment by the submit filter: an image that it has noticed in a script."""
MOST_COMMENT = 1024
"""Characters that Slurm takes."""
MOST_RECORD = 65_536
_CARRIED = "outrider-record="
_TICKET = re.compile(r"(?:^| )(?:outrider-option=\d{1,2} )?outrider-ticket=(\S*)\s*$")
Plain = dict[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeWish:
    """The nodes that a job's user has asked for and ruled out, in Slurm's words."""

    required: str = ""
    excluded: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobRecord:
    """What is known of a managed job. `others` are fields of whoever else writes it, kept as they are.

    `wish` is what the user asked for when we led the job to nodes of our own; None while we have not.
    `begin_s` is the user's own --begin. `is_stopped`: the submit filter holds it by its priority, since its
    user has named a deadline, or the service has requeued it so. `is_expected`: the service has, so that its
    begin can be the start that is expected. `priority` is what it had before that, if it is to get it again.
    `saved` is there once its machine has been told to save itself. `option`: whose size it was given.
    `holder`: the job of its user's in which its machine runs, or ran last; `next_holder`: one where it goes.
    """

    sentence: str = ""
    metadata: str | None = None
    tag: str = ""
    is_held: bool = False
    is_stopped: bool = False
    is_expected: bool = False
    is_suspended: bool = False
    begin_s: int = 0
    priority: int = 0
    wish: NodeWish | None = None
    saved: SavedMachine | None = None
    option: int = 0
    holder: str = ""
    next_holder: str = ""
    others: tuple[tuple[str, str], ...] = ()

    @property
    def holds(self) -> bool:
        """Whether a job without a priority is ours to release by what this says."""
        return self.is_held or self.is_stopped or self.is_suspended

    def said(self, sentence: str) -> JobRecord:
        return replace(self, sentence=sentence)


NOTHING = JobRecord()


def comment_of(record: JobRecord) -> str:
    """The AdminComment."""
    sentence = " ".join(record.sentence.split())
    return f"{sentence} {_json(record)}".lstrip()


def record_in(admin_comment: str) -> JobRecord | None:
    """The record in an AdminComment; None if the job is not ours to manage, or the record is broken."""
    at = admin_comment.rfind(MARK)
    if at < 0:
        return None
    plain = _read(admin_comment[at:])
    return None if plain is None else _record(admin_comment[:at].strip(), plain)


def hint_in(admin_comment: str) -> str:
    """The metadata that the submit filter has noticed in a job's script, or nothing."""
    at = admin_comment.rfind(HINT)
    if at < 0 or len(admin_comment) > MOST_RECORD:
        return ""
    try:
        plain = json.loads(admin_comment[at:])
    except (ValueError, RecursionError):
        return ""
    found = plain.get("outrider-hint") if isinstance(plain, dict) else None
    return found if isinstance(found, str) else ""


def carried(record: JobRecord) -> str:
    """The record as a word that a Comment can hold, whatever is in it."""
    packed = zlib.compress(_json(record).encode(), 9)
    return _CARRIED + base64.urlsafe_b64encode(packed).decode()


def record_carried(comment: str) -> JobRecord | None:
    """The record of a submission that has not been changed since, or None.

    Of what its user could have written nothing counts but what a submission begins with.
    """
    if not comment.startswith(_CARRIED) or len(comment) > MOST_COMMENT:
        return None
    try:
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(base64.urlsafe_b64decode(comment.removeprefix(_CARRIED)), MOST_RECORD)
        plain = _read(text.decode())
    except (ValueError, binascii.Error, zlib.error):
        return None
    if plain is None:
        return None
    found = _record("", plain)
    return JobRecord(metadata=found.metadata, tag=found.tag, is_held=found.is_held)


def with_ticket(comment: str, text: str, option: int = 0) -> str:
    """The user's own Comment, the option that a prolog tells the job, and this ticket as the last word."""
    own = "" if comment.startswith(_CARRIED) else _TICKET.sub("", comment)
    which = f" outrider-option={option}" if option else ""
    return f"{own}{which} outrider-ticket={text}".lstrip() if text else own


def _json(record: JobRecord) -> str:
    plain: Plain = {"outrider": 1}
    if record.metadata is not None:
        plain["metadata"] = record.metadata
    if record.tag:
        plain["tag"] = record.tag
    if record.is_held:
        plain["held"] = True
    if record.is_stopped:
        plain["stopped"] = True
    if record.is_expected:
        plain["expected"] = True
    if record.is_suspended:
        plain["suspended"] = True
    if record.begin_s:
        plain["begin"] = record.begin_s
    if record.priority:
        plain["priority"] = record.priority
    if record.wish is not None:
        plain["wish"] = [record.wish.required, record.wish.excluded]
    if record.saved is not None:
        saved = record.saved
        plain["saved"] = [saved.node, saved.limit_s, saved.run_s, saved.asked_s]
    if record.option:
        plain["option"] = record.option
    if record.holder or record.next_holder:
        plain["holder"] = [record.holder, record.next_holder]
    plain |= {name: json.loads(text) for name, text in record.others}
    return json.dumps(plain, separators=(",", ":"))


def _read(text: str) -> Plain | None:
    if len(text) > MOST_RECORD:
        return None
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return plain if isinstance(plain, dict) and plain.get("outrider") == 1 else None


def _record(sentence: str, plain: Mapping[str, object]) -> JobRecord:
    known = {
        "outrider", "metadata", "tag", "held", "stopped", "expected", "suspended", "begin", "wish",
        "priority", "saved", "option", "holder",
    }  # fmt: skip
    metadata, tag = plain.get("metadata"), plain.get("tag")
    holder, next_holder = _holders(plain.get("holder"))
    return JobRecord(
        sentence=sentence,
        metadata=metadata if isinstance(metadata, str) else None,
        tag=tag if isinstance(tag, str) else "",
        is_held=plain.get("held") is True,
        is_stopped=plain.get("stopped") is True,
        is_expected=plain.get("expected") is True,
        is_suspended=plain.get("suspended") is True,
        begin_s=_positive(plain.get("begin")),
        priority=_positive(plain.get("priority")),
        wish=_wish(plain.get("wish")),
        saved=_saved(plain.get("saved")),
        option=_positive(plain.get("option")),
        holder=holder,
        next_holder=next_holder,
        others=tuple((name, json.dumps(value)) for name, value in plain.items() if name not in known),
    )


def _saved(plain: object) -> SavedMachine | None:
    match plain:
        case [str(node), int(limit_s), int(run_s), int(asked_s)]:
            return SavedMachine(node=node, limit_s=limit_s, run_s=run_s, asked_s=asked_s)
        case _:
            return None


def _holders(plain: object) -> tuple[str, str]:
    match plain:
        case [str(holder), str(next_holder)]:
            return holder, next_holder
        case _:
            return "", ""


def _positive(plain: object) -> int:
    return plain if isinstance(plain, int) and not isinstance(plain, bool) and plain > 0 else 0


def _wish(plain: object) -> NodeWish | None:
    match plain:
        case [str(required), str(excluded)]:
            return NodeWish(required=required, excluded=excluded)
        case _:
            return None
