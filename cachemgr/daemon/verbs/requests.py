"""One request as it came over the socket: bounded and parsed. Nothing here knows what a verb does."""

from __future__ import annotations

import json

from cachemgr.base.errors import BadRequest
from cachemgr.network.fields import read_request
from cachemgr.protocol import VERSION, OnBehalf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.base.message import Message
    from cachemgr.protocol import CopyProgress, TransferProgress

MOST_BYTES = 64 << 10
MOST_NESTING = 12


class Listener:
    """Who waits for an answer: nobody, unless a connection says otherwise."""

    def progress(self, message: TransferProgress | CopyProgress) -> None:
        """Tell how far it is."""

    def check_is_heard(self) -> None:
        """`Gone` if whoever asked does not wait any more."""


class VerbRequest:
    """A verb and its fields, which `read` takes as that verb's message."""

    def __init__(
        self,
        verb: str,
        fields: dict[str, object],
        descriptors: Sequence[int] = (),
        listener: Listener | None = None,
    ) -> None:
        self.verb = verb
        self.descriptors = tuple(descriptors)
        self.listener = listener or Listener()
        self._fields = fields

    def read(self, kind: type[Message]) -> Message:
        """The message; refused if anything of it is missing, unknown or of another form."""
        return read_request(kind, self.verb, self._fields)

    def take_uid(self) -> int | None:
        """For whom it is made, which every verb may say."""
        return read_request(OnBehalf, self.verb, {"uid": self._fields.pop("uid", None)}).uid


def parse(line: bytes, descriptors: Sequence[int] = (), listener: Listener | None = None) -> VerbRequest:
    """The request in a line; `BadRequest` for anything else, in bounded time."""
    if nesting(line) > MOST_NESTING:
        raise BadRequest(f"the request is nested deeper than {MOST_NESTING} levels")
    try:
        found = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest("the request is not one line of JSON in UTF-8") from error
    if not isinstance(found, dict):
        raise BadRequest("the request is not a JSON object")
    if found.pop("v", None) != VERSION:
        raise BadRequest(f'the request has no "v": {VERSION}, which is the version that this daemon speaks')
    verb = found.pop("do", None)
    if not isinstance(verb, str) or len(verb) > 40:
        raise BadRequest('the request does not say what to "do"')
    return VerbRequest(verb, found, descriptors, listener)


def nesting(line: bytes) -> int:
    """How deep brackets stand in brackets, those in texts not counted: before any parser sees them."""
    if line.count(b"[") + line.count(b"{") <= MOST_NESTING:
        return 0
    depth = deepest = 0
    is_text = is_escaped = False
    for byte in line:
        if is_text:
            if is_escaped:
                is_escaped = False
            elif byte == 0x5C:
                is_escaped = True
            elif byte == 0x22:
                is_text = False
        elif byte == 0x22:
            is_text = True
        elif byte in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"]}":
            depth -= 1
    return deepest


def answer(fields: dict[str, object]) -> bytes:
    """One line for the other side; in ASCII, so that a hook can read it without a decoder."""
    return json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")
