"""How two holders of the site's key know each other over a network, and each line that follows.

    daemon  outrider-control 1 NONCE
    caller  NONCE NODE PROOF            NODE: whom it means to call, - for whoever answers
    daemon  welcome PROOF               or: refused key | node | room
    then    MAC LINE                    in both directions

Everything is HMAC-SHA256 under the site's key. Each proof is of both nonces, which are new each
time, of the node's name and of the side that makes it, so none is of use in another conversation
or from the other side. From the same comes a key for each direction, under which each line is
signed with its number: nothing can be put in, left out, changed, or sent again. There is no
encryption: who listens reads which images go where. No clock is asked, so none has to be right.
"""

from __future__ import annotations

import hmac
import re
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest, CacheError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

GREETING = "outrider-control 1"
NONCE_BYTES = 32
MAC_LETTERS = 64
MOST_GREETING_BYTES = 512
ANYBODY = "-"
NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
HEX = re.compile(r"[0-9a-f]{64}")


class Forged(CacheError):
    """A line that the other side of this conversation has not sent, or not now."""


@dataclass(frozen=True)
class Transcript:
    """What both sides have said before either has proved anything."""

    daemon_nonce: str
    caller_nonce: str
    node: str

    def caller_proof(self, key: bytes) -> str:
        return self._derived(key, "caller").hex()

    def daemon_proof(self, key: bytes) -> str:
        return self._derived(key, "daemon").hex()

    def key_among(self, keys: Iterable[bytes], proof: str) -> bytes | None:
        """With which of the keys the caller's proof was made. All are tried: the time tells nothing."""
        fitting = [key for key in keys if hmac.compare_digest(self.caller_proof(key), proof)]
        return fitting[0] if fitting else None

    def daemon_seals(self, key: bytes) -> tuple[Seal, Seal]:
        """With what the daemon signs, and with what the caller does."""
        return Seal(self._derived(key, "from daemon")), Seal(self._derived(key, "from caller"))

    def _derived(self, key: bytes, what: str) -> bytes:
        words = (GREETING, what, self.daemon_nonce, self.caller_nonce, self.node)
        return hmac.digest(key, "|".join(words).encode(), "sha256")


class Seal:
    """One direction: each line's signature is over its number, too."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def seal(self, line: bytes) -> bytes:
        """The line as it travels. It has no newline inside, and may have one at its end."""
        plain = line.rstrip(b"\n")
        return self._next(plain) + b" " + plain + b"\n"

    def opened(self, line: bytes) -> bytes:
        """The line that was sent; `Forged` if it was another, or another time."""
        plain = line[MAC_LETTERS + 1 :]
        expected = self._next(plain)
        if not hmac.compare_digest(line[: MAC_LETTERS + 1], expected + b" "):
            raise Forged("a line was not signed by the other side: somebody meddles with this connection")
        return plain

    def _next(self, plain: bytes) -> bytes:
        number = self._number.to_bytes(8, "big")
        self._number += 1
        return hmac.digest(self._key, number + plain, "sha256").hex().encode()


def greeting(nonce: bytes) -> bytes:
    return f"{GREETING} {nonce.hex()}\n".encode()


def read_greeting(line: bytes) -> str:
    """The daemon's nonce. `BadRequest` if it is no daemon of this version."""
    head, _, nonce = _text(line).rpartition(" ")
    if head != GREETING or not HEX.fullmatch(nonce):
        raise BadRequest(f"it does not say {GREETING!r}")
    return nonce


def introduction(transcript: Transcript, key: bytes) -> bytes:
    return f"{transcript.caller_nonce} {transcript.node} {transcript.caller_proof(key)}\n".encode()


def read_introduction(line: bytes, daemon_nonce: str) -> tuple[Transcript, str]:
    """What the caller says, and its proof."""
    words = _text(line).split(" ")
    if len(words) != 3 or not HEX.fullmatch(words[0]) or not HEX.fullmatch(words[2]):
        raise BadRequest("the caller introduces itself in a way that this version does not know")
    if words[1] != ANYBODY and not NODE.fullmatch(words[1]):
        raise BadRequest("the caller names a node whose name is not valid")
    return Transcript(daemon_nonce, words[0], words[1]), words[2]


def welcome(transcript: Transcript, key: bytes) -> bytes:
    return f"welcome {transcript.daemon_proof(key)}\n".encode()


def refused(why: str) -> bytes:
    return f"refused {why}\n".encode()


def check_welcome(line: bytes, transcript: Transcript, key: bytes) -> str:
    """Nothing if the other side has proved that it has the key; else its word for why not."""
    head, _, rest = _text(line).partition(" ")
    if head == "refused":
        return rest if rest in ("key", "node", "room") else "key"
    if head != "welcome" or not hmac.compare_digest(rest.encode(), transcript.daemon_proof(key).encode()):
        return "proof"
    return ""


def _text(line: bytes) -> str:
    return line.decode("ascii", "replace").rstrip("\n")
