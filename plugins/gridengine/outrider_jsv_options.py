"""What Grid Engine's submit filter reads of a job's options, of which the service takes one.

Apart from the filter, which asks it. The service reads the same (outrider/metadata/notation/job_options.py).
"""

import re
import time

OPTIONS = "OUTRIDER_OPTIONS"
"""The variable that tells a job's starter the nodes of each option, in order."""
REFUSED = {
    "checkpoint": "Grid Engine signals no job: leave checkpoint out",
    "grace": "Grid Engine signals no job: leave grace out",
    "value": "jobs in queues are not weighed by a value: leave it out",
}
"""Keys of other batch systems, and why they cannot be said here."""
MOST_OPTIONS = 16
FIXED = ("image", "cpus", "memory")
PART = re.compile(r"([a-z]{1,16})=([A-Za-z0-9:._/-]{1,64})")
NODES = re.compile(r"[1-9][0-9]{0,4}")
TIME = re.compile(r"[1-9][0-9]{0,5}(?:m|min|h)?")
INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def fault(options, found):
    """What is wrong with a job's options and its deadline; nothing if all is well."""
    if len(options) > MOST_OPTIONS:
        return f"there are {len(options)} options: at most {MOST_OPTIONS} are read"
    seen = set()
    for number, text in enumerate(options, 1):
        words = _fault_of(text)
        nodes = dict(PART.findall(text)).get("nodes")
        if not words and nodes in seen:
            words = f"another one has {nodes} nodes, too: keep the shorter one"
        if words:
            return f"option {number}: {words}"
        seen.add(nodes)
    if options and found.get("run") == "vm":
        return "option and run=vm contradict each other, since a machine has one node: leave one out"
    return _fault_of_deadline(options, found.get("finish-by"))


def changes(options, environment):
    """The lines by which a job knows its options, or no longer those of the job that submits it."""
    if options:
        nodes = ",".join(dict(PART.findall(text))["nodes"] for text in options)
        return [f"ENV ADD {OPTIONS} {nodes}"]
    return ["ENV DEL " + OPTIONS] * (OPTIONS in environment)


def _fault_of(text):
    found = {}
    for part in text.replace("\t", " ").split(" "):
        if not part:
            continue
        split = PART.fullmatch(part)
        if split is None:
            return f"{part[:60]!r} is not of the form key=value, as in nodes=2 time=60"
        if split[1] in FIXED:
            return f"{split[1]} is the same for all options of a job: say it once, outside of them"
        if split[1] not in ("nodes", "time"):
            return f"{split[1]} is not known in an option of a job: there are nodes and time"
        if split[1] in found:
            return f"{split[1]} stands twice in it: say it once"
        found[split[1]] = split[2]
    for key in ("nodes", "time"):
        if key not in found:
            return f"{key} is missing: write one like nodes=2 time=60"
    if NODES.fullmatch(found["nodes"]) is None:
        return f"{found['nodes']!r} is not a number of nodes from 1 to 99999"
    if TIME.fullmatch(found["time"]) is None:
        return f"{found['time']!r} is not a time: write minutes, or one like 90m or 2h"
    return ""


def _fault_of_deadline(options, text):
    if text is None:
        return ""
    if not options:
        return "finish-by says nothing without options: leave it out"
    try:
        is_right = INSTANT.fullmatch(text) and time.strptime(text, "%Y-%m-%dT%H:%M:%SZ")
    except ValueError:
        is_right = False
    return "" if is_right else f"finish-by is {text[:60]!r}: write a time like 2026-01-31T14:00:00Z"
