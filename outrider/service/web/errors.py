"""How a request is refused: one JSON object for every error, with a code, a sentence and its places.

No answer of the API is HTML, and none holds a traceback: that belongs in the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from starlette.responses import Response

from outrider.metadata.errors import FaultyFileError, key_path
from outrider.service.answers.reply import Trouble
from outrider.service.front import Busy

STATUS_OF = {
    "not-found": 404,
    "not-allowed": 403,
    "ambiguous": 409,
    "conflict": 409,
    "invalid": 422,
    "unavailable": 503,
    "busy": 503,
    "converting": 503,
}
RETRY_AFTER_S = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorProblem:
    """One fault of what was sent: `line` and `column` are 0 unless it stands in the workspace's text."""

    line: int = 0
    column: int = 0
    key: str = ""
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorAnswer:
    """A request that was not done. `code` tells the kind of trouble."""

    code: str
    message: str
    problems: tuple[ErrorProblem, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpRefusal:
    """An error answer with what HTTP needs around it."""

    status: int
    answer: ErrorAnswer
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        return json.dumps(asdict(self.answer)).encode()

    def response(self) -> Response:
        headers = {"Cache-Control": "no-store", **self.headers}
        return Response(self.body, self.status, headers, "application/json")


class RefusedRequest(Exception):
    """Ends the handling of a request with this refusal."""

    def __init__(self, refusal: HttpRefusal) -> None:
        super().__init__(refusal.answer.message)
        self.refusal = refusal


def refusal(
    status: int,
    message: str,
    *,
    code: str = "invalid",
    problems: Iterable[ErrorProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> HttpRefusal:
    answer = ErrorAnswer(code=code, message=message, problems=tuple(problems))
    return HttpRefusal(status=status, answer=answer, headers=headers or {})


def refused(
    status: int, message: str, *, code: str = "invalid", problems: Iterable[ErrorProblem] = ()
) -> RefusedRequest:
    return RefusedRequest(refusal(status, message, code=code, problems=problems))


def of_trouble(trouble: Trouble) -> RefusedRequest:
    """The service said no, or could not: a code that is not known here is a fault of the service."""
    if trouble.code == "busy":
        return of_busy(Busy(trouble.message, retry_after_s=RETRY_AFTER_S))
    return refused(STATUS_OF.get(trouble.code, 500), trouble.message, code=trouble.code)


def of_busy(busy: Busy) -> RefusedRequest:
    return RefusedRequest(
        refusal(503, str(busy), code="busy", headers={"Retry-After": str(max(busy.retry_after_s, 1))})
    )


def of_unmade(words: str) -> RefusedRequest:
    """An image is being made. Clients ask again by themselves, as long as their users let them."""
    headers = {"Retry-After": str(RETRY_AFTER_S)}
    return RefusedRequest(refusal(503, words, code="converting", headers=headers))


def of_faulty_file(faulty: FaultyFileError) -> RefusedRequest:
    """Every fault with its place; one of an option has no line, and its key says which it is."""
    problems = [
        ErrorProblem(
            line=each.place.line, column=each.place.column, key=key_path(each.path), message=each.message
        )
        for each in faulty.problems
    ]
    count = "a fault" if len(problems) == 1 else f"{len(problems)} faults"
    return refused(422, f"the workspace has {count}, the first: {faulty.problems[0]}", problems=problems)
