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
    "data": "a job in a machine has one image here: leave data out",
    "role": "the machines of a job are alike here, and named vm1, vm2, …: leave role out",
}
"""Keys of other batch systems, and why they cannot be said here."""
MOST_OPTIONS, MOST_CHARACTERS, MOST_MEMORY_MIB = 16, 4096, 1 << 24
KEYS = ("nodes", "time", "cpus", "memory", "image", "digest")
PART = re.compile(r"([a-z]{1,16})=([!-~]{1,2048})")
VALUES = {
    "nodes": (re.compile(r"[1-9][0-9]{0,4}"), "a number of nodes from 1 to 99999"),
    "cpus": (re.compile(r"[1-9][0-9]{0,4}"), "a number of processors of a node from 1 to 99999"),
    "time": (re.compile(r"[1-9][0-9]{0,5}(?:m|min|h)?"), "a time: write minutes, or one like 90m or 2h"),
    "memory": (
        re.compile(r"([1-9][0-9]{0,8})(MiB|GiB|MB|GB|M|G)"),
        "the memory of a node: write one like 800MiB or 16GiB",
    ),
    "image": (
        re.compile(r"[A-Za-z0-9/][!-+\--~]{0,2000}"),
        "an address or a name, without blanks and commas",
    ),
    "digest": (re.compile(r"sha256:[0-9a-f]{64}"), "a digest: write sha256: and 64 hexadecimal digits"),
}
WORTH = re.compile(r"(?:0|[1-9][0-9]{0,8})(?:\.[0-9]{1,3})?")
INSTANT = "%Y-%m-%dT%H:%M:%SZ"
DEADLINE = re.compile(r"(?m)((?:^|;)[ \t]*finish-by[ \t]*[:=][ \t]*)([0-9A-Za-z:+-]{1,32})(?=[ \t]*(?:;|$))")
AHEAD = re.compile(r"now\+([1-9][0-9]{0,4})([mhd])")
CLOCK = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])")
LOCAL = ("%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S")
UNITS_S = {"m": 60, "h": 3600, "d": 86400}


def fault(options, found):
    """What is wrong with a job's options, its deadline and its value; nothing if all is well."""
    if len(options) > MOST_OPTIONS:
        return f"there are {len(options)} options: at most {MOST_OPTIONS} are read"
    if sum(map(len, options)) > MOST_CHARACTERS:
        return f"the options have more than {MOST_CHARACTERS} characters: shorten them"
    seen = {}
    for number, text in enumerate(options, 1):
        words = _fault_of(text) or _against_others(text, options[0], seen, number)
        if words:
            return f"option {number}: {words}"
    if options and found.get("run") == "vm":
        return "option and run=vm contradict each other, since a machine has one node: leave one out"
    if WORTH.fullmatch(found.get("value", "0")) is None:
        return f"value is {found['value'][:60]!r}: write a number from 0 to 999999999, like 12.5"
    text = found.get("finish-by")
    if text is not None and instant(text, 0) is None:
        return f"finish-by is {text[:60]!r}: write now+3h, 18:00, 2026-01-31T14:00 or 2026-01-31T14:00:00Z"
    return ""


def has_images(options):
    """Whether any option has an image of its own: which one the job gets is known later."""
    return any("image" in dict(PART.findall(text)) for text in options)


def changes(options, environment):
    """The lines by which a job knows its options, or no longer those of the job that submits it."""
    if options:
        nodes = ",".join(dict(PART.findall(text))["nodes"] for text in options)
        return [f"ENV ADD {OPTIONS} {nodes}"]
    return ["ENV DEL " + OPTIONS] * (OPTIONS in environment)


def with_instant(text, now_s):
    """The metadata with its deadline as the service reads it: what it means here and now."""

    def written(found):
        at_s = instant(found[2], now_s)
        return found[1] + (found[2] if at_s is None else time.strftime(INSTANT, time.gmtime(at_s)))

    return DEADLINE.sub(written, text)


def instant(text, now_s):
    """The instant that a text means here and now; None if it means none."""
    ahead, clock = AHEAD.fullmatch(text), CLOCK.fullmatch(text)
    try:
        if ahead:
            return now_s + int(ahead[1]) * UNITS_S[ahead[2]]
        if clock:
            day = list(time.localtime(now_s))
            day[3:6], day[8] = (int(clock[1]), int(clock[2]), 0), -1
            at_s = time.mktime(tuple(day))
            if at_s <= now_s:
                day[2] += 1
                at_s = time.mktime(tuple(day))
            return int(at_s)
        if text.endswith("Z"):
            return _seconds_of_utc(text)
        for form in LOCAL:
            if len(text) == len(time.strftime(form, (2000, 1, 1, 0, 0, 0, 0, 1, -1))):
                return int(time.mktime((*time.strptime(text, form)[:8], -1)))
    except (ValueError, OverflowError):
        return None
    return None


def _seconds_of_utc(text):
    """Without calendar.timegm, which a filter that starts for each job does not load."""
    parts = time.strptime(text, INSTANT if text.count(":") == 2 else "%Y-%m-%dT%H:%MZ")
    year, day = parts.tm_year - 1, parts.tm_yday - 1
    days = 365 * (year - 1969) + year // 4 - year // 100 + year // 400 - 477 + day
    return ((days * 24 + parts.tm_hour) * 60 + parts.tm_min) * 60 + parts.tm_sec


def _fault_of(text):
    found = {}
    for part in text.replace("\t", " ").split(" "):
        if not part:
            continue
        split = PART.fullmatch(part)
        if split is None:
            return f"{part[:60]!r} is not of the form key=value, as in nodes=2 time=60"
        key, value = split[1], split[2]
        if key not in KEYS:
            return f"{key} is not a key of a job's option: use {', '.join(KEYS)}"
        if key in found:
            return f"{key} is given twice: give it once"
        found[key] = value
    for key in ("nodes", "time"):
        if key not in found:
            return f"{key} is missing: write one like nodes=2 time=60"
    for key, value in found.items():
        pattern, form = VALUES[key]
        if pattern.fullmatch(value) is None:
            return f"{value[:60]!r} is not {form}"
    if "memory" in found and _mib(found["memory"]) > MOST_MEMORY_MIB:
        return f"{found['memory']!r} is not {VALUES['memory'][1]}"
    return "digest has no effect without image" if "digest" in found and "image" not in found else ""


def _against_others(text, first, seen, number):
    found, begun = dict(PART.findall(text)), dict(PART.findall(first))
    for key in ("cpus", "memory"):
        if (key in found) != (key in begun):
            return f"{key} is in some options only: give it in each, or in none"
    memory = _mib(found["memory"]) if "memory" in found else 0
    size = found["nodes"], found.get("cpus"), memory, found.get("image")
    if size in seen:
        return f"it has the size of option {seen[size]}: keep the shorter one"
    seen[size] = number
    return ""


def _mib(text):
    amount, unit = VALUES["memory"][0].fullmatch(text).groups()
    return int(amount) * (1024 if unit.startswith("G") else 1)
