"""Results on stdout, and files that appear under their names only when they are complete."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path

from cachemgr.base.tables import printable
from outrider.cli.errors import OutputError


def print_json(value: object) -> None:
    """A frozen value as JSON: its fields by name, in their order."""
    import json

    print(json.dumps(plain(value), indent=2, ensure_ascii=False))


def plain(value: object) -> object:
    """A value as dictionaries, lists, strings and numbers."""
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def print_csv(header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Lines that a spreadsheet reads; what is not known is empty."""
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if value is None else value for value in row] for row in rows)


@contextmanager
def complete_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A name beside the wanted one to write to; if the body succeeds, it becomes the wanted one.

    It has the wanted name's ending, because libraries go by that.
    """
    final = Path(path)
    beside = final.with_name(f".{os.getpid()}.part.{final.name}")
    try:
        yield beside
        os.replace(beside, final)
    except OSError as error:
        raise OutputError(
            f"{final}: cannot be written ({error.strerror or error}); check the folder and its space"
        ) from error
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def check_writable(path: str | os.PathLike[str] | None) -> None:
    """Say before the work, not after it, that its result has no place to go."""
    if path is None:
        return
    folder = Path(path).parent
    if Path(path).is_dir():
        raise OutputError(f"{os.fspath(path)}: is a folder; name a file in it")
    if not folder.is_dir():
        raise OutputError(f"{os.fspath(path)}: there is no folder {folder}; make it first")
    if not os.access(folder, os.W_OK):
        raise OutputError(f"{os.fspath(path)}: the folder {folder} cannot be written to; choose another")


def say(text: str) -> None:
    """A remark on stderr, so that stdout holds results alone."""
    print(text, file=sys.stderr)


def print_notes(notes: Iterable[str]) -> None:
    """What a user wrote and nothing uses."""
    for note in notes:
        print(f"outrider: note: {printable(note)}", file=sys.stderr)
