"""What the embedded batch system remembers, as one file of JSON: written beside, synced, renamed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cachemgr.base.disk import RealDisk, replace_file
from outrider.core.model import Resources
from outrider.rms.base import JobState, NodeState, RmsError, RmsReservation, Submission
from outrider.rms.twin.jobs import Holder, Leaving, TwinJob

VERSION = 1
MOST_BYTES = 64 << 20
MOST_ENDED = 1_000
Plain = dict[str, object]


class JournalError(RmsError):
    """The journal of the embedded batch system cannot be read."""

    exit_code = 41


@dataclass(frozen=True, kw_only=True, slots=True)
class JournaledRun:
    """A command that was launched: by what it is found again, and how it stands."""

    identity: str
    start_s: int
    is_begun: bool
    is_stopped: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class JournalContent:
    """All of it."""

    jobs: tuple[TwinJob, ...] = ()
    ended: Mapping[str, str]
    reservations: tuple[RmsReservation, ...] = ()
    nodes: Mapping[str, NodeState]
    runs: Mapping[str, JournaledRun]
    last_number: int = 0


def encode(kept: JournalContent) -> bytes:
    plain = {
        "version": VERSION,
        "last_number": kept.last_number,
        "nodes": {name: state.value for name, state in kept.nodes.items() if state is not NodeState.UP},
        "reservations": [_plain_reservation(each) for each in kept.reservations],
        "jobs": [_plain_job(job) for job in kept.jobs],
        "ended": dict(list(kept.ended.items())[-MOST_ENDED:]),
        "runs": {
            key: [run.identity, run.start_s, run.is_begun, run.is_stopped] for key, run in kept.runs.items()
        },
    }
    return json.dumps(plain, separators=(",", ":")).encode() + b"\n"


def size_of(submission: Submission) -> int:
    """How many bytes of a journal a submission takes, or a few more."""
    return len(json.dumps([submission.argv, submission.metadata]))


def write(path: Path, data: bytes) -> None:
    """Raises OSError; what was there before is then there still."""
    replace_file(RealDisk(), str(path), data)


def read(path: Path) -> JournalContent | None:
    """What an earlier service wrote; None if there was none."""
    try:
        with path.open("rb") as file:
            plain = json.loads(file.read(MOST_BYTES))
        if plain["version"] != VERSION:
            raise JournalError(f"{path} was written by another version: start that, or move the file away")
        return JournalContent(
            jobs=tuple(_job(each) for each in plain["jobs"]),
            ended={str(key): str(why) for key, why in plain["ended"].items()},
            reservations=tuple(_reservation(each) for each in plain["reservations"]),
            nodes={str(name): NodeState(state) for name, state in plain["nodes"].items()},
            runs={str(key): _run(*row) for key, row in plain["runs"].items()},
            last_number=int(plain["last_number"]),
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise JournalError(
            f"the journal {path} cannot be read ({type(error).__name__}: {error}): move it away to begin "
            "again; jobs that still run then belong to nobody"
        ) from error


def _run(identity: str, start_s: int, is_begun: bool, is_stopped: bool) -> JournaledRun:
    return JournaledRun(identity=identity, start_s=start_s, is_begun=is_begun, is_stopped=is_stopped)


def _plain_reservation(each: RmsReservation) -> Plain:
    return {
        "name": each.name,
        "nodes": each.nodes,
        "start_s": each.start_s,
        "end_s": each.end_s,
        "users": each.users,
        "is_ours": each.is_ours,
        "size": dict(each.size.amounts),
    }


def _reservation(plain: dict[str, object]) -> RmsReservation:
    nodes, users = plain.pop("nodes"), plain.pop("users")
    size = Resources.from_mapping(plain.pop("size", {}))  # type: ignore[arg-type]
    return RmsReservation(nodes=_texts(nodes), users=_texts(users), size=size, **plain)  # type: ignore[arg-type]


def _plain_job(job: TwinJob) -> Plain:
    submission, leaving = job.submission, job.leaving
    return {
        "number": job.number,
        "submitted_s": job.submitted_s,
        "work_s": job.work_s,
        "reservation": job.reservation,
        "state": job.state.value,
        "holders": sorted(each.value for each in job.holders),
        "wanted_nodes": job.wanted_nodes,
        "eligible": job.eligible,
        "queue": job.queue,
        "ticket": job.ticket,
        "shown": job.shown,
        "eligible_s": job.eligible_s,
        "nodes": job.nodes,
        "start_s": job.start_s,
        "ready_s": job.ready_s,
        "leaving": None if leaving is None else [leaving.at_s, leaving.to.value, leaving.why, leaving.kept_s],
        "option": job.option,
        "wants_to_go_on": job.wants_to_go_on,
        "done_s": job.done_s,
        "used_s": job.used_s,
        "saved_nodes": job.saved_nodes,
        "starts": job.starts,
        "lands_on": job.lands_on,
        "lands_image": job.lands_image,
        "lands_since_s": job.lands_since_s,
        "submission": {
            "user": submission.user,
            "uid": submission.uid,
            "argv": submission.argv,
            "nodes_wanted": submission.nodes_wanted,
            "resources": dict(submission.resources.amounts),
            "limit_s": submission.limit_s,
            "metadata": submission.metadata,
            "reservation": submission.reservation,
            "tag": submission.tag,
            "account": submission.account,
            "machine": submission.machine,
            "folder": submission.folder,
        },
    }


def _job(plain: dict[str, object]) -> TwinJob:
    asked, leaving = plain.pop("submission"), plain.pop("leaving")
    if not isinstance(asked, dict) or not isinstance(leaving, list | None):
        raise TypeError("a job without a submission")
    submission = Submission(
        argv=_texts(asked.pop("argv")), resources=Resources.from_mapping(asked.pop("resources")), **asked
    )
    return TwinJob(
        submission=submission,
        state=JobState(plain.pop("state")),
        holders={Holder(each) for each in _texts(plain.pop("holders"))},
        wanted_nodes=_texts(plain.pop("wanted_nodes")),
        eligible=_texts(plain.pop("eligible", [])),
        nodes=_texts(plain.pop("nodes")),
        saved_nodes=_texts(plain.pop("saved_nodes", [])),
        lands_on=_texts(plain.pop("lands_on", [])),
        leaving=None if leaving is None else Leaving(leaving[0], JobState(leaving[1]), *leaving[2:]),
        **plain,  # type: ignore[arg-type]
    )


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TypeError("a list of texts is missing")
    return tuple(value)
