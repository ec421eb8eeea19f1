"""Asking a site's own program whether somebody may reserve.

The program gets the request as JSON on stdin. Exit 0 allows; exit 1 with `{"reason": "…"}`
on stdout refuses. Anything else is a failure of the program, also exit 1 without a reason,
since an interpreter ends so when a script has a fault; then the policies say what to do.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from outrider.core.model import Workspace
from outrider.core.reservations import refusal as texts
from outrider.metadata.decision import Allowed, PolicyRefusal, Requester
from outrider.metadata.errors import MetadataError, shown
from outrider.metadata.policies import ExternalSection

RULE = "external"
MOST_OUTPUT_BYTES = 16_384
MOST_REASON = 500
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
"""All that the program inherits: nothing of the service's own environment is its business."""


class ProgramError(MetadataError):
    """A program gave no answer: it could not be started, was too slow, or wrote too much."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramResult:
    exit_code: int
    stdout: bytes
    stderr: bytes


Run = Callable[[Sequence[str], bytes, int], ProgramResult]
"""Runs an argument list with these bytes on stdin for so many seconds, or raises ProgramError."""


def ask(
    external: ExternalSection, workspace: Workspace, who: Requester, run: Run, *, now_s: int
) -> Allowed | PolicyRefusal:
    """What the site's program says, or what is to be done when it says nothing."""
    question = json.dumps(question_of(workspace, who, now_s), ensure_ascii=True).encode() + b"\n"
    try:
        finished = run(external.command, question, external.timeout_s)
        if finished.exit_code == 0:
            return Allowed(rule=RULE)
        return PolicyRefusal(rule=RULE, sentence=texts.of_program(_reason(finished)))
    except ProgramError as error:
        if external.when_it_fails == "allow":
            return Allowed(rule=RULE, remark=str(error))
        return PolicyRefusal(rule=RULE, sentence=texts.of_silent_program(error), remark=str(error))


def program_runner(monotonic: Callable[[], float], most_bytes: int = MOST_OUTPUT_BYTES) -> Run:
    """A runner of real processes that measures time with this clock.

    The program has its own session, so that its children end with it, and an environment of
    two variables. What it writes is read up to a limit.
    """

    def run(arguments: Sequence[str], question: bytes, timeout_s: int) -> ProgramResult:
        deadline = monotonic() + timeout_s
        with tempfile.TemporaryFile() as stdin:
            stdin.write(question)
            stdin.seek(0)
            try:
                process = subprocess.Popen(
                    list(arguments), stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                    env=ENVIRONMENT, cwd="/", start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise ProgramError(f"{arguments[0]} cannot be started: {error.strerror}") from error
        with process:
            try:
                stdout, stderr = _outputs(process, lambda: deadline - monotonic(), most_bytes)
                process.wait(timeout=max(deadline - monotonic(), 0.001))
            except ProgramError as error:
                raise ProgramError(f"{arguments[0]} {error}") from error
            except subprocess.TimeoutExpired as error:
                raise ProgramError(f"{arguments[0]} did not end within {timeout_s} s") from error
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
        return ProgramResult(exit_code=process.returncode, stdout=stdout, stderr=stderr)

    return run


def _outputs(
    process: subprocess.Popen[bytes], seconds_left: Callable[[], float], most_bytes: int
) -> tuple[bytes, bytes]:
    """All that the program writes, until it closes both ends."""
    assert process.stdout is not None
    assert process.stderr is not None
    written = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        for descriptor in written:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = seconds_left()
            ready = selector.select(left) if left > 0 else []
            if not ready and seconds_left() <= 0:
                raise ProgramError("did not close its output in time")
            for key, _ in ready:
                chunk = os.read(key.fd, 4096)
                if not chunk:
                    selector.unregister(key.fd)
                written[key.fd] += chunk
                if len(written[key.fd]) > most_bytes:
                    raise ProgramError(f"wrote more than {most_bytes} bytes")
    stdout, stderr = written.values()
    return bytes(stdout), bytes(stderr)


def question_of(workspace: Workspace, who: Requester, now_s: int) -> dict[str, object]:
    """The request as the program reads it: one JSON object, of which names will not change."""
    image = workspace.image
    return {
        "version": 1,
        "now_s": now_s,
        "who": asdict(who),
        "workspace": workspace.name,
        "nodes": workspace.instances,
        "start_s": workspace.start_s,
        "duration_s": workspace.duration_s,
        "finish_by_s": workspace.finish_by_s,
        "image_uri": image.uri if image else "",
        "image_digest": image.digest if image else "",
        "image_size_bytes": image.size_bytes if image else 0,
    }


def _reason(finished: ProgramResult) -> str:
    """The reason of a refusal, on one line; a program that gives none has failed."""
    said = finished.stderr.decode(errors="replace").strip().splitlines()
    blame = f"exit {finished.exit_code}" + (f", {shown(said[-1])}" if said else "")
    if finished.exit_code != 1:
        raise ProgramError(blame)
    try:
        answer = json.loads(finished.stdout)
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"{blame}, without JSON on stdout") from error
    reason = answer.get("reason") if isinstance(answer, dict) else None
    words = " ".join(reason.split()) if isinstance(reason, str) else ""
    if not words:
        raise ProgramError(f"{blame}, without a reason")
    return "".join(each if each.isprintable() else "�" for each in words[:MOST_REASON])
