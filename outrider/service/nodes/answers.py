"""What a node's daemon answers, read with suspicion: the fields that are needed, by their type.

A daemon of another version, or something else behind its socket, must not put the service into
a state that nobody thought of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from outrider.service.ports import NodeTrouble

MOST_WORDS = 1_000


class Fields:
    """One object of an answer."""

    def __init__(self, given: Mapping[str, object], verb: str) -> None:
        self._given = given
        self._verb = verb

    def number(self, name: str) -> int:
        found = self.optional_number(name)
        if found is None:
            raise self._strange(name)
        return found

    def optional_number(self, name: str) -> int | None:
        value = self._given.get(name)
        if value is None:
            return None
        # Metrics travel as floats.
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0 or value != int(value):
            raise self._strange(name)
        return int(value)

    def text(self, name: str) -> str:
        """The text, shortened to what anybody would read; nothing if there is none."""
        value = self._given.get(name)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self._strange(name)
        return value[:MOST_WORDS]

    def truth(self, name: str) -> bool:
        value = self._given.get(name)
        if not isinstance(value, bool):
            raise self._strange(name)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """The texts of a list; none if there is no list."""
        value = self._given.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._strange(name)
        return tuple(each[:MOST_WORDS] for each in value)

    def numbers(self, name: str) -> tuple[int, ...]:
        value = self._given.get(name)
        if not isinstance(value, list) or not all(type(each) is int for each in value):
            raise self._strange(name)
        return tuple(value)

    def parts(self, name: str) -> Iterator[Fields]:
        value = self._given.get(name)
        if not isinstance(value, list):
            raise self._strange(name)
        for each in value:
            if not isinstance(each, dict):
                raise self._strange(name)
            yield Fields(each, self._verb)

    def part(self, name: str) -> Fields:
        value = self._given.get(name)
        if not isinstance(value, dict):
            raise self._strange(name)
        return Fields(value, self._verb)

    def optional_part(self, name: str) -> Fields | None:
        return None if self._given.get(name) is None else self.part(name)

    def _strange(self, name: str) -> NodeTrouble:
        return NodeTrouble(
            f"the daemon answered {self._verb} with an unusable {name}: compare its version with this one",
            is_away=False,
        )
