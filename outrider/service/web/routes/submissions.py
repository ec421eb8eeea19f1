"""The route that hands a job to the batch system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.responses import Response

from outrider.metadata.joblines import JobLines, write_job_lines
from outrider.metadata.workspace import WorkspaceFile
from outrider.service.answers.reply import Trouble
from outrider.service.answers.reservations import ReservationDetails
from outrider.service.front import Submit
from outrider.service.ports import FoundImage, NotYet
from outrider.service.requests import Caller, Show
from outrider.service.web.asking import Asker
from outrider.service.web.errors import of_trouble, of_unmade
from outrider.service.web.requests.bodies import SubmitBody
from outrider.service.web.requests.understanding import (
    fault,
    hash_of,
    job_options,
    machine_words,
    understand_duration,
    understand_job,
    with_script_lines,
)
from outrider.service.web.routes.routing import ERRORS, By, Key, answered


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """The batch system's own name for the job, and what of its workspace is not used."""

    job: str
    notes: tuple[str, ...] = ()


def submission_routes(asker: Asker, route: type[APIRoute]) -> APIRouter:
    routes = APIRouter(route_class=route, prefix="/v1", responses=ERRORS, tags=["submissions"])

    @routes.post("/submissions", response_model=Submitted, status_code=201)
    async def submit(body: SubmitBody, caller: By, key: Key = "") -> Response:
        """Hand a job over in the caller's name."""
        submission = await _read(asker, caller, body, key)
        job = await asker.wait_for(asker.front.submit(caller, submission))
        notes = submission.workspace.unused_keys if submission.workspace else ()
        return answered(Submitted(job=job, notes=notes), 201)

    return routes


def _lines(
    workspace: WorkspaceFile, image: FoundImage, option_images: Sequence[FoundImage | None] = ()
) -> JobLines:
    """What the job's images are, as jobs carry it: what was found, and not what may be found later."""
    section, deployment = workspace.metadata.image, workspace.deployment
    return JobLines(
        image=image.uri or section.uri,
        digest=image.digest,
        size_bytes=image.size_bytes,
        format=section.format or "",
        is_private=section.private,
        name=workspace.metadata.name,
        options=() if deployment is None else job_options(deployment, option_images),
        finish_by_s=None if deployment is None else deployment.finish_by_s,
        value=None if deployment is None else deployment.value,
    )


async def _reservation(asker: Asker, caller: Caller, name: str) -> str:
    """The name by which the batch system knows a reservation. Of one that is not ours it alone can tell."""
    found = await asker.wait_for(asker.front.ask(caller, Show(name=name)))
    if isinstance(found, ReservationDetails):
        return found.reservation.name
    if isinstance(found, Trouble) and found.code == "ambiguous":
        raise of_trouble(found)
    return name


async def _read(asker: Asker, caller: Caller, body: SubmitBody, key: str) -> Submit:
    now_s = asker.front.now_s()
    workspace = await asker.read(caller, lambda: understand_job(body, now_s)) if body.workspace else None
    deployment = workspace.deployment if workspace else None
    try:
        image = await asker.resolve(caller, workspace.metadata.image) if workspace else None
        option_images = [
            await asker.resolve(caller, each.image, f"deployment.options[{number}].image")
            if each.image
            else None
            for number, each in enumerate(deployment.options if deployment else ())
        ]
    except NotYet as error:
        raise of_unmade(str(error)) from error
    duration_s = understand_duration(body.duration) if body.duration else None
    if deployment is not None and duration_s is None:
        duration_s = deployment.duration_s
    reservation = await _reservation(asker, caller, body.reservation) if body.reservation else None
    lines = _lines(workspace, image, option_images) if workspace and image else None
    if lines is None and body.lines:
        words = "the script's own lines are read beside a workspace: give one, too"
        raise fault("lines", words)
    lines = with_script_lines(lines, body.lines) if lines else None
    return Submit(
        argv=tuple(body.argv),
        nodes=body.nodes or (deployment.nodes if deployment else 1),
        reservation=reservation,
        duration_s=duration_s,
        account=body.account,
        workspace=workspace,
        image=image,
        metadata=None if lines is None else write_job_lines(lines),
        machine="" if lines is None else machine_words(lines, deployment),
        folder=body.folder,
        key=key,
        request_hash=hash_of("POST", "/v1/submissions", body),
    )
