"""What the benchmarks' command lines share: `--quick`, and how one says that it cannot run here."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence

NOT_MEASURED = 2
"""How a benchmark ends that lacks something: it has said so, and the others stand."""


class Arguments(argparse.ArgumentParser):
    """A benchmark's options; with `--quick` those that have a value for it take that, unless given."""

    def __init__(self, words: str | None) -> None:
        super().__init__(description=words, formatter_class=argparse.RawDescriptionHelpFormatter)
        self._quick: dict[str, object] = {}
        self.add_argument(
            "--quick",
            action="store_true",
            help="a short form that takes seconds, to see that it works: its figures are shown, not judged",
        )

    def add(
        self,
        name: str,
        usual: object,
        quick: object,
        words: str | None = None,
        kind: Callable[[str], object] = int,
    ) -> None:
        """An option with a value of its own in the short form."""
        self._quick[name.removeprefix("--").replace("-", "_")] = quick
        told = f"(default: {usual}; with --quick: {quick})"
        self.add_argument(name, type=kind, default=usual, help=f"{words} {told}" if words else told)

    def given(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        found = self.parse_args(argv)
        if not found.quick:
            return found
        self.set_defaults(**self._quick)
        return self.parse_args(argv)


def judged(given: argparse.Namespace, *, is_good: bool) -> int:
    """How the benchmark ends: the short form measures too little to be judged."""
    return 0 if is_good or given.quick else 1


def without_root(what_for: str) -> bool:
    """Whether we are not root; then it has been said what root is needed for."""
    if os.geteuid() == 0:
        return False
    return lacking(f"needs root, {what_for}")


def lacking(words: str | None) -> bool:
    """Whether this machine lacks something, which has then been said."""
    if words:
        print(f"nothing was measured: {words}", flush=True)
    return bool(words)
