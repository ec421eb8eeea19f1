"""Where the repository is, so that no test has to count the folders above its own."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
