"""From texts to values: a workspace with its options, a script's own lines, times, node lists, and hashes.

Pure functions, to be called in a thread where they read YAML.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import TypeVar

from pydantic import BaseModel

from outrider.metadata.errors import FaultyFileError, TextError
from outrider.metadata.joblines import JobLines, parse_job_lines, write_job_lines
from outrider.metadata.notation.amounts import memory_mib
from outrider.metadata.notation.durations import parse_duration
from outrider.metadata.notation.hostlists import expand
from outrider.metadata.notation.job_options import JobOption, read_job_options
from outrider.metadata.notation.repetition import starts
from outrider.metadata.notation.times import format_instant, parse_instant
from outrider.metadata.notation.zones import user_zone
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import DeploymentSection, WorkspaceFile, parse_workspace
from outrider.service.ports import FoundImage
from outrider.service.requests import MOST_LISTED, Modify, ShowReport
from outrider.service.web.errors import ErrorProblem, RefusedRequest, of_faulty_file, refused
from outrider.service.web.requests.bodies import (
    ChangeBody,
    ReportQuery,
    ReserveBody,
    SubmitBody,
    WorkspaceBody,
)

Value = TypeVar("Value")

OF_WORKSPACE = ("image", "digest", "size", "format", "private", "name", "option", "finish-by", "value")
"""Keys that the workspace says."""
LINES = "lines"


def understand(body: WorkspaceBody | SubmitBody, now_s: int) -> WorkspaceFile:
    """The workspace as its user means it. Raises Refused with every fault and its place."""
    circumstances = Circumstances(now_s=now_s, zone=understand_zone(body.zone))
    try:
        return parse_workspace(
            body.workspace.encode(), circumstances, file=body.file or "workspace.yaml", options=body.options
        )
    except FaultyFileError as error:
        raise of_faulty_file(error) from error


def understand_reservation(body: WorkspaceBody, now_s: int) -> WorkspaceFile:
    """The same for a reservation, which has to say when."""
    workspace = understand(body, now_s)
    deployment = workspace.deployment
    if deployment is None:
        words = "the workspace has no deployment: say how many nodes, for how long and when"
        raise fault("deployment", words)
    if deployment.is_best_effort:
        words = (
            "the workspace gives no time, so it is best effort and no reservation: give a start or a "
            "finish_by, or submit it as a job"
        )
        raise fault("deployment.start", words)
    if deployment.value is not None:
        words = "is for a job in a queue: leave it out, or say with max_price what the reservation may cost"
        raise fault("deployment.value", f"value {words}")
    for number, role in enumerate(workspace.metadata.roles):
        for key in ("files", "user_data", "addresses"):
            if getattr(role, key):
                words = f"a reservation's instances are told nothing: leave {key} of role {role.name} out"
                raise fault(f"metadata.roles[{number}].{key}", words)
    return workspace


def understand_starts(body: ReserveBody, workspace: WorkspaceFile, now_s: int) -> tuple[int, ...]:
    """All starts of a reservation that recurs; none of one that does not."""
    if not body.every:
        if body.until or body.best_fit:
            raise fault("every", "until and best_fit are for what recurs: say how often, or leave them out")
        return ()
    deployment = workspace.deployment
    assert deployment is not None
    if not body.until:
        raise fault("until", "what recurs has to end: say until when, like 2027-02-01")
    if workspace.metadata.has_unlike_roles:
        raise fault(
            "every", "roles with sizes or images of their own do not recur: reserve each time by itself"
        )
    if deployment.start_s is None or deployment.finish_by_s is not None:
        raise fault("every", "what recurs has a start, and no finish_by: give the first start")
    first_s, duration_s, zone = deployment.start_s, deployment.duration_s, understand_zone(body.zone)
    try:
        return starts(body.every, body.until, first_s=first_s, duration_s=duration_s, now_s=now_s, zone=zone)
    except TextError as error:
        raise fault("every", str(error)) from error


def check_expiry(workspace: WorkspaceFile, starts: tuple[int, ...], image: FoundImage, zone: tzinfo) -> None:
    """Refuse what may begin after the address of its image, or the key to it, has expired."""
    deployment = workspace.deployment
    if deployment is None or image.usable_until_s is None:
        return
    latest = [*starts, deployment.start_s, deployment.open_until_s]
    if deployment.finish_by_s is not None:
        latest.append(deployment.finish_by_s - deployment.duration_s)
    latest_s = max(each for each in latest if each is not None)
    if latest_s > image.usable_until_s:
        expiry = format_instant(image.usable_until_s, zone=zone)
        words = (
            f"the address of its image, or the key to it, expires at {expiry}, and it may begin as late as "
            f"{format_instant(latest_s, zone=zone)}: sign the address for longer, or begin earlier"
        )
        raise fault("metadata.image.uri", words)


def understand_price(text: str) -> int | None:
    """Thousandths; None if nothing is said."""
    if not text:
        return None
    whole, _, part = text.partition(".")
    return int(whole) * 1000 + int(part.ljust(3, "0"))


def understand_report(query: ReportQuery, now_s: int) -> ShowReport:
    zone = understand_zone(query.zone)

    def instant(key: str, text: str) -> int:
        return _read(key, lambda given: parse_instant(given, now_s=now_s, zone=zone), text)

    return ShowReport(
        by=query.by,
        from_s=instant("since", query.since) if query.since else 0,
        until_s=instant("until", query.until) if query.until else None,
    )


def understand_job(body: SubmitBody, now_s: int) -> WorkspaceFile:
    """The same for a job, which starts when the batch system has room: no time is passed over."""
    workspace = understand(body, now_s)
    if workspace.metadata.has_unlike_roles:
        words = "a job has instances that are alike: reserve the workspace, and submit a job for each role"
        raise fault("metadata.roles", words)
    deployment = workspace.deployment
    if deployment is not None and (deployment.start_s, deployment.open_from_s) != (None, None):
        words = (
            "the workspace gives a time, which a job of its own cannot have: reserve it and submit with the "
            "reservation's name, or leave its start out"
        )
        raise fault("deployment.start", words)
    if deployment is not None and deployment.least_piece_s is not None:
        words = "a job is in one piece: leave least_piece out, or reserve the workspace"
        raise fault("deployment.least_piece", words)
    if deployment is not None and deployment.options:
        if any(each.instances_per_node not in (None, 1) for each in deployment.options):
            words = (
                "a job has one instance on each node: leave instances_per_node out, or reserve the workspace"
            )
            raise fault("deployment.options", words)
        for number, each in enumerate(deployment.options):
            if each.image is not None and each.image.format is not None:
                words = "a job's option has no format of an image, which the service finds out: leave it out"
                raise fault(f"deployment.options[{number}].image.format", words)
            if each.image is not None and each.image.private != workspace.metadata.image.private:
                words = "the images of a job are private together or not at all: say the same of each"
                raise fault(f"deployment.options[{number}].image.private", words)
        try:
            read_job_options([str(each) for each in job_options(deployment)])
        except TextError as error:
            raise fault("deployment.options", str(error)) from error
    return workspace


def job_options(
    deployment: DeploymentSection, images: Sequence[FoundImage | None] = ()
) -> tuple[JobOption, ...]:
    """The options of a deployment as a job has them, with their own images as found; none if there are none.
    A job's limit counts in minutes."""
    ways = deployment.options
    found = images or [None] * len(ways)
    has_cpus, has_memory = (any(getattr(each, name) for each in ways) for name in ("cpus", "memory_mib"))
    return tuple(
        JobOption(
            nodes=each.nodes,
            limit_s=-(-each.duration_s // 60) * 60,
            cpus=(each.cpus or deployment.cpus) if has_cpus else 0,
            memory_mib=(each.memory_mib or deployment.memory_mib or 0) if has_memory else 0,
            image="" if each.image is None else (image and image.uri) or each.image.uri,
            digest="" if each.image is None else (image and image.digest) or each.image.digest or "",
        )
        for each, image in zip(ways, found, strict=True)
    )


def with_script_lines(lines: JobLines, said: list[str]) -> JobLines:
    """A job's lines as its workspace has them, with those of its script."""
    for each in said:
        key = each.partition(":")[0].strip().lower()
        if key in OF_WORKSPACE:
            raise fault(LINES, f"{key} is in the script, and said by the workspace already: leave one out")
    try:
        return parse_job_lines(write_job_lines(lines) + "\n".join(said))
    except TextError as error:
        raise fault(LINES, str(error)) from error


def machine_words(lines: JobLines, deployment: DeploymentSection | None) -> str:
    """What the program that runs a job in a virtual machine is told, as the submit filters of Slurm and Grid
    Engine tell it; nothing for other jobs."""
    if not lines.is_machine:
        return ""
    if deployment is None or deployment.memory_mib is None:
        raise fault("deployment.memory", "run: vm needs the guest's memory: say memory in the workspace")
    if deployment.instances_per_node != 1:
        words = "a job in a virtual machine has one on each node: leave instances_per_node out"
        raise fault("deployment.instances_per_node", words)
    said = lines.machine
    strange = {
        "role": bool(lines.roles),
        "data": bool(lines.data),
        "network-rate": said.network_rate_bytes_per_s is not None,
    }
    for key, is_said in strange.items():
        if is_said:
            raise fault(LINES, f"{key} is for jobs that sbatch hands over: leave it out")
    words = f"run=vm,memory={deployment.memory_mib}"
    if lines.boot:
        words += f",boot={lines.boot}"
    if said.scratch_bytes is not None:
        words += f",scratch={said.scratch_bytes}"
    if said.disk_rate_bytes_per_s is not None:
        words += f",disk={said.disk_rate_bytes_per_s}"
    if said.is_interactive:
        words += ",lease=interactive"
    return words


def understand_change(
    name: str, body: ChangeBody, now_s: int, *, is_plan: bool, key: str, hashed: str
) -> Modify:
    if not body.model_dump(exclude={"zone"}, exclude_none=True):
        raise refused(422, "nothing is to be changed: give a start, a duration, a number of nodes or a size")
    zone = understand_zone(body.zone)
    start_s = duration_s = None
    if body.start is not None:
        start_s = _read("start", lambda text: parse_instant(text, now_s=now_s, zone=zone), body.start)
    if body.duration is not None:
        duration_s = understand_duration(body.duration)
    return Modify(
        name=name,
        start_s=start_s,
        duration_s=duration_s,
        nodes=body.nodes,
        cpus=body.cpus,
        memory_mib=None if body.memory is None else _read("memory", memory_mib, body.memory),
        gpus=body.gpus,
        is_plan=is_plan,
        zone=zone,
        key=key,
        request_hash=hashed,
    )


def understand_duration(text: str) -> int:
    return _read("duration", parse_duration, text)


def understand_nodes(key: str, text: str) -> tuple[str, ...]:
    """The nodes of a list; none for an empty text."""
    return _read(key, lambda given: expand(given, limit=MOST_LISTED), text) if text.strip() else ()


def understand_zone(name: str) -> tzinfo:
    """The zone of that name, or the one of the machine."""
    return _read("zone", lambda text: user_zone({"TZ": text}), name)


def hash_of(method: str, path: str, body: BaseModel | None) -> str:
    """The same for requests that say the same: times are the user's words, not what they mean now."""
    said = {} if body is None else body.model_dump(mode="json")
    text = json.dumps([method, path, said], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _read(key: str, parse: Callable[[str], Value], text: str) -> Value:
    try:
        return parse(text)
    except TextError as error:
        raise fault(key, str(error)) from error


def fault(key: str, words: str) -> RefusedRequest:
    return refused(422, words, problems=[ErrorProblem(key=key, message=words)])
