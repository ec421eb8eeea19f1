"""The route that hands a job to the batch system."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import APIRouter
from starlette.responses import Response

from outrider.service.requests import Caller
from outrider.service.web.asking import Asker
from outrider.service.web.bodies import SubmitBody
from outrider.service.web.front import Submit
from outrider.service.web.routing import ERRORS, By, Key, answered
from outrider.service.web.understanding import hash_of, understand_duration, understand_job


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """The batch system's own name for the job."""

    job: str


def submission_routes(asker: Asker) -> APIRouter:
    routes = APIRouter(prefix="/v1", responses=ERRORS, tags=["submissions"])

    @routes.post("/submissions", response_model=Submitted, status_code=201)
    async def submit(body: SubmitBody, caller: By, key: Key = "") -> Response:
        """Hand a job over in the caller's name."""
        submission = await _read(asker, caller, body, key)
        return answered(Submitted(job=await asker.wait_for(asker.front.submit(caller, submission))), 201)

    return routes


async def _read(asker: Asker, caller: Caller, body: SubmitBody, key: str) -> Submit:
    now_s = asker.front.now_s()
    workspace = await asker.read(lambda: understand_job(body, now_s)) if body.workspace else None
    image = await asker.resolve(caller, workspace) if workspace else None
    deployment = workspace.deployment if workspace else None
    duration_s = understand_duration(body.duration) if body.duration else None
    if deployment is not None and duration_s is None:
        duration_s = deployment.duration_s
    return Submit(
        argv=tuple(body.argv),
        nodes=body.nodes or (deployment.nodes if deployment else 1),
        reservation=body.reservation,
        duration_s=duration_s,
        account=body.account,
        workspace=workspace,
        image=image,
        metadata=body.workspace or None,
        key=key,
        request_hash=hash_of("POST", "/v1/submissions", body),
    )
