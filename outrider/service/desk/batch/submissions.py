"""Jobs on their way to the batch system, as the store remembers them by their idempotency keys.

A job is handed over once. That it is about to be is on the disk before the batch system hears of it,
and its key when that has answered. A service that was killed between the two knows that it does not
know: it looks for a job with the submission's tag, and hands nothing over again.
"""

from __future__ import annotations

import hashlib
import json

from outrider.service.answers.jobs import Handover
from outrider.service.answers.reply import Answer, Trouble
from outrider.service.desk.state.site import Site
from outrider.service.requests import BeginSubmission, Caller, EndSubmission
from outrider.store.errors import Conflict, ConnectionLost, NotLeader, StoreError, StoreFailed
from outrider.store.records import RecordedAnswer as StoredAnswer

VERSION = 1
_BEGUN, _REFUSED, _DONE = "begun", "refused", "done"


def tag_of(uid: int, key: str) -> str:
    """How a user's submission is marked in the batch system: nothing of what users write is in it."""
    return f"outrider-{hashlib.sha256(f'{uid} {key}'.encode()).hexdigest()[:32]}"


def remember(
    site: Site, request: BeginSubmission | EndSubmission, caller: Caller, store_trouble: str
) -> Answer:
    """How far a job is on its way to the batch system, for when the same is asked again."""
    if store_trouble:
        return Trouble(code="unavailable", message=store_trouble)
    if isinstance(request, BeginSubmission):
        return _begin(site, request, caller)
    return _end(site, request, caller)


def _begin(site: Site, request: BeginSubmission, caller: Caller) -> Answer:
    """Remember that a job is about to be handed over, or tell what became of it before."""
    try:
        found = site.store.answered(caller.uid, request.key, request.request_hash)
    except Conflict as conflict:
        return Trouble(code="conflict", message=str(conflict))
    if found is None:
        new = _note(site, request, caller, _BEGUN)
        site.write(lambda promise: promise.answer(new))
        return Handover(is_new=True)
    state, job = _read(found.text)
    if state == _REFUSED:
        again = _note(site, request, caller, _BEGUN)
        site.write(lambda promise: promise.change_answer(again))
        return Handover(is_new=True)
    return Handover(job=job)


def _end(site: Site, request: EndSubmission, caller: Caller) -> Answer:
    """Remember what the batch system has said."""
    try:
        found = site.store.answered(caller.uid, request.key, request.request_hash)
    except Conflict as conflict:
        return Trouble(code="conflict", message=str(conflict))
    if found is None:
        return Trouble(code="not-found", message=f"no submission was begun under key {request.key}")
    ended = _note(site, request, caller, _DONE if request.job else _REFUSED, request.job)
    site.write(lambda promise: promise.change_answer(ended))
    return Handover(job=request.job)


def _note(
    site: Site, request: BeginSubmission | EndSubmission, caller: Caller, state: str, job: str = ""
) -> StoredAnswer:
    return StoredAnswer(
        uid=caller.uid,
        key=request.key,
        request_hash=request.request_hash,
        text=json.dumps({"version": VERSION, "submission": state, "job": job}),
        at_s=site.now_s,
    )


def _read(text: str) -> tuple[str, str]:
    found = json.loads(text)
    if found.get("version") != VERSION or found.get("submission") not in (_BEGUN, _REFUSED, _DONE):
        raise ValueError("a submission of another version is not known: update outriderd")
    return str(found["submission"]), str(found["job"])


def trouble_of(error: StoreError) -> Trouble:
    """What whoever asked is told of a store that failed: of a commit that was cut off nobody knows what it
    has left, until the request is sent again with its key."""
    if isinstance(error, (ConnectionLost, NotLeader)):
        words = "whether this was done is not known: ask again, with the same Idempotency-Key"
        return Trouble(code="busy", message=f"{words} ({error})")
    if isinstance(error, StoreFailed):
        return Trouble(code="unavailable", message=f"whether this was done is not known: {error}")
    return Trouble(code="unavailable", message=f"nothing was changed: {error}")
