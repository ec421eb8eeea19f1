"""Where the desk writes down numbers and events. Implemented by `metrics` and by tests."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """Names are those of the table in `metrics`; labels come in the table's order."""

    def count(self, name: str, *labels: str, by: int = 1) -> None: ...

    def set(self, name: str, value: float, *labels: str) -> None: ...

    def observe(self, name: str, value: float, *labels: str) -> None: ...


class Log(Protocol):
    """One line an event: a fixed verb phrase, then key=value."""

    def debug(self, event: str, **fields: object) -> None: ...

    def info(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None: ...

    def error(self, event: str, **fields: object) -> None: ...
