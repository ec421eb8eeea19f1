"""HTTP with the service, over its unix socket or the network, with the standard library alone.

A request is sent again while the service restarts: a change carries a key by which the service
knows it again, so nothing is done twice.
"""

from __future__ import annotations

import http.client
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Union
from urllib.parse import quote, urlencode

from outrider_client.clock import Clock
from outrider_client.doors import LEADER_HEADER, Door, HeadDoors, NotThere, SocketDoor, Stranger
from outrider_client.errors import (
    ConflictError,
    InputError,
    NotAllowedError,
    NotFoundError,
    OutriderError,
    UnavailableError,
    UnreachableError,
)

Json = Union["dict[str, Json]", "list[Json]", str, int, float, bool, None]
Query = Mapping[str, Union[str, int, None]]

TIMEOUT_S = 30
MOST_PAGES = 1_000
NEW_PATIENCE_S = 5
"""How long a service that has never answered is waited for: it may be about to start."""
PAUSE_S, MOST_PAUSE_S = 0.1, 2.0
MOST_ANSWER_BYTES = 64 * 2**20
_GONE = (ConnectionResetError, BrokenPipeError, ConnectionAbortedError, http.client.RemoteDisconnected)
_ERRORS: dict[str, type[OutriderError]] = {
    "not-found": NotFoundError,
    "not-allowed": NotAllowedError,
    "ambiguous": ConflictError,
    "conflict": ConflictError,
    "invalid": InputError,
    "unavailable": UnavailableError,
    "busy": UnavailableError,
    "converting": UnavailableError,
}


@dataclass(frozen=True)
class Problem:
    """A fault of what was sent, with its place; line 0 is an option."""

    line: int
    column: int
    key: str
    message: str


class FaultyRequestError(InputError):
    """The service has read what was sent and found these faults."""

    def __init__(self, message: str, problems: tuple[Problem, ...]) -> None:
        super().__init__(message)
        self.problems = problems


class _Lost(Exception):
    """The connection ended before the answer did."""


@dataclass(frozen=True)
class _Answer:
    status: int
    retry_after_s: int
    leader: str
    body: bytes


class Transport:
    """The service behind a door; a text is a socket's path. Every method returns the answer's JSON or
    raises a OutriderError."""

    def __init__(
        self,
        door: Door | str,
        clock: Clock,
        *,
        timeout_s: int = TIMEOUT_S,
        waiting: Callable[[str], None] | None = None,
    ) -> None:
        """`waiting` is told how far an image is that is being made, each time that the service says so: an
        answer is waited for until `timeout_s` after that."""
        self._door: Door = HeadDoors([SocketDoor(door)]) if isinstance(door, str) else door
        self._clock = clock
        self._timeout_s = timeout_s
        self._waiting = waiting
        self._has_answered = False

    def get(self, path: str, query: Query | None = None) -> Json:
        return self._ask("GET", path, query, None)

    def post(self, path: str, body: Json) -> Json:
        return self._ask("POST", path, None, body)

    def patch(self, path: str, body: Json, query: Query | None = None) -> Json:
        return self._ask("PATCH", path, query, body)

    def delete(self, path: str) -> Json:
        return self._ask("DELETE", path, None, None)

    def pages(self, path: str, query: Query, key: str) -> dict[str, Json]:
        """All pages of a list as one object, as if it had come at once."""
        whole: dict[str, Json] = {}
        items: list[Json] = []
        after: Json = None
        for _ in range(MOST_PAGES):
            asked = {**query, **({"after": after} if isinstance(after, (str, int)) else {})}
            page = self.get(path, asked)
            whole = page if isinstance(page, dict) else {}
            found = whole.get(key)
            items += found if isinstance(found, list) else []
            following = whole.get("next_after")
            if following in (None, "") or following == after:
                break
            after = following
        return {**whole, key: items} if whole else {}

    def _ask(self, method: str, path: str, query: Query | None, body: Json) -> Json:
        target = path + _query(query or {})
        headers = {"Accept": "application/json", "Connection": "close"}
        if method != "GET":
            headers["Idempotency-Key"] = new_key()
        content = None
        if body is not None:
            content = json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogateescape")
            headers["Content-Type"] = "application/json"
        answer = self._answered(method, target, content, headers)
        return self._understood(answer)

    def _answered(self, method: str, target: str, content: bytes | None, headers: dict[str, str]) -> _Answer:
        """The answer, asked for again while the service restarts or is too busy to take it on."""
        began_s = self._clock.monotonic_s()
        pause_s = PAUSE_S
        is_sent = is_waiting = False
        while True:
            left_s = began_s + self._timeout_s - self._clock.monotonic_s()
            try:
                answer = self._once(method, target, content, headers, max(left_s, 1.0))
                wanted_s = float(answer.retry_after_s) if answer.status == 503 else 0.0
                self._has_answered = True
                words = _progress(answer) if wanted_s else ""
                if self._waiting is not None and (words or is_waiting):
                    self._waiting(words)
                is_waiting = bool(words)
                if words:
                    began_s = self._clock.monotonic_s()
                elif not wanted_s or wanted_s > left_s:
                    return answer
                else:
                    self._door.pass_on(answer.leader)
                    wanted_s = PAUSE_S if answer.leader else wanted_s
            except NotThere as error:
                if not (self._has_answered or is_sent):
                    left_s -= max(0, self._timeout_s - NEW_PATIENCE_S)
                wanted_s = min(pause_s, left_s)
                if left_s <= 0:
                    raise (self._lost(error) if is_sent else self._absent(error)) from error
            except _Lost as error:
                is_sent = True
                wanted_s = min(pause_s, left_s)
                if left_s <= 0:
                    raise self._lost(error) from error
                self._door.pass_on("")
            self._clock.sleep(wanted_s)
            pause_s = min(2 * pause_s, MOST_PAUSE_S)

    def _once(
        self, method: str, target: str, content: bytes | None, headers: dict[str, str], timeout_s: float
    ) -> _Answer:
        key = headers.get("Idempotency-Key", "")
        connection: http.client.HTTPConnection | None = None
        answer_s = self._door.answer_s
        if answer_s is not None:
            timeout_s = min(timeout_s, answer_s)
        try:
            connection = self._door.connect(timeout_s)
            vouching = self._door.vouch(method, target, key, content or b"", timeout_s)
            connection.request(method, target, body=content, headers={**headers, **vouching})
            response = connection.getresponse()
            body = response.read(MOST_ANSWER_BYTES + 1)
        except _GONE as error:
            raise _Lost(str(error) or type(error).__name__) from error
        except TimeoutError as error:
            if answer_s is not None:
                raise _Lost(f"no answer within {timeout_s:.0f} s") from error
            raise UnreachableError(
                f"outriderd on {self._door.name} did not answer within {timeout_s:.0f} s: give it longer "
                "with --timeout (timeout_s), and see its log"
            ) from error
        except http.client.IncompleteRead as error:
            raise _Lost("the answer is cut off") from error
        except (http.client.HTTPException, ValueError, Stranger) as error:
            raise self._stranger() from error
        except OSError as error:
            raise UnreachableError(
                f"{self._door.name}: {error.strerror or error}; see the service's log"
            ) from error
        finally:
            if connection is not None:
                connection.close()
        if len(body) > MOST_ANSWER_BYTES:
            raise UnreachableError(
                f"outriderd's answer is larger than {MOST_ANSWER_BYTES} bytes: ask for less"
            )
        after = response.headers.get("Retry-After", "")
        is_number = after.isascii() and after.isdigit() and len(after) < 6
        return _Answer(
            status=response.status,
            retry_after_s=int(after) if is_number else 0,
            leader=response.headers.get(LEADER_HEADER, ""),
            body=body,
        )

    def _understood(self, answer: _Answer) -> Json:
        try:
            content: Json = json.loads(answer.body)
        except (ValueError, RecursionError) as error:
            raise self._stranger() from error
        if 200 <= answer.status < 300:
            return content
        code = content.get("code") if isinstance(content, dict) else None
        if not isinstance(content, dict) or not isinstance(code, str) or code not in _ERRORS:
            raise self._stranger(f" (HTTP status {answer.status})")
        message = content.get("message")
        words = printable_line(message if isinstance(message, str) else code)
        if answer.status == 401:
            raise self._unvouched(words)
        problems = _problems(content.get("problems"))
        if problems:
            raise FaultyRequestError(words, problems)
        raise _ERRORS[code](words)

    def _absent(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"outriderd is not running: nobody listens on {self._door.name} ({error}). {self._door.remedy}"
        )

    def _unvouched(self, words: str) -> NotAllowedError:
        return NotAllowedError(
            f"outriderd on {self._door.name} does not take this machine's word for who you are: {words}. "
            "Tell the administrators: both machines need the same MUNGE key, and clocks that agree"
        )

    def _lost(self, error: Exception) -> UnreachableError:
        return UnreachableError(
            f"outriderd on {self._door.name} hung up without an answer ({error}); whether it did what was "
            "asked is not known: see outrider list, and the service's log"
        )

    def _stranger(self, detail: str = "") -> UnreachableError:
        return UnreachableError(
            f"what answers on {self._door.name} is not outriderd, or one of another version{detail}: "
            f"see outrider --version, and {self._door.way}"
        )


def _progress(answer: _Answer) -> str:
    """How far an image is that is being made; nothing if the answer is another one."""
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(found, dict) or found.get("code") != "converting":
        return ""
    return printable_line(str(found.get("message") or "it is being made"))


def new_key() -> str:
    """A random name for one request: a UUID of version 4."""
    from uuid import UUID

    return str(UUID(bytes=os.urandom(16), version=4))


def in_path(name: str) -> str:
    """A name as one step of a path: whatever is in it, it names nothing else."""
    return quote(name, safe="") if name not in (".", "..") else name.replace(".", "%2E")


def printable_line(text: str) -> str:
    """What comes from elsewhere must not move the cursor or forge a line."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _query(query: Query) -> str:
    given = {name: value for name, value in query.items() if value is not None}
    return f"?{urlencode(given)}" if given else ""


def _problems(found: Json) -> tuple[Problem, ...]:
    if not isinstance(found, list):
        return ()
    return tuple(
        Problem(
            line=_number(each.get("line")),
            column=_number(each.get("column")),
            key=printable_line(str(each.get("key") or "")),
            message=printable_line(str(each.get("message") or "")),
        )
        for each in found
        if isinstance(each, dict)
    )


def _number(value: Json) -> int:
    return value if isinstance(value, int) else 0
