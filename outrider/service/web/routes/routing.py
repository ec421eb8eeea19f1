"""What routes have in common: who asks, the name in the path, the key, answers as JSON, errors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Request
from fastapi.routing import APIRoute
from pydantic_core import to_json
from starlette.responses import Response

from outrider.service.requests import Caller
from outrider.service.web.errors import ErrorAnswer
from outrider.service.web.requests.bodies import NAME, OFFER

ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": ErrorAnswer, "description": "It was not done; the code and the sentence say why."},
    "5XX": {"model": ErrorAnswer, "description": "It cannot be done now, or the service is at fault."},
}


class ServedRoute(APIRoute):
    """A route of a service that runs. Its answers are our own, and `openapi.json` describes them already:
    models of all of them would take a quarter of a second at each start."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **{**options, "response_model": None, "responses": None})


async def _caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


By = Annotated[Caller, Depends(_caller_of)]
ReservationName = Annotated[
    str, Path(pattern=NAME, description="a reservation's name, like render-17; render if only one is meant")
]
OfferName = Annotated[str, Path(pattern=OFFER, description="an offer's name, as the refusal has it")]
Key = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        max_length=128,
        pattern=r"^[!-~]*$",
        description="the same request with the same key is done once, and answered the same",
    ),
]


def answered(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A dataclass as JSON. It is ours, so it is written and not checked once more."""
    assert dataclasses.is_dataclass(value)
    return Response(to_json(value), status, headers, "application/json")
