"""Jobs on a real Slurm, as a user looks at them."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.site import OutriderSite, ServedImage
from testbed.slurm import HEAD

ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
PATIENCE_S = 120
HELD = ("BeginTime", "JobHeldAdmin")
"""Why Slurm says a job waits that we hold: until the service has seen it, and then."""

# Says when it began, and what it finds on each of its nodes.
SCRIPT = """#!/bin/sh
{lines}
echo "began $(date +%s.%N)"
srun --quiet sh -c 'echo "$SLURMD_NODENAME $OUTRIDER_IMAGE $(head -c3 "$OUTRIDER_IMAGE")"'
{more}
"""


@dataclass(frozen=True, kw_only=True)
class Seen:
    """A job as squeue shows it."""

    state: str
    reason: str
    nodes: str
    comment: str
    admin_comment: str
    start_s: int


def script(image: ServedImage | None, more: str = "") -> str:
    return SCRIPT.format(lines="" if image is None else image.lines, more=more)


def seen(site: OutriderSite, job: str) -> Seen:
    """How a job stands now. Fails if Slurm does not know it."""
    return _with_comments(site, job, _line(site, job))


def _line(site: OutriderSite, job: str) -> str:
    fields = "State:30,Reason:100,NodeList:60,StartTime:30"
    argv = ["squeue", "--all", "--noheader", "--states=all", f"--jobs={job}", f"--Format={fields}"]
    return site.cluster.run(HEAD, argv, environment={"SLURM_TIME_FORMAT": "%s"}).stdout.splitlines()[0]


def _with_comments(site: OutriderSite, job: str, line: str) -> Seen:
    comments = _comments(site, job)
    start = line[190:220].strip()
    return Seen(
        state=line[:30].strip(),
        reason=line[30:130].strip(),
        nodes=line[130:190].strip(),
        start_s=int(start) if start.isdigit() else 0,
        comment=comments.get("Comment", ""),
        admin_comment=comments.get("AdminComment", ""),
    )


def wait_for(site: OutriderSite, job: str, *states: str, timeout_s: float = PATIENCE_S) -> Seen:
    """Until a job is in one of these states."""
    lines: list[str] = []

    def is_there() -> bool:
        lines[:] = [_line(site, job)]
        return lines[0][:30].strip() in states

    def told() -> str:
        return f"{lines}\n{site.outrider('show', job, check=False).stdout}\n{site.logs()}"

    site.cluster.wait_for(f"job {job} to be {' or '.join(states)}", is_there, timeout_s, told)
    return _with_comments(site, job, lines[0])


def ended(site: OutriderSite, job: str, timeout_s: float = PATIENCE_S) -> Seen:
    return wait_for(site, job, *ENDED, timeout_s=timeout_s)


def output(site: OutriderSite, job: str, user: str = "ada") -> str:
    return site.cluster.read(HEAD, f"{site.home(user)}/slurm-{job}.out")


def arrived_s(site: OutriderSite, image: ServedImage) -> dict[str, int]:
    """On which nodes an image is, and since when."""
    return site.arrived_s(image)


def instances(site: OutriderSite, node: str) -> list[str]:
    """Whose instances are on a node."""
    return site.instances(node)


def pins(site: OutriderSite, node: str) -> list[str]:
    """For whom images are pinned on a node."""
    return site.pins(node)


def in_slurm(site: OutriderSite) -> dict[str, dict[str, str]]:
    """Slurm's reservations with their fields."""
    text = site.cluster.run(HEAD, ["scontrol", "--oneliner", "show", "reservation"]).stdout
    found = {}
    for line in text.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "ReservationName" in fields:
            found[fields["ReservationName"]] = fields
    return found


def _comments(site: OutriderSite, job: str) -> dict[str, str]:
    """Its user's comment and its administrator's, of an array those of its first task."""
    done = site.cluster.run(HEAD, ["scontrol", "show", "job", job.partition("_")[0]])
    found: dict[str, str] = {}
    for line in done.stdout.splitlines():
        name, _, text = line.strip().partition("=")
        if name in ("Comment", "AdminComment"):
            found.setdefault(name, text)
    return found


def wait_in_slurm(site: OutriderSite, name: str, *, is_there: bool) -> None:
    site.cluster.wait_for(
        f"{name} {'in' if is_there else 'gone from'} Slurm",
        lambda: (name in in_slurm(site)) is is_there,
        logs=site.logs,
    )


def restarts(site: OutriderSite, job: str) -> str:
    text = site.cluster.run(HEAD, ["scontrol", "show", "job", job]).stdout
    return next(word for word in text.split() if word.startswith("Restarts="))
