"""Routes for best-effort jobs: look at them, and say whether one may start."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query
from fastapi.routing import APIRoute
from starlette.responses import Response

from outrider.service.answers.jobs import JobDetails, JobList, Verdict
from outrider.service.requests import AskStart, ListJobs, MigrateJob, ResumeJob, ShowJob, SuspendJob
from outrider.service.web.asking import Asker
from outrider.service.web.requests.bodies import JOB, JobsQuery, MigrationBody, StartingBody
from outrider.service.web.routes.routing import ERRORS, By, answered

JobKey = Annotated[str, Path(pattern=JOB, description="the batch system's own name for the job, like 17")]


def job_routes(asker: Asker, route: type[APIRoute]) -> APIRouter:
    routes = APIRouter(route_class=route, prefix="/v1", responses=ERRORS, tags=["jobs"])

    @routes.get("/jobs", response_model=JobList)
    async def jobs(query: Annotated[JobsQuery, Query()], caller: By) -> Response:
        """Best-effort jobs that name an image, and how far it is on its way."""
        states = tuple(state for state in query.state.split(",") if state)
        request = ListJobs(user=query.user, states=states, after=query.after, most=query.most)
        return answered(await asker.ask(caller, request, JobList))

    @routes.get("/jobs/{job}", response_model=JobDetails)
    async def job(job: JobKey, caller: By) -> Response:
        """All about one of them."""
        return answered(await asker.ask(caller, ShowJob(job=job), JobDetails))

    @routes.post("/jobs/{job}/suspension", response_model=JobDetails)
    async def suspend(job: JobKey, caller: By) -> Response:
        """Save the job's machine and let it wait until it is resumed (its owner, administrators)."""
        return answered(await asker.ask(caller, SuspendJob(job=job), JobDetails))

    @routes.delete("/jobs/{job}/suspension", response_model=JobDetails)
    async def resume(job: JobKey, caller: By) -> Response:
        """Let it go on, where its machine is, as soon as there is room."""
        return answered(await asker.ask(caller, ResumeJob(job=job), JobDetails))

    @routes.post("/jobs/{job}/migration", response_model=JobDetails)
    async def migrate(job: JobKey, body: MigrationBody, caller: By) -> Response:
        """Save the job's machine and let it continue on another node (its owner, administrators)."""
        return answered(await asker.ask(caller, MigrateJob(job=job, node=body.node), JobDetails))

    @routes.post("/starting", response_model=Verdict)
    async def starting(body: StartingBody, caller: By) -> Response:
        """Whether a job that is about to start has its image on all its nodes (administrators)."""
        request = AskStart(job=body.job, nodes=tuple(body.nodes))
        return answered(await asker.ask(caller, request, Verdict))

    return routes
