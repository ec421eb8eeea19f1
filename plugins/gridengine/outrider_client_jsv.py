#!/usr/bin/python3 -ISBWignore
"""The smallest client's submission verifier: `#OUTRIDER key: value` lines of a script into `-ac`.

Only the client sees the script, and the environment of whoever submits: where neither the job nor its script
names an image, OUTRIDER_IMAGE_WANTED does. It decides nothing: the server's filter does. It tells
who submits a job with an image at a terminal that it is held. What it refuses is what
it cannot hand on: Grid Engine reads a line of an answer into 10000 bytes, and does not count.
A job with an image that belongs to a reservation also gets the request without which the queue of
reservations takes no job: Grid Engine looks for that before it asks the server's filter.
Use it by a line `-jsv /usr/lib/outrider/gridengine/outrider_client_jsv.py` in sge_request.
"""

import base64
import os
import re
import sys

MARK = "#OUTRIDER "
WANTED = "OUTRIDER_IMAGE_WANTED"
COMPLEX = "outrider_reservation"
MOST_BYTES = 64 * 1024
MOST_ANSWER_BYTES = 8000
MOST_METADATA_CHARACTERS = 4000
CLIENTS = ("qsub", "qresub", "qrsh", "qsh", "qlogin")
TERMINALS = ("/dev/pts/", "/dev/tty", "/dev/console")
MOST_SHELLS = 3
REQUESTS = re.compile(
    r"[A-Za-z_][\w.]*(?:=[^,\s\x00-\x1f\x7f]+)?(?:,[A-Za-z_][\w.]*(?:=[^,\s\x00-\x1f\x7f]+)?)*"
)
CONTEXT = re.compile(r"[A-Za-z_]\w*=[^,\x00-\x1f\x7f]+(?:,[A-Za-z_]\w*=[^,\x00-\x1f\x7f]+)*")


class TooLong(Exception):
    """What cannot be handed on, and what its user can do about it."""


def has_image(context):
    return context.startswith("OUTRIDER=") or ",OUTRIDER=" in context


def lines_of(path):
    """What the script says of its image: the lines in its first 64 KiB, which end there."""
    try:
        # Not a pipe, which would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            head = os.read(descriptor, MOST_BYTES)
        finally:
            os.close(descriptor)
    except (OSError, ValueError):
        return []
    if len(head) == MOST_BYTES:
        head = head[: head.rfind(b"\n") + 1]
    lines = head.decode(errors="replace").splitlines()
    return [line[len(MARK) :].strip() for line in lines if line.startswith(MARK)]


def wanted(parameters):
    """Under which name what is handed on, of the script or else the environment; and where it stands."""
    is_binary = parameters.get("b", "n").lower() in ("y", "yes")
    lines = [] if is_binary else lines_of(parameters.get("CMDNAME", ""))
    if lines:
        return "OUTRIDER", "\n".join(lines), f"the script begins with {len(lines)} #OUTRIDER lines"
    # By a name of its own, since the server's filter also reads -v OUTRIDER=…, which counts more.
    return WANTED, os.environ.get(WANTED, "").strip(), f"{WANTED} is a text"


def correction(parameters):
    """The context with the script's metadata, or the environment's, or nothing. Raises TooLong."""
    context = parameters.get("ac", "")
    if has_image(context):
        return None
    name, text, place = wanted(parameters)
    if not text or f"{WANTED}=" in context:
        return None
    if len(text) > MOST_METADATA_CHARACTERS:
        raise TooLong(
            f"{place} of {len(text)} characters, and at most {MOST_METADATA_CHARACTERS} can be handed on: "
            "write each key once"
        )
    coded = base64.urlsafe_b64encode(text.encode()).decode()
    after = ",".join(filter(None, [context, f"{name}=base64:{coded}"]))
    if size(after) > MOST_ANSWER_BYTES:
        raise TooLong(
            f"the context (-ac) would have {size(after)} bytes with what names the image, and at "
            f"most {MOST_ANSWER_BYTES} can be handed on: shorten it"
        )
    return None if context and not CONTEXT.fullmatch(context) else after


def is_read_by_a_person(process):
    """Whether the client, which runs this by a shell, writes to a terminal. Grid Engine prints what a filter
    says where it prints the job's number: a script that reads that must find nothing else there."""
    try:
        for _ in range(MOST_SHELLS):
            with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
            if name in CLIENTS:
                return os.readlink(f"/proc/{process}/fd/1").startswith(TERMINALS)
            process = rest.split()[1]
    except (OSError, IndexError):
        pass
    return False


def requests(parameters):
    """The requests with the one for the queue of reservations, or nothing. Raises TooLong."""
    # A script that mixes scoped and plain names gets undefined results: answer as it was asked.
    is_scoped = any(name.startswith(("global_", "master_", "slave_")) for name in parameters)
    option = "global_l_hard" if is_scoped else "l_hard"
    before = parameters.get(option, "")
    if parameters.get("ar", "0") in ("", "0") or any(
        word.partition("=")[0] == COMPLEX for word in before.split(",")
    ):
        return None
    if size(before) > MOST_ANSWER_BYTES - len(COMPLEX) - 10:
        raise TooLong(
            f"the requests (-l) have {size(before)} bytes, and nothing can be added to so many: shorten "
            f"them, or add {COMPLEX}=TRUE yourself"
        )
    if before and REQUESTS.fullmatch(before) is None:
        return None
    return "{} {}".format(option, ",".join(filter(None, [before, COMPLEX + "=TRUE"])))


def size(text):
    return len(text.encode("utf-8", "surrogateescape"))


def answer(parameters):
    """The lines of the answer to a job."""
    try:
        context = correction(parameters)
        lines = [] if context is None else ["PARAM ac " + context]
        if context or has_image(parameters.get("ac", "")):
            added = requests(parameters)
            lines += [] if added is None else ["PARAM " + added]
    except TooLong as error:
        return [f"RESULT STATE REJECT outrider: {error}"]
    verdict = "RESULT STATE CORRECT" if lines else "RESULT STATE ACCEPT"
    return [*lines, *said(parameters, context), verdict]


def said(parameters, context):
    """What the user of a job with an image is told: that it is held, and for what. Nothing of their text."""
    if not (context or has_image(parameters.get("ac", ""))) or not is_read_by_a_person(os.getppid()):
        return []
    if parameters.get("ar", "0") not in ("", "0"):
        return ["LOG INFO outrider: the job has its image when its reservation begins"]
    return ["LOG INFO outrider: the job is held until its image is on its nodes: outrider jobs says when"]


def main():
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    parameters = {}
    for line in iter(sys.stdin.readline, ""):
        word, _, rest = line.rstrip("\n").partition(" ")
        lines = []
        if word == "START":
            parameters = {}
            lines = ["STARTED"]
        elif word == "PARAM":
            name, _, value = rest.partition(" ")
            parameters[name] = value
        elif word == "BEGIN":
            lines = answer(parameters)
        elif word == "QUIT":
            return 0
        sys.stdout.write("".join(each + "\n" for each in lines))
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
