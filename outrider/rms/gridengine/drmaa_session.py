"""A process of its own in which Grid Engine's DRMAA library lives: requests on stdin, answers on stdout.

The library is C, wants variables that are read before a process begins, and has one session a process,
as the user who runs it. So it stays out of the service. Run as

    python -I drmaa_session.py UID GID GROUP,GROUP,…

by root, it becomes that user once everything is loaded. A request is a line of JSON: `{"submit": command,
"arguments": […], "native": "…"}` or `{"control": "17", "action": "TERMINATE"}`; so is the answer,
`{"said": "17"}` or `{"error": "…"}`. The first line says whether there is a session.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Protocol


class Template(Protocol):
    """What a job is to be."""

    remoteCommand: str
    args: list[str]
    nativeSpecification: str


class DrmaaSession(Protocol):
    """What is used of `drmaa.Session`."""

    def initialize(self) -> None: ...
    def exit(self) -> None: ...
    def createJobTemplate(self) -> Template: ...
    def deleteJobTemplate(self, template: Template) -> None: ...
    def runJob(self, template: Template) -> str: ...
    def control(self, job: str, action: str) -> None: ...


def carried_out(session: DrmaaSession, request: dict[str, object]) -> str:
    """The number of a job that was submitted, or nothing."""
    if "control" in request:
        session.control(str(request["control"]), str(request["action"]).lower())
        return ""
    arguments = request["arguments"]
    template = session.createJobTemplate()
    try:
        template.remoteCommand = str(request["submit"])
        template.args = [str(each) for each in arguments] if isinstance(arguments, list) else []
        template.nativeSpecification = str(request["native"])
        return session.runJob(template)
    finally:
        session.deleteJobTemplate(template)


def answer(session: DrmaaSession, line: str) -> dict[str, str]:
    try:
        return {"said": carried_out(session, json.loads(line))}
    except Exception as error:  # noqa: BLE001 - the library's own classes, one for each code
        kind = type(error).__name__
        return {"error": f"{kind}: {error}" + (" does not exist" if kind == "InvalidJobException" else "")}


def become(uid: int, gid: int, groups: list[int]) -> None:
    if os.geteuid() == 0:
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)


def say(said: dict[str, str]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()


def main(argv: list[str]) -> int:
    try:
        session: DrmaaSession = importlib.import_module("drmaa").Session()
        become(int(argv[0]), int(argv[1]), [int(each) for each in argv[2].split(",") if each])
        session.initialize()
    except Exception as error:  # noqa: BLE001 - whatever keeps a C library from loading
        say({"error": f"{type(error).__name__}: {error}"})
        return 1
    say({"said": "ready"})
    for line in sys.stdin:
        say(answer(session, line))
    session.exit()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
