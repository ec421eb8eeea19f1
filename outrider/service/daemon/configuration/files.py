"""From files and environment to a checked configuration, or all faults with their places.

`outriderd.yaml` comes first, then `conf.d/*.yaml` beside it in the order of their names. What a
later file says of a key counts; mappings are laid over one another, lists are replaced. A variable
OUTRIDER_<KEY> of the environment, such as OUTRIDER_LINK_RATE, counts more than any file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from outrider.metadata.errors import FaultyFileError, FileProblem, TextPosition
from outrider.metadata.errors import Path as KeyPath
from outrider.metadata.validation import Schema, json_schema, validated
from outrider.metadata.yamlfile import MOST_PROBLEMS, YamlDocument, parse_yaml, read_bytes, scalar
from outrider.service.daemon.configuration.model import Config

DEFAULT_FILE = Path("/etc/outrider/outriderd.yaml")
MOST_FILES = 100
PREFIX = "OUTRIDER_"


def load_config(paths: Sequence[Path], environment: Mapping[str, str]) -> Config:
    """The configuration in these files. Raises FaultyFileError with all that is wrong with it."""
    merged = _Merged(file=str(paths[0]) if paths else "environment", data={})
    for path in paths:
        _lay(merged, _read(path))
    # What cannot be read as YAML says nothing of what else is missing.
    merged.raise_problems()
    for name, key in variables().items():
        if name in environment:
            _set(merged, key, environment[name], name)
    return validated(Config, merged)


def files_of(main: Path) -> list[Path]:
    """A configuration's file and those of `conf.d` beside it, by name. OSError is the caller's."""
    folder = main.parent / "conf.d"
    more = sorted(each for each in folder.iterdir() if each.suffix == ".yaml") if folder.is_dir() else []
    if len(more) > MOST_FILES:
        raise FaultyFileError([_fault(folder, f"has {len(more)} files: there can be {MOST_FILES}")])
    return [main, *more]


def variables() -> dict[str, KeyPath]:
    """Every variable of the environment that counts, and the key that it stands for."""
    schema = json_schema(Config)
    keys = [key for key in _scalars(schema, schema, ()) if key != ("version",)]
    return {PREFIX + "_".join(map(str, key)).upper(): key for key in keys}


@dataclass(kw_only=True)
class _Merged(YamlDocument):
    """Several files as one document, that knows of each key from which file it is."""

    files: dict[KeyPath, str] = field(default_factory=dict)

    def add_problem(self, path: KeyPath, message: str, *, of_key: bool = False) -> None:
        before = len(self.problems)
        super().add_problem(path, message, of_key=of_key)
        if len(self.problems) > before:
            last = self.problems[-1]
            self.problems[-1] = FileProblem(
                file=self._file_of(path), place=last.place, path=last.path, message=last.message
            )

    def _file_of(self, path: KeyPath) -> str:
        while path and path not in self.files:
            path = path[:-1]
        return self.files.get(path, self.file)


def _read(path: Path) -> YamlDocument:
    try:
        return parse_yaml(read_bytes(path), file=str(path))
    except OSError as error:
        words = f"cannot be read ({error.strerror}): check its name, and who may read it"
        raise FaultyFileError([_fault(path, words)]) from error


def _fault(path: Path, message: str) -> FileProblem:
    return FileProblem(file=str(path), place=TextPosition(line=1, column=1), path=(), message=message)


def _lay(merged: _Merged, document: YamlDocument) -> None:
    """Put a file over what is there."""
    if document.data is not None and not isinstance(document.data, dict) and not document.problems:
        document.add_problem((), "is not a configuration: write keys and values, one a line")
    merged.problems += document.problems[: MOST_PROBLEMS - len(merged.problems)]
    if isinstance(document.data, dict) and not document.problems:
        _over(merged, document, cast(dict[str, object], merged.data), document.data, ())


def _over(
    merged: _Merged, document: YamlDocument, below: dict[str, object], above: dict[str, object], path: KeyPath
) -> None:
    for key, value in above.items():
        here = (*path, key)
        old = below.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            _note(merged, document, here)
            _over(merged, document, old, value, here)
            continue
        for known in [each for each in merged.values if each[: len(here)] == here]:
            del merged.values[known]
            merged.keys.pop(known, None)
            merged.files.pop(known, None)
        below[key] = value
        for each in document.values:
            if each[: len(here)] == here:
                _note(merged, document, each)


def _note(merged: _Merged, document: YamlDocument, path: KeyPath) -> None:
    merged.values[path] = document.values[path]
    merged.files[path] = document.file
    if path in document.keys:
        merged.keys[path] = document.keys[path]


def _set(merged: _Merged, path: KeyPath, text: str, variable: str) -> None:
    """Let the environment say what a key is."""
    below = cast(dict[str, object], merged.data)
    for step in path[:-1]:
        found = below.setdefault(str(step), {})
        if not isinstance(found, dict):
            return
        below = found
    below[str(path[-1])] = scalar(text)
    merged.values[path] = merged.keys[path] = TextPosition(option=variable)


def _scalars(part: Schema, schema: Schema, path: KeyPath) -> Iterator[KeyPath]:
    """The keys whose value is one word; lists and mappings of names are for files."""
    reference = part.get("$ref")
    if isinstance(reference, str):
        definitions = cast(Mapping[str, Schema], schema["$defs"])
        part = {**definitions[reference.rpartition("/")[2]], **part}
    properties = part.get("properties")
    if isinstance(properties, Mapping):
        for key, each in properties.items():
            yield from _scalars(each, schema, (*path, key))
    elif part.get("type") not in ("array", "object"):
        yield path
