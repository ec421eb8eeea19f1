"""The client's reference, from its own docstrings, for `docs/reference/api.md`."""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator

import outrider_client
from outrider_client import answers, errors, service, transport, wishes

ERRORS = [each for each in vars(errors).values() if inspect.isclass(each)] + [transport.FaultyRequestError]


def reference() -> str:
    """Headings, signatures and docstrings, in the order of the source."""
    parts = ["### `Outrider`", _doc(service.Outrider), _call("Outrider", service.Outrider)]
    for name, method in vars(service.Outrider).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            parts += [f"#### `{name}`", _call(name, method), _doc(method)]
    parts += ["### What is asked for", *_values([wishes.Image, wishes.WorkspaceText], "####")]
    parts += ["### Errors of the client", _table(["error", "when"], _errors())]
    parts += ["### Answers", *_values(list(_classes()), "####")]
    return "\n\n".join(part for part in parts if part) + "\n"


def _classes() -> Iterator[type]:
    for each in vars(answers).values():
        if inspect.isclass(each) and dataclasses.is_dataclass(each):
            yield each


def _values(kinds: list[type], rank: str) -> Iterator[str]:
    for kind in kinds:
        rows = [[f"`{each.name}`", f"`{_type(each.type)}`"] for each in dataclasses.fields(kind)]
        yield f"{rank} `{kind.__name__}`"
        yield _doc(kind)
        yield _table(["field", "type"], rows)


def _errors() -> Iterator[list[str]]:
    for each in ERRORS:
        bases = ", ".join(base.__name__ for base in each.__bases__ if base is not Exception)
        yield [f"`{each.__name__}`" + (f" (`{bases}`)" if bases else ""), _doc(each)]


def _call(name: str, what: object) -> str:
    """`name(…)` with its arguments, as they stand in the source, without `self`."""
    signature = str(inspect.signature(what))  # type: ignore[arg-type]
    plain = re.sub(r"^\(self(, )?", "(", signature).replace("answers.", "")
    plain = re.sub(r"(: |-> )'([^']*)'", r"\1\2", plain)
    return f"`{name}{plain}`"


def _type(hint: object) -> str:
    text = hint.__name__ if isinstance(hint, type) else str(hint)
    return re.sub(r"\b(typing|outrider_client\.answers)\.", "", text).replace("|", "\\|")


def _doc(what: object) -> str:
    text = inspect.getdoc(what) or ""
    return "" if text.startswith(f"{getattr(what, '__name__', '')}(") else text.replace("\n\n    ", "\n\n")


def _table(heads: list[str], rows: object) -> str:
    assert isinstance(rows, (list, Iterator))
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(f"{outrider_client.__doc__}\n\n{reference()}")
