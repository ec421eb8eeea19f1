"""Reading a verb's result: values by their types, so that printing need not doubt them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    Result = Mapping[str, object]


def text(result: Result, key: str) -> str:
    """A text; empty without one."""
    found = result.get(key)
    return found if isinstance(found, str) else ""


def number(result: Result, key: str) -> int:
    """A number; 0 without one."""
    return optional_number(result, key) or 0


def optional_number(result: Result, key: str) -> int | None:
    found = result.get(key)
    return int(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def truth(result: Result, key: str) -> bool:
    return result.get(key) is True


def rows(result: Result, key: str) -> list[Result]:
    """A list of objects; empty without one."""
    found = result.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def texts(result: Result, key: str) -> list[str]:
    """A list of texts; empty without one."""
    found = result.get(key)
    return [str(each) for each in found] if isinstance(found, list) else []


def short_digest(digest: str) -> str:
    """As many digits as tell images apart, and as every command takes."""
    return digest.rpartition(":")[2][:12]
