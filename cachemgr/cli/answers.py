"""Reading a verb's result, and how digests are shown."""

from __future__ import annotations

from cachemgr.base.errors import CacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.base.message import Message

    Result = Mapping[str, object]


def read(kind: type[Message], result: Result) -> Message:
    """A result as that verb's message."""
    from cachemgr.network.fields import WrongField, read_answer

    try:
        return read_answer(kind, result)
    except WrongField as error:
        words = f"the daemon answered with an unusable {error.name}: compare its version with this one"
        raise CacheError(words) from error


def short_digest(digest: str) -> str:
    """As many digits as tell images apart, and as every command takes."""
    return digest.rpartition(":")[2][:12]
