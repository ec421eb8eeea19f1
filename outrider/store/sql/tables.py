"""What the store needs of a database: rows are written and read within transactions.

A database on another machine answers late, so what nobody waits for is said as such: `send` has no
result, and what `expect` asks is looked at before the transaction ends. Both may be done at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol

from outrider.store.errors import StoreError

Row = tuple[object, ...]
Numbered = Literal["reservations", "decisions", "ledger", "todo"]
"""Tables whose rows get a number each, in the order in which they are added, and none twice."""
NUMBERED: tuple[Numbered, ...] = ("reservations", "decisions", "ledger", "todo")
Check = Callable[[Row | None], None]


class Tables(Protocol):
    """One database in the hands of one service. Errors are those of `errors`."""

    @property
    def place(self) -> str:
        """What messages call it."""

    @property
    def is_broken(self) -> bool:
        """Whether it has failed, so that only opening it again shows what is in it."""

    def close(self) -> None:
        """Give it back, with everything on the disk."""

    def transaction(self, *, is_safe: bool) -> AbstractContextManager[None]:
        """All or nothing; on the disk before it is over if it `is_safe`, else soon after."""

    def execute(self, statement: str, values: Sequence[object] = ()) -> int:
        """Carry out a statement; how many rows it changed."""

    def send(
        self, statement: str, values: Sequence[object] = (), otherwise: StoreError | None = None
    ) -> None:
        """Carry out a statement before the transaction ends, and after those before it.

        `otherwise` is raised, and nothing written, if it changes no row.
        """

    def expect(self, statement: str, values: Sequence[object], check: Check) -> None:
        """Let `check` see the first row that there is now, or None. If it raises, nothing is written."""

    def add(self, table: Numbered, statement: str, values: Sequence[object]) -> int:
        """Insert a row, whose number is its first value; the number."""

    def last_number(self, table: Numbered) -> int:
        """The number of the row that was added last, even if it is gone; 0 before the first."""

    def skip_numbers(self, table: Numbered, last: int) -> None:
        """Give none of the numbers up to this one."""

    def rows(self, statement: str, values: Sequence[object] = ()) -> Iterator[Row]: ...

    def row(self, statement: str, values: Sequence[object] = ()) -> Row | None: ...
