"""How fast images are made here, and how large they get: measured at each conversion, kept over restarts."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path

from cachemgr.base.disk import RealDisk, replace_file

MOST_BYTES = 1 << 16
KEPT = 0.8
"""How much of what earlier ones took counts beside the last one."""
LEAST_S = 0.001


@dataclass(frozen=True, slots=True)
class Expectation:
    """What one is expected to take, and how large its result is."""

    took_s: float
    size_bytes: int


class ConversionPace:
    """Bytes of layers, seconds and bytes made, by what is made of them. Any thread may call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._taken: dict[str, tuple[float, ...]] | None = None

    def note(self, made: str, size_bytes: int, took_s: float, made_bytes: int) -> None:
        """So long one took from its turn on. Raises OSError."""
        with self._guard:
            taken = self._read()
            last = (size_bytes, max(took_s, LEAST_S), made_bytes)
            before = taken.get(made, (0.0, 0.0, 0.0))
            taken[made] = tuple(old * KEPT + new for old, new in zip(before, last, strict=True))
            replace_file(RealDisk(), str(self._path), json.dumps(taken).encode())

    def expected(self, made: str, size_bytes: int) -> Expectation | None:
        """What one takes whose layers have so many bytes; None before the first."""
        with self._guard:
            known_bytes, known_s, made_bytes = self._read().get(made, (0.0, 0.0, 0.0))
        if known_bytes <= 0:
            return None
        return Expectation(
            size_bytes * known_s / known_bytes, max(1, round(size_bytes * made_bytes / known_bytes))
        )

    def _read(self) -> dict[str, tuple[float, ...]]:
        if self._taken is None:
            self._taken = {}
            try:
                found = json.loads(self._path.read_bytes()[:MOST_BYTES])
                self._taken = {
                    str(name): (float(size), float(s), float(made)) for name, (size, s, made) in found.items()
                }
            except (OSError, ValueError, TypeError, AttributeError, RecursionError):
                # Without it nothing is estimated until the next one is measured.
                return self._taken
        return self._taken
