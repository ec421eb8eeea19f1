"""The kinds of values that files are made of: how each is read, and how JSON Schema describes it.

Each kind is a type for the models. What a user wrote is a text, or a whole number where that
is a usual way to write it; what a model holds is the value: seconds, bytes, names.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationInfo, WithJsonSchema

from outrider.metadata.errors import TextError, shown
from outrider.metadata.notation import amounts, events
from outrider.metadata.notation.durations import parse_duration
from outrider.metadata.notation.hostlists import MOST_CHARACTERS, expand
from outrider.metadata.notation.job_options import read_value
from outrider.metadata.notation.times import parse_instant
from outrider.metadata.notation.uris import read_uri
from outrider.metadata.validation import Circumstances, named

MOST_INSTANCES = 10_000
MOST_TEXT = 65_536

_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def _matching(pattern: str, wanted: str) -> tuple[BeforeValidator, WithJsonSchema]:
    """A text that a regular expression describes in full."""
    expression = re.compile(pattern)

    def checked(value: object) -> str:
        text = _text(value)
        if not expression.fullmatch(text):
            raise TextError(f"{shown(text)} is not {wanted}")
        return text

    return BeforeValidator(checked), WithJsonSchema({"type": "string", "pattern": f"^(?:{pattern})$"})


def _amount(
    parse: Callable[[str | int], object], *examples: str | int
) -> tuple[BeforeValidator, WithJsonSchema]:
    """A quantity that is written as a text or as a whole number."""

    def checked(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, (str, int)):
            raise TextError(f"{named(value)} is not an amount: write one like {examples[0]}")
        return parse(value)

    kinds = sorted({"integer" if isinstance(each, int) else "string" for each in examples}, reverse=True)
    schema = {"type": kinds if len(kinds) > 1 else kinds[0], "examples": list(examples)}
    return BeforeValidator(checked), WithJsonSchema(schema)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TextError(f"{named(value)} is not a text: put it in quotes")
    return value


def _instant(value: object, info: ValidationInfo) -> int:
    circumstances = info.context
    assert isinstance(circumstances, Circumstances)
    # Slurm's 013126 is a whole number to YAML.
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else _text(value)
    return parse_instant(text, now_s=circumstances.now_s, zone=circumstances.zone)


def _event(value: object, info: ValidationInfo) -> str:
    circumstances = info.context
    assert isinstance(circumstances, Circumstances)
    return str(events.parse_event(_text(value), now_s=circumstances.now_s, zone=circumstances.zone))


def _event_file(value: object) -> str:
    return events.of_file(_text(value)).text


def _event_job(value: object) -> str:
    # A job's number is a whole number to YAML.
    return events.of_job(str(value) if type(value) is int else _text(value)).text


def _event_source(value: object) -> str:
    return events.of_source(_text(value)).text


def _uri(value: object) -> str:
    return read_uri(_text(value))


def _hosts(value: object) -> tuple[str, ...]:
    names = expand(_text(value), limit=MOST_INSTANCES)
    for name in names:
        if len(name) > 253 or not all(map(_HOST.fullmatch, name.split("."))):
            raise TextError(
                f"{shown(name)} is not the name of a host: use letters, digits, hyphens inside, and dots"
            )
    return names


def _addresses(value: object) -> tuple[str, ...]:
    texts = expand(_text(value), limit=MOST_INSTANCES)
    for text in texts:
        try:
            ipaddress.ip_address(text)
        except ValueError:
            raise TextError(
                f"{shown(text)} is not an address: write addresses like 10.0.0.[11-42] or fd00::a,fd00::b"
            ) from None
    return texts


def _guest_path(value: object) -> str:
    text = _text(value)
    if not text.startswith("/") or text.endswith("/") or len(text) > 1024 or _CONTROL.search(text):
        raise TextError(f"{shown(text)} is not a file inside an instance: write a path like /etc/motd")
    if any(part in ("", ".", "..") for part in text[1:].split("/")):
        raise TextError(f"{shown(text)} has an empty, . or .. part: write the path without it")
    return text


def _words(value: object) -> str:
    text = _text(value)
    if not 0 < len(text) <= 500 or _CONTROL.search(text):
        raise TextError("is not a sentence: write 1 to 500 characters on one line")
    return text


def _described(check: Callable[..., object], **schema: Any) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(check), WithJsonSchema({"type": "string"} | schema)


def _job_value(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TextError(f"{named(value)} is not a value: write a number like 12.5")
    return read_value(str(value))


def _duration(value: str | int) -> int:
    return parse_duration(str(value))


Name = Annotated[
    str,
    *_matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
        "a name: use up to 63 letters, digits, dots, hyphens and underscores, a letter or digit first",
    ),
]
Account = Annotated[
    str,
    *_matching(
        r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,127}[$]?",
        "the name of a user, a group or an account: letters, digits and . _ @ + - are in one",
    ),
]
Digest = Annotated[
    str,
    *_matching(
        r"sha256:[0-9a-f]{64}",
        "a digest: write sha256: and 64 hexadecimal digits in lower case",
    ),
]
Mode = Annotated[
    str, *_matching(r"0[0-7]{3}", 'the mode of a file: write four octal digits in quotes, "0644"')
]
Argument = Annotated[
    str, *_matching(r"[^\x00-\x1f\x7f]{1,1024}", "an argument: write 1 to 1024 characters on one line")
]
Uri = Annotated[str, *_described(_uri, maxLength=2048, examples=["https://images.example.org/render.qcow2"])]
Instant = Annotated[
    int,
    *_described(_instant, examples=["now+8hours", "16:00", "2026-01-31T14:00", "2026-01-31T14:00:00+01:00"]),
]
JobValue = Annotated[int, *_described(_job_value, type=["number", "string"], examples=["12.5"])]
"""In thousandths."""
Event = Annotated[
    str,
    *_described(
        _event, maxLength=1100, examples=["file:/data/run-17.done", "job:4711", "time:16:00", "call"]
    ),
]
EventFile = Annotated[str, *_described(_event_file, maxLength=1024, examples=["/data/run-17.done"])]
EventJob = Annotated[str, *_amount(_event_job, "4711", 4711)]
EventSource = Annotated[str, *_described(_event_source, maxLength=1100, examples=["beam:hutch 3"])]
Hosts = Annotated[tuple[str, ...], *_described(_hosts, maxLength=MOST_CHARACTERS, examples=["w[001-100]"])]
Addresses = Annotated[
    tuple[str, ...], *_described(_addresses, maxLength=MOST_CHARACTERS, examples=["10.0.0.[1-100]"])
]
GuestPath = Annotated[str, *_described(_guest_path, maxLength=1024, examples=["/etc/motd"])]
Words = Annotated[str, *_described(_words, maxLength=500)]
Duration = Annotated[int, *_amount(_duration, "2h30m", "1-12:00:00", 90)]
Size = Annotated[int, *_amount(amounts.size_bytes, "1.8GB", "2GiB", 1800000000)]
Memory = Annotated[int, *_amount(amounts.memory_mib, "8GiB", "512MiB")]
Share = Annotated[int, *_amount(amounts.share_percent, "60%", 60)]
