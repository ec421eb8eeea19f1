"""MUNGE: a user on another host, vouched for by that host's munged and for one request alone.

The credential's payload is the hash of the request, so that whoever sees one can do nothing else
with it, and munged decodes each credential once. Decoding is the work of the program `unmunge`:
the service needs no library, and no key.
"""

from __future__ import annotations

import hmac
import re
import subprocess
from dataclasses import dataclass

_CREDENTIAL = re.compile(r"MUNGE:[A-Za-z0-9+/=]{1,8000}:", re.ASCII)
_DECODED = re.compile(rb"UID:[ \t]*([0-9]{1,10})\nGID:[ \t]*([0-9]{1,10})\n\n([0-9a-f]{64})\n?")
# The exit codes of unmunge that say something about the credential, after its munge.h.
_REASONS = {
    15: "it has expired: is this host's clock right?",
    16: "it is from the future: is that host's clock right?",
    17: "it was used before: make a new one for each request",
    18: "it is not meant for the service's user",
}


class NotVouched(Exception):
    """Nobody vouches for whoever asks. `is_own_fault`: munged or unmunge is at fault, not the credential."""

    def __init__(self, words: str, *, is_own_fault: bool = False) -> None:
        super().__init__(words)
        self.is_own_fault = is_own_fault


@dataclass(frozen=True, kw_only=True, slots=True)
class Vouched:
    uid: int
    gid: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Munge:
    """How credentials are decoded here. `socket` is munged's, if it is not the usual one."""

    program: str = "unmunge"
    socket: str | None = None
    timeout_s: float = 5

    def vouch(self, credential: str, request_hash: str) -> Vouched:
        """Whose request it is. Blocks. Raises NotVouched."""
        if not _CREDENTIAL.fullmatch(credential):
            raise NotVouched("the credential is not one of MUNGE's: send what the program munge prints")
        finished = self._run(credential)
        if finished.returncode:
            said = finished.stderr.decode("ascii", "replace").strip()[:200]
            reason = _REASONS.get(finished.returncode)
            if reason is None:
                # 8 to 14 mean a broken credential; the others that munged or the call of it is.
                is_broken = 8 <= finished.returncode <= 14
                raise NotVouched(f"the credential cannot be decoded ({said})", is_own_fault=not is_broken)
            raise NotVouched(f"the credential is refused: {reason}")
        found = _DECODED.fullmatch(finished.stdout)
        if found is None:
            raise NotVouched("the credential is for something else: its payload is not a hash of a request")
        if not hmac.compare_digest(found[3].decode(), request_hash):
            raise NotVouched("the credential is for another request: its payload is another hash")
        return Vouched(uid=int(found[1]), gid=int(found[2]))

    def _run(self, credential: str) -> subprocess.CompletedProcess[bytes]:
        arguments = [self.program, "--numeric", "--keys", "UID,GID"]
        if self.socket is not None:
            arguments += ["--socket", self.socket]
        try:
            return subprocess.run(
                arguments, input=credential.encode(), capture_output=True, timeout=self.timeout_s, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise NotVouched(
                f"unmunge gave no answer within {self.timeout_s:g} s", is_own_fault=True
            ) from error
        except OSError as error:
            raise NotVouched(f"unmunge cannot be run ({error.strerror})", is_own_fault=True) from error
