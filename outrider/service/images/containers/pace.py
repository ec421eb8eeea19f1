"""How fast images are made here: measured at each conversion, kept over restarts, and used for estimates."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from cachemgr.base.disk import RealDisk, replace_file

MOST_BYTES = 1 << 16
KEPT = 0.8
"""How much of what earlier ones took counts beside the last one."""
LEAST_S = 0.001
LEAST_BYTES = 16 << 20
"""What takes as long, however small it is, says nothing of the time for a byte: it counts as so large."""


class ConversionPace:
    """Bytes of layers and seconds, by what is made of them. Any thread may call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._guard = threading.Lock()
        self._taken: dict[str, tuple[float, float]] | None = None

    def note(self, made: str, size_bytes: int, took_s: float) -> None:
        """So long one took from its turn on. Raises OSError."""
        with self._guard:
            taken = self._read()
            old_bytes, old_s = taken.get(made, (0.0, 0.0))
            counted = max(size_bytes, LEAST_BYTES)
            taken[made] = (old_bytes * KEPT + counted, old_s * KEPT + max(took_s, LEAST_S))
            replace_file(RealDisk(), str(self._path), json.dumps(taken).encode())

    def expected_s(self, made: str, size_bytes: int) -> float | None:
        """How long one of this size takes; None before the first."""
        with self._guard:
            known_bytes, known_s = self._read().get(made, (0.0, 0.0))
        return max(size_bytes, LEAST_BYTES) * known_s / known_bytes if known_bytes > 0 else None

    def _read(self) -> dict[str, tuple[float, float]]:
        if self._taken is None:
            self._taken = {}
            try:
                found = json.loads(self._path.read_bytes()[:MOST_BYTES])
                self._taken = {str(name): (float(size), float(s)) for name, (size, s) in found.items()}
            except (OSError, ValueError, TypeError, AttributeError, RecursionError):
                # Without it nothing is estimated until the next one is measured.
                return self._taken
        return self._taken
