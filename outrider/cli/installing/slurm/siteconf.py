"""A site's slurm.conf with all that it includes, and the one setting of each key that counts."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outrider.cli.errors import InputError
from outrider.cli.installing.slurm.marking import SLURM, restored
from outrider.cli.installing.slurm.slurmconf import Setting, included, logical_lines, node_lines, settings

MOST_FILES = 100
MOST_BYTES = 16 << 20
Read = Callable[[str], bytes]
"""Gives the content of a file; raises OSError."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfFile:
    """One file: what it says now, and what it would say without anything of Outrider's."""

    path: str
    present: str
    own: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """A setting and the file that it stands in."""

    path: str
    setting: Setting

    @property
    def value(self) -> str:
        return self.setting.value

    @property
    def place(self) -> str:
        return f"{self.path}:{self.setting.line.first + 1}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteConf:
    """The files in the order in which Slurm reads them, the main one first, and all their settings."""

    files: tuple[ConfFile, ...]
    located: tuple[Located, ...]
    remarks: tuple[str, ...]

    @property
    def main(self) -> ConfFile:
        return self.files[0]

    @property
    def folder(self) -> str:
        return posixpath.dirname(self.main.path)

    def all(self, key: str) -> tuple[Located, ...]:
        return tuple(each for each in self.located if each.setting.key.lower() == key.lower())

    def last(self, key: str) -> Located | None:
        """The one that counts."""
        return (self.all(key) or (None,))[-1]

    def value(self, key: str, default: str = "") -> str:
        found = self.last(key)
        return default if found is None else found.value

    def words(self, key: str) -> tuple[str, ...]:
        """A value that is a list, by its parts."""
        return tuple(each for each in self.value(key).split(",") if each)

    def node_names(self) -> tuple[str, ...]:
        """What NodeName lines say, which may be sets of names."""
        return tuple(name for each in self.files for name in node_lines(each.own))


def read_site(path: str, read: Read) -> SiteConf:
    """Read slurm.conf as the site wrote it: what Outrider has put there is left out."""
    reader = _Reader(read=read, folder=posixpath.dirname(path))
    located = tuple(reader.walk(path, ()))
    return SiteConf(files=tuple(reader.files), located=located, remarks=tuple(reader.remarks))


class _Reader:
    """Goes through a file and what it includes, in Slurm's order."""

    def __init__(self, *, read: Read, folder: str) -> None:
        self._read = read
        self._folder = folder
        self._cluster = ""
        self.files: list[ConfFile] = []
        self.remarks: list[str] = []

    def walk(self, path: str, above: tuple[str, ...]) -> Iterator[Located]:
        if path in above:
            raise InputError(f"{path} includes itself: take that line out of it")
        if len(self.files) >= MOST_FILES:
            raise InputError(f"{path}: more than {MOST_FILES} files are included")
        present = self._text(path, above)
        own = restored(present, SLURM, path)
        self.files.append(ConfFile(path=path, present=present, own=own))
        by_line: dict[int, list[Setting]] = {}
        for setting in settings(own):
            by_line.setdefault(setting.line.first, []).append(setting)
        for line in logical_lines(own):
            below = included(line)
            if below is not None:
                yield from self._include(below, path, (*above, path))
            for setting in by_line.get(line.first, ()):
                if setting.key.lower() == "clustername":
                    self._cluster = setting.value.lower()
                yield Located(path=path, setting=setting)

    def _include(self, name: str, path: str, above: tuple[str, ...]) -> Iterator[Located]:
        if "%c" in name and not self._cluster:
            self.remarks.append(f"{path}: include {name} stands above ClusterName, so %c means nothing there")
            return
        yield from self.walk(posixpath.join(self._folder, name.replace("%c", self._cluster)), above)

    def _text(self, path: str, above: tuple[str, ...]) -> str:
        try:
            content = self._read(path)
        except OSError as error:
            whence = f", which {above[-1]} includes," if above else ""
            raise InputError(
                f"{path}{whence} cannot be read ({error.strerror}): name the site's slurm.conf with --conf"
            ) from error
        if len(content) > MOST_BYTES:
            raise InputError(f"{path} has {len(content)} bytes: that is not a slurm.conf")
        return decoded(content)


def decoded(content: bytes) -> str:
    """Bytes as text from which the very same bytes can be made again."""
    return content.decode("utf-8", "surrogateescape")


def encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
