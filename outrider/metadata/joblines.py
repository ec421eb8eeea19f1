"""What a job's user says of its image: lines `key: value`, as batch systems carry them.

    image: https://images.example.org/ubuntu.qcow2
    digest: sha256:0123…

Only `image` is needed: an address, or a name of the site's catalogue. In a batch system's option the same is
`image=ADDRESS;digest=sha256:0123…`, or the address alone. The text is the user's own and is read
strictly: what cannot be understood is an error that names the key and says what to write, and
nothing is guessed.

    preemptible: requeue
    checkpoint: USR1
    grace: 60s

say that the job may be requeued for a reservation, and that it is signalled so long before.

    run: vm
    boot: debian
    preemptible: suspend

let its script run in a virtual machine with that image, booted by a kernel of the site's or, without
one, from the image; and the machine may be suspended for a reservation, to go on afterwards.

    scratch: 20GiB
    disk-rate: 100MB
    network-rate: 10MB
    lease: interactive

give the machine an empty disk, bound what it reads and writes in a second and what it sends to others of its
job, and let it be there for its user, without a script.

    role: head cpus=4
    role: worker count=3 memory=2GiB
    data: https://data.example.org/genes.raw name=genes

give it machines that are unlike, and images that all of them read.

    option: nodes=2 time=60
    option: nodes=4 time=35
    finish-by: 2026-01-31T14:00:00Z

    value: 12.5

are sizes of which it takes one, chosen before its start, the time by which it is to have ended, and what
it is worth beside other jobs of its user's.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field

from outrider.metadata.errors import TextError, shown
from outrider.metadata.notation.amounts import size_bytes
from outrider.metadata.notation.image_lines import DataImage, FurtherImage, further_images, read_data
from outrider.metadata.notation.job_options import (
    JobOption,
    read_finish_by,
    read_job_options,
    read_value,
    write_finish_by,
    write_value,
)
from outrider.metadata.notation.machine_lines import MachineLines, read_machine_lines, write_machine_lines
from outrider.metadata.notation.role_lines import JobRole, read_roles

MOST_CHARACTERS = 8_192
KEYS = (
    "image", "digest", "size", "format", "private", "name", "run", "boot", "preemptible", "checkpoint",
    "grace", "option", "finish-by", "value", "scratch", "disk-rate", "network-rate", "lease", "role", "data",
)  # fmt: skip
SEVERAL = ("option", "role", "data")
"""Keys that may stand in more than one line."""
FORMATS = ("qcow2", "raw", "squashfs", "sif", "bundle", "file", "layers")
PREEMPTIBLE = ("no", "requeue", "suspend")
RUN = ("vm",)
MACHINE_FORMATS = ("", "qcow2", "raw")
SUSPENDING = "USR1"
"""The signal by which a machine is told that it is to be saved; a job in one cannot ask for it."""
SIGNALS = ("USR1", "USR2", "INT", "HUP", "TERM")
"""By which a job can be told to save its work."""
GRACE_S = 60
"""Of a job that names a signal and no time; less where a site allows less."""

_LINE = re.compile(r"([A-Za-z_-]{1,32})[ \t]*:(?:[ \t](.*))?")
_IMAGE = re.compile(r"[!-~]{1,2048}")
_SHORT = re.compile(r"[A-Za-z_-]{1,32}=[^\n]*\Z")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_BOOT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_GRACE = re.compile(r"([1-9][0-9]{0,4})(s|m|min|h)")
_GRACE_UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600}
_TRUTHS = {"true": True, "yes": True, "false": False, "no": False}


@dataclass(frozen=True, kw_only=True, slots=True)
class JobLines:
    """A job's image as its user names it. What was not said is empty, or None.

    `name` is the workspace's: a reservation made from a workspace of that name is for this job.
    """

    image: str
    digest: str = ""
    size_bytes: int | None = None
    format: str = ""
    is_private: bool = False
    name: str = ""
    is_preemptible: bool = False
    """Whether it may be requeued for a reservation, or suspended."""
    is_machine: bool = False
    """Whether its script runs in a virtual machine."""
    boot: str = ""
    """The kernel of the site's by which the machine boots; from its image if empty."""
    machine: MachineLines = field(default_factory=MachineLines)
    is_suspendable: bool = False
    """Whether its machine may be saved for a reservation and go on afterwards."""
    checkpoint: str = ""
    """The signal that it is told by beforehand; none if empty."""
    grace_s: int | None = None
    """How long it has from the signal on; None if its user has not said."""
    options: tuple[JobOption, ...] = ()
    """Sizes of which it takes one; none if it has the one that it was submitted with."""
    roles: tuple[JobRole, ...] = ()
    """Of its machines; none if they are all alike."""
    data: tuple[DataImage, ...] = ()
    """What all its machines read."""
    further: tuple[FurtherImage, ...] = ()
    """Images that have to be on all its nodes beside its own: data, and those of roles."""
    finish_by_s: int | None = None
    value: int | None = None
    """What it is worth to its user, in thousandths; None if he has not said."""


def parse_job_lines(text: str) -> JobLines:
    """What the lines say. Raises TextError."""
    if len(text) > MOST_CHARACTERS:
        raise TextError(f"the lines have {len(text)} characters: at most {MOST_CHARACTERS} are read")
    found: dict[str, str] = {}
    several: dict[str, list[str]] = {key: [] for key in SEVERAL}
    for line in _lines(text):
        if line.strip() and not line.lstrip().startswith("#"):
            key, value = _pair(line.strip())
            if key in several:
                several[key].append(value)
                continue
            if key in found:
                raise TextError(f"{key} is given twice: give it once")
            found[key] = value
    if "image" not in found:
        raise TextError("image is missing: write a line like image: https://images.example.org/ubuntu.qcow2")
    is_preemptible = _preemptible(found)
    is_machine = _machine(found)
    for key in ("role", "data"):
        if several[key] and not is_machine:
            raise TextError(f"{key} has no effect without run: vm: write that, or leave {key} out")
    if several["option"] and is_machine:
        raise TextError(
            "option and run: vm contradict each other, since a machine has one node: leave one out"
        )
    roles, data = read_roles(several["role"]), read_data(several["data"])
    return JobLines(
        image=_matching("image", found["image"], _IMAGE, "an address or a name without blanks"),
        digest=_matching("digest", found["digest"].lower(), _DIGEST, "sha256: and 64 hexadecimal digits")
        if "digest" in found
        else "",
        size_bytes=_size(found["size"]) if "size" in found else None,
        format=_one_of("format", found["format"], FORMATS) if "format" in found else "",
        is_private=_truth(found["private"]) if "private" in found else False,
        name=_matching("name", found["name"], _NAME, "letters, digits, dots, hyphens and underscores")
        if "name" in found
        else "",
        is_preemptible=is_preemptible,
        is_machine=is_machine,
        boot=_matching("boot", found["boot"], _BOOT, "the name of one of the site's kernels, or disk")
        if "boot" in found
        else "",
        machine=read_machine_lines(found, is_machine=is_machine),
        is_suspendable=found.get("preemptible") == "suspend",
        checkpoint=_one_of("checkpoint", found["checkpoint"], SIGNALS) if "checkpoint" in found else "",
        grace_s=_grace(found["grace"]) if "grace" in found else None,
        options=read_job_options(several["option"]),
        roles=roles,
        data=data,
        further=further_images(data, roles),
        finish_by_s=read_finish_by(found["finish-by"]) if "finish-by" in found else None,
        value=read_value(found["value"]) if "value" in found else None,
    )


def write_job_lines(lines: JobLines) -> str:
    """The text that says the same."""
    said = {
        "image": lines.image,
        "digest": lines.digest,
        "size": "" if lines.size_bytes is None else str(lines.size_bytes),
        "format": lines.format,
        "private": "true" if lines.is_private else "",
        "name": lines.name,
        "run": "vm" if lines.is_machine else "",
        "boot": lines.boot,
        "preemptible": "suspend" if lines.is_suspendable else "requeue" if lines.is_preemptible else "",
        "checkpoint": lines.checkpoint,
        "grace": "" if lines.grace_s is None else f"{lines.grace_s}s",
        "finish-by": "" if lines.finish_by_s is None else write_finish_by(lines.finish_by_s),
        "value": "" if lines.value is None else write_value(lines.value),
        **write_machine_lines(lines.machine),
    }
    text = "".join(f"{key}: {value}\n" for key, value in said.items() if value)
    text += "".join(f"option: {option}\n" for option in lines.options)
    text += "".join(f"role: {role.text}\n" for role in lines.roles)
    return text + "".join(f"data: {each.text}\n" for each in lines.data)


def _lines(text: str) -> list[str]:
    """The lines of a text, also of one that is written in short."""
    if _SHORT.match(text):
        return [part.replace("=", ": ", 1) for part in text.split(";")]
    if _IMAGE.fullmatch(text) and not _LINE.fullmatch(text):
        return [f"image: {text}"]
    return text.splitlines()


def _pair(line: str) -> tuple[str, str]:
    split = _LINE.fullmatch(line)
    if split is None:
        raise TextError(f"{shown(line)} is not a line of the form key: value")
    key, value = split[1].lower(), (split[2] or "").strip()
    if key not in KEYS:
        near = difflib.get_close_matches(key, KEYS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(KEYS)}"
        raise TextError(f"the key {shown(split[1])} is not known: {hint}")
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        value = value[1:-1]
    if not value:
        raise TextError(f"{key} has no value: write one, or leave the line out")
    return key, value


def _matching(key: str, value: str, pattern: re.Pattern[str], form: str) -> str:
    if pattern.fullmatch(value) is None:
        raise TextError(f"{key} is {shown(value)}: write {form}")
    return value


def _one_of(key: str, value: str, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise TextError(f"{key} is {shown(value)}: write one of {', '.join(allowed)}")
    return value


def _size(value: str) -> int:
    try:
        return size_bytes(value)
    except TextError as error:
        raise TextError(f"size: {error}") from error


def _preemptible(found: dict[str, str]) -> bool:
    """Whether a job may be requeued. What says how, without saying that it may, is a mistake."""
    value = _one_of("preemptible", found.get("preemptible", "no"), PREEMPTIBLE)
    if value == "suspend" and "run" not in found:
        raise TextError(
            "preemptible is suspend: only a job in a virtual machine can be suspended; write run: vm, too, "
            "or preemptible: requeue"
        )
    is_preemptible = value != "no"
    if value != "requeue" and (key := next((key for key in ("checkpoint", "grace") if key in found), "")):
        raise TextError(f"{key} has no effect without preemptible: requeue; write that, or leave {key} out")
    if "grace" in found and "checkpoint" not in found:
        raise TextError(
            "grace has no effect without checkpoint, the signal that it begins with: write checkpoint: USR1, "
            "or leave grace out"
        )
    return is_preemptible


def _machine(found: dict[str, str]) -> bool:
    """Whether the job runs in a machine. What contradicts that is a mistake."""
    is_machine = "run" in found and _one_of("run", found["run"], RUN) == "vm"
    if not is_machine and "boot" in found:
        raise TextError("boot has no effect without run: vm: write that, or leave boot out")
    if is_machine and found.get("format", "") not in MACHINE_FORMATS:
        raise TextError(f"format is {shown(found['format'])}, and a machine has disks: write qcow2 or raw")
    if is_machine and found.get("checkpoint") == SUSPENDING:
        raise TextError(f"checkpoint is {SUSPENDING}, which suspends a machine: write USR2, INT, HUP or TERM")
    return is_machine


def _grace(value: str) -> int:
    split = _GRACE.fullmatch(value)
    if split is None:
        raise TextError(f"grace is {shown(value)}: write a time like 90s, 5m or 1h")
    return int(split[1]) * _GRACE_UNITS[split[2]]


def _truth(value: str) -> bool:
    if value.lower() not in _TRUTHS:
        raise TextError(f"private is {shown(value)}: write true or false")
    return _TRUTHS[value.lower()]
