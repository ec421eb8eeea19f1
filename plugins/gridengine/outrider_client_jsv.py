#!/usr/bin/python3 -ISBWignore
"""The smallest client's submission verifier: `#OUTRIDER key: value` lines of a script into `-ac`.

Only the client sees the script. It decides nothing and refuses nothing: the server's filter does.
A job with an image that belongs to a reservation also gets the request without which the queue of
reservations takes no job: Grid Engine looks for that before it asks the server's filter.
Use it by a line `-jsv /usr/lib/outrider/gridengine/outrider_client_jsv.py` in sge_request.
"""

import base64
import os
import re
import sys

MARK = "#OUTRIDER "
COMPLEX = "outrider_reservation"
MOST_BYTES = 64 * 1024
REQUESTS = re.compile(
    r"[A-Za-z_][\w.]*(?:=[^,\s\x00-\x1f\x7f]+)?(?:,[A-Za-z_][\w.]*(?:=[^,\s\x00-\x1f\x7f]+)?)*"
)
CONTEXT = re.compile(r"[A-Za-z_]\w*=[^,\x00-\x1f\x7f]+(?:,[A-Za-z_]\w*=[^,\x00-\x1f\x7f]+)*")


def correction(parameters):
    """The context with the script's metadata, or nothing."""
    context = parameters.get("ac", "")
    is_binary = parameters.get("b", "n").lower() in ("y", "yes")
    if is_binary or re.search(r"(?:^|,)OUTRIDER=", context) or (context and not CONTEXT.fullmatch(context)):
        return None
    try:
        # Not a pipe, which would wait for a writer.
        descriptor = os.open(parameters.get("CMDNAME", ""), os.O_RDONLY | os.O_NONBLOCK)
        try:
            head = os.read(descriptor, MOST_BYTES).decode(errors="replace")
        finally:
            os.close(descriptor)
    except OSError:
        return None
    lines = [line[len(MARK) :].strip() for line in head.splitlines() if line.startswith(MARK)]
    if not lines:
        return None
    text = base64.urlsafe_b64encode("\n".join(lines).encode()).decode()
    return ",".join(filter(None, [context, "OUTRIDER=base64:" + text]))


def requests(parameters):
    """The requests with the one for the queue of reservations, or nothing."""
    # A script that mixes scoped and plain names gets undefined results: answer as it was asked.
    is_scoped = any(name.startswith(("global_", "master_", "slave_")) for name in parameters)
    option = "global_l_hard" if is_scoped else "l_hard"
    before = parameters.get(option, "")
    if parameters.get("ar", "0") in ("", "0") or any(
        word.partition("=")[0] == COMPLEX for word in before.split(",")
    ):
        return None
    if before and REQUESTS.fullmatch(before) is None:
        return None
    return "{} {}".format(option, ",".join(filter(None, [before, COMPLEX + "=TRUE"])))


def answer(parameters):
    """The lines of the answer to a job."""
    context = correction(parameters)
    lines = [] if context is None else ["PARAM ac " + context]
    if context or re.search(r"(?:^|,)OUTRIDER=", parameters.get("ac", "")):
        added = requests(parameters)
        lines += [] if added is None else ["PARAM " + added]
    return [*lines, "RESULT STATE CORRECT"] if lines else ["RESULT STATE ACCEPT"]


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
