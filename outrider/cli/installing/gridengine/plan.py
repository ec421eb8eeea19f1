"""What an installation would change in a Grid Engine: worked out before anything is touched. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from outrider.cli.installing.gridengine.site import NOTHING, GridSite, value, with_offset, with_values, words

FOLDER = "/usr/lib/outrider/gridengine"
COMPLEX = "outrider_reservation"
COMPLEX_LINE = f"{COMPLEX} orsv BOOL == FORCED NO FALSE 0"
ALLOWED = ("q_hard", "l_hard", "ar", "pe_name", "pe_min", "pe_max")
ALLOWED_BY_DEFAULT = "ac,h,i,e,o,j,M,N,p,w"
PROLOG = f"root@{FOLDER}/prolog $job_id $ja_task_id $job_owner $host"
EPILOG = f"root@{FOLDER}/epilog $job_id $ja_task_id"
PE_START = f"root@{FOLDER}/pe-start $pe_hostfile $host $job_id $ja_task_id $job_owner"
STARTER = f"{FOLDER}/starter"
SHEPHERD = f"{FOLDER}/shepherd"
CHECKPOINT = "outrider_machine"
"""By which the machine of a job that is suspended is saved; the submit filter names it."""
CHECKPOINT_TEXT = (
    f"ckpt_name {CHECKPOINT}\ninterface application-level\nckpt_command NONE\n"
    f"migr_command {FOLDER}/suspend $job_pid\nrestart_command NONE\nclean_command NONE\nckpt_dir /tmp\n"
    "signal NONE\nwhen xr\n"
)
HOOKS = {"prolog": PROLOG, "epilog": EPILOG, "starter": STARTER, "pe-start": PE_START}
RESERVED = " reserved"
"""Tells the prolog that every job of its queue is in a reservation, those that name no image, too."""
KEYS = {"prolog": "prolog", "epilog": "epilog", "starter": "starter_method"}
FILTER_PART = "submit-filter"
SHEPHERD_PART = "shepherd"
SHEPHERD_KEY = "shepherd_cmd"
UNIT_PART = "unit"
PARTS = (FILTER_PART, *HOOKS, SHEPHERD_PART, UNIT_PART)
OFFSET_S, MOST_OFFSET_S = 5, 10
"""What Grid Engine takes off each reservation where we say so, and what is little enough to be left."""
SOON_S = 2
"""A scheduler that looks so often delays nobody by much."""
NO_START = (*NOTHING, "/bin/true", "/usr/bin/true")

Kind = Literal["queue attribute", "environment attribute", "configuration", "complex", "queue", "environment",
               "checkpoint", "manager", "reserver", "scheduler"]  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class GridChange:
    """One object's value as it was and as it is to be; None where there is none."""

    kind: Kind
    name: str
    key: str = ""
    before: str | None = None
    after: str | None = None

    @property
    def words(self) -> str:
        """For people."""
        what = f"{self.kind.removesuffix(' attribute')} {self.name}".strip()
        if self.kind in ("queue", "environment", "checkpoint"):
            return f"{what}: is made"
        if self.kind in ("manager", "reserver", "complex"):
            return f"{what}: is added"
        return f"{what}: {self.key} {self.after}"


@dataclass(frozen=True, kw_only=True, slots=True)
class GridWishes:
    """What the command line says."""

    account: str
    reservation_queue: str
    parts: frozenset[str]
    parts_queue: str = ""
    """For reservations of parts of nodes; empty for none."""

    @property
    def reserved_queues(self) -> tuple[str, ...]:
        return (self.reservation_queue, *filter(None, (self.parts_queue,)))


@dataclass(frozen=True, kw_only=True, slots=True)
class GridPlan:
    """First the objects, which change nothing for anybody; once nodes have hooks, what leads to them."""

    objects: tuple[GridChange, ...]
    hooks: tuple[GridChange, ...]
    environments: tuple[tuple[int, str], ...]
    duration_offset_s: int
    advice: tuple[str, ...]
    troubles: tuple[str, ...]
    pace: tuple[str, ...]
    """What is as it should be, and could be faster."""

    @property
    def changes(self) -> tuple[GridChange, ...]:
        return (*self.objects, *self.hooks)


def plan(site: GridSite, wishes: GridWishes) -> GridPlan:
    """Everything for the parts that are wanted."""
    environments = dict(_environments(site))
    # A part of a node has as many slots as an environment gives.
    smaller = _smaller(site) if wishes.parts_queue else {}
    made = {slots: name for slots, name in environments.items() if name not in site.environments}
    named = [each for each in words(value(site.work, "pe_list")) if each not in NOTHING]
    pe_list = " ".join(dict.fromkeys([*named, *environments.values()]))
    objects = [*_people(site, wishes), *_complex(site)]
    objects += [
        GridChange(kind="environment", name=name, after=_environment(name, slots))
        for slots, name in made.items()
    ]
    objects += _tightened(site, environments.values())
    objects += _attribute(site, site.work_queue, "pe_list", pe_list)
    objects += _checkpoint(site, wishes)
    if wishes.reservation_queue not in site.queues:
        text = _reservations(site, wishes.reservation_queue, pe_list, site.work_queue)
        objects.append(GridChange(kind="queue", name=wishes.reservation_queue, after=text))
    objects += _subordinated(site, wishes.reservation_queue)
    objects += _parts(site, wishes, pe_list)
    if not value(site.configuration, "max_advance_reservations"):
        objects.append(GridChange(kind="configuration", name="", key="max_advance_reservations", after="0"))
    offset_s = site.duration_offset_s
    # Where there are reservations already, they were made for the one that there is.
    if (
        offset_s > MOST_OFFSET_S
        and value(site.scheduler, "params")
        and wishes.reservation_queue not in site.queues
    ):
        before, offset_s = value(site.scheduler, "params"), OFFSET_S
        after = with_offset(before, offset_s)
        objects.append(GridChange(kind="scheduler", name="", key="params", before=before, after=after))
    troubles = [*_foreign_hooks(site, wishes), *_foreign_shepherd(site, wishes)]
    troubles += _foreign_filter(site, wishes)
    hooks = [*_shepherd(site, wishes), *_hooks(site, wishes), *_starts(site, wishes, made)]
    hooks += _filter(site, wishes)
    return GridPlan(
        objects=tuple(objects), hooks=tuple(hooks),
        environments=tuple(sorted({**smaller, **environments}.items())),
        duration_offset_s=offset_s, advice=(*_advice(site, offset_s), *_unshielded(site, wishes)),
        troubles=tuple(troubles), pace=tuple(pace(site)),
    )  # fmt: skip


def _people(site: GridSite, wishes: GridWishes) -> Iterator[GridChange]:
    if wishes.account not in site.managers:
        yield GridChange(kind="manager", name=wishes.account, after="")
    if wishes.account not in site.reservers:
        yield GridChange(kind="reserver", name=wishes.account, after="")


def _complex(site: GridSite) -> Iterator[GridChange]:
    if not value(site.complexes, COMPLEX):
        yield GridChange(kind="complex", name=COMPLEX, after=COMPLEX_LINE)


def _environments(site: GridSite) -> Iterator[tuple[int, str]]:
    """For each number of slots that nodes have an environment that gives so many on each.

    One that lets programs start others on their nodes (`qrsh -inherit`, as tightly integrated MPI does) goes
    before one that does not, and the site's own before ours: jobs in a reservation can ask for no other.
    """
    return _environments_of(site, site.slots())


def _smaller(site: GridSite) -> dict[int, str]:
    """The site's environments that give fewer slots of each node than the largest has."""
    rules = [value(text, "allocation_rule") for text in site.environments.values()]
    most = max(site.slots(), default=0)
    numbers = sorted({int(rule) for rule in rules if rule.isdecimal() and 0 < int(rule) < most})
    return {slots: name for slots, name in _environments_of(site, numbers) if name in site.environments}


def _environments_of(site: GridSite, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
    for slots in numbers:
        made = f"outrider{slots}"
        fitting = [
            name
            for name, text in site.environments.items()
            if value(text, "allocation_rule") == str(slots) and value(text, "user_lists") in NOTHING
        ]
        fitting.sort(key=lambda name: (not _controls_slaves(site.environments[name]), name == made))
        yield slots, fitting[0] if fitting else made


def _controls_slaves(environment: str) -> bool:
    return value(environment, "control_slaves") == "TRUE"


def _tightened(site: GridSite, names: Iterable[str]) -> Iterator[GridChange]:
    """Environments of an earlier installation, which did not let programs start others."""
    for name in names:
        text = site.environments.get(name, "")
        if text and name.startswith("outrider") and not _controls_slaves(text):
            yield GridChange(
                kind="environment attribute", name=name, key="control_slaves", before="FALSE", after="TRUE"
            )


def _environment(name: str, slots: int) -> str:
    values = {
        "pe_name": name, "slots": "9999", "user_lists": "NONE", "xuser_lists": "NONE",
        "start_proc_args": "NONE", "stop_proc_args": "NONE", "allocation_rule": str(slots),
        "control_slaves": "TRUE", "job_is_first_task": "TRUE", "urgency_slots": "min",
        "accounting_summary": "FALSE", "qsort_args": "NONE",
    }  # fmt: skip
    return with_values("", dict(values))


def _reservations(site: GridSite, name: str, pe_list: str, beneath: str) -> str:
    """Like the work queue, with twice its slots: a reservation is moved by making the new one first."""
    slots = value(site.work, "slots")
    doubled = ",".join(
        f"[{each.strip('[]').partition('=')[0]}={2 * int(each.strip('[]').partition('=')[2])}]"
        if "=" in each
        else str(2 * int(each))
        for each in (part.strip() for part in slots.split(","))
    )
    own = value(site.work, "complex_values")
    values: dict[str, str | None] = {
        "qname": name,
        "slots": doubled,
        "pe_list": pe_list,
        "complex_values": f"{COMPLEX}=TRUE" + (f",{own}" if own not in NOTHING else ""),
        "subordinate_list": f"{beneath}=1",
        "ckpt_list": _checkpoints(site.work),
    }
    return with_values(site.work, values)


def _checkpoint(site: GridSite, wishes: GridWishes) -> Iterator[GridChange]:
    """What saves machines, in the queues where they run."""
    if CHECKPOINT not in site.checkpoints:
        yield GridChange(kind="checkpoint", name=CHECKPOINT, after=CHECKPOINT_TEXT)
    for queue in (site.work_queue, *wishes.reserved_queues):
        if queue in site.queues:
            yield from _attribute(site, queue, "ckpt_list", _checkpoints(site.queues[queue]))


def _checkpoints(queue: str) -> str:
    named = [each for each in words(value(queue, "ckpt_list")) if each not in NOTHING]
    return " ".join(dict.fromkeys([*named, CHECKPOINT]))


def _attribute(site: GridSite, queue: str, key: str, after: str) -> Iterator[GridChange]:
    before = value(site.queues.get(queue, ""), key)
    if before != after and words(before) != words(after):
        yield GridChange(kind="queue attribute", name=queue, key=key, before=before or "NONE", after=after)


def _subordinated(site: GridSite, queue: str) -> Iterator[GridChange]:
    before = value(site.work, "subordinate_list")
    if f"{queue}=1" not in words(before):
        others = [] if before in NOTHING else [before]
        yield from _attribute(site, site.work_queue, "subordinate_list", ",".join([*others, f"{queue}=1"]))


def _parts(site: GridSite, wishes: GridWishes, pe_list: str) -> Iterator[GridChange]:
    """A queue whose jobs run beside those of the work queue, and never beside those that have whole nodes."""
    queue, others = wishes.parts_queue, wishes.reservation_queue
    if not queue:
        return
    if queue not in site.queues:
        yield GridChange(kind="queue", name=queue, after=_reservations(site, queue, pe_list, others))
    before = value(site.queues.get(others, ""), "subordinate_list") or f"{site.work_queue}=1"
    if f"{queue}=1" not in words(before):
        yield GridChange(
            kind="queue attribute", name=others, key="subordinate_list", before=before,
            after=",".join([*([] if before in NOTHING else [before]), f"{queue}=1"]),
        )  # fmt: skip


def hook(part: str, queue: str, wishes: GridWishes) -> str:
    """What a queue says of one of its hooks."""
    is_reserved = part == "prolog" and queue in wishes.reserved_queues
    return HOOKS[part] + (RESERVED if is_reserved else "")


def _hooks(site: GridSite, wishes: GridWishes) -> Iterator[GridChange]:
    for queue in (site.work_queue, *wishes.reserved_queues):
        # Until it is made, the queue of reservations is like the other one.
        if _is_unshielded(site.queues.get(queue, site.work), site, wishes):
            continue
        for part, key in KEYS.items():
            before = value(site.queues.get(queue, ""), key) or "NONE"
            after = hook(part, queue, wishes)
            if part in wishes.parts and before != after and _is_free(before, part):
                yield GridChange(kind="queue attribute", name=queue, key=key, before=before, after=after)


def _shepherd(site: GridSite, wishes: GridWishes) -> Iterator[GridChange]:
    """First of all: without it, hooks of jobs that have a terminal put their queue in error."""
    before = value(site.configuration, SHEPHERD_KEY)
    if SHEPHERD_PART in wishes.parts and before in NOTHING:
        yield GridChange(
            kind="configuration", name="", key=SHEPHERD_KEY, before=before or None, after=SHEPHERD
        )


def _is_unshielded(queue: str, site: GridSite, wishes: GridWishes) -> bool:
    """Whether a queue takes interactive jobs, and nothing keeps the shepherd from ending their hooks."""
    is_shielded = SHEPHERD_PART in wishes.parts or value(site.configuration, SHEPHERD_KEY) not in NOTHING
    return not is_shielded and "INTERACTIVE" in words(value(queue, "qtype"))


def _unshielded(site: GridSite, wishes: GridWishes) -> Iterator[str]:
    for queue in (site.work_queue, *wishes.reserved_queues):
        if _is_unshielded(site.queues.get(queue, site.work), site, wishes):
            yield (
                f"queue {queue} takes interactive jobs, whose hooks Grid Engine ends without {SHEPHERD}: it "
                "gets no hooks, and its jobs no images. Leave out --without-shepherd, or give interactive "
                "jobs a queue of their own"
            )


def _is_free(found: str, part: str) -> bool:
    """Whether nobody's hook is there but ours."""
    return found in NOTHING or found.removesuffix(RESERVED) == HOOKS[part]


def _starts(site: GridSite, wishes: GridWishes, made: dict[int, str]) -> Iterator[GridChange]:
    """The start of each parallel environment that has none of its own."""
    if "pe-start" not in wishes.parts:
        return
    for name, text in {**dict.fromkeys(made.values(), ""), **site.environments}.items():
        before = value(text, "start_proc_args") or "NONE"
        if before in NO_START:
            yield GridChange(
                kind="environment attribute", name=name, key="start_proc_args", before=before, after=PE_START
            )


def _filter(site: GridSite, wishes: GridWishes) -> Iterator[GridChange]:
    if FILTER_PART not in wishes.parts:
        return
    allowed = value(site.configuration, "jsv_allowed_mod")
    after = ",".join(dict.fromkeys([*words(allowed or ALLOWED_BY_DEFAULT), *ALLOWED]))
    if words(allowed) != words(after):
        yield GridChange(
            kind="configuration", name="", key="jsv_allowed_mod", before=allowed or None, after=after
        )
    before = value(site.configuration, "jsv_url")
    ours = filter_url(wishes.account)
    if before in NOTHING:
        yield GridChange(kind="configuration", name="", key="jsv_url", before=before or None, after=ours)


def filter_url(account: str) -> str:
    return f"script:{account}@{FOLDER}/outrider_jsv.py"


def _foreign_hooks(site: GridSite, wishes: GridWishes) -> Iterator[str]:
    """What the site has of its own: set for a queue, ours would keep it from running."""
    for part, key in KEYS.items():
        if part not in wishes.parts:
            continue
        for queue in (site.work_queue, *wishes.reserved_queues):
            found = value(site.queues.get(queue, ""), key)
            if not _is_free(found, part):
                yield f"queue {queue} has its own {key} {found}: {_remedy(part, hook(part, queue, wishes))}"
        remedy = _remedy(part, HOOKS[part])
        if part == "prolog":
            remedy += f", with the word{RESERVED} for queue {' and '.join(wishes.reserved_queues)}"
        found = value(site.configuration, key)
        if key in ("prolog", "epilog") and not _is_free(found, part):
            yield f"the site has its own {key} {found}: {remedy}"
        yield from (f"{each} is the site's own: {remedy}" for each in site.host_hooks if each.startswith(key))


def _remedy(part: str, ours: str) -> str:
    if part == "starter":
        return f'let it end with exec {STARTER} "$@", and use --without-starter'
    return f"let it run {ours.removeprefix('root@')} as root, too, and use --without-{part}"


def _foreign_shepherd(site: GridSite, wishes: GridWishes) -> Iterator[str]:
    if SHEPHERD_PART not in wishes.parts:
        return
    remedy = f"let it end with exec {SHEPHERD} in place of sge_shepherd, and use --without-shepherd"
    found = value(site.configuration, SHEPHERD_KEY)
    if found not in (*NOTHING, SHEPHERD):
        yield f"the site has its own {SHEPHERD_KEY} {found}: {remedy}"
    yield from (
        f"{each} is the site's own: {remedy}" for each in site.host_hooks if each.startswith(SHEPHERD_KEY)
    )


def _foreign_filter(site: GridSite, wishes: GridWishes) -> Iterator[str]:
    found = value(site.configuration, "jsv_url")
    if FILTER_PART in wishes.parts and found not in (*NOTHING, filter_url(wishes.account)):
        yield (
            f"the site has its own submit filter, {found}: Grid Engine has one only. Use "
            "--without-submit-filter, and submit by outrider submit"
        )


def pace(site: GridSite) -> Iterator[str]:
    """What the scheduler's interval costs jobs with an image. They work all the same."""
    interval_s = site.schedule_interval_s
    if interval_s > SOON_S:
        yield (
            f"schedule_interval is {interval_s} s: a job whose image is there already is released within a "
            f"second, and starts up to {interval_s} s later, since a release does not wake Grid Engine's "
            "scheduler as a submission does (flush_submit_sec). With qconf -msconf, schedule_interval 0:0:1 "
            "has it look every second, also where nothing waits"
        )


def _advice(site: GridSite, offset_s: int) -> Iterator[str]:
    if "v" in words(value(site.configuration, "jsv_allowed_mod")):
        yield "jsv_allowed_mod names v: with qalter -v a user can take a job's ticket away; take it out"
    for _, name in _environments(site):
        text = site.environments.get(name, "")
        if text and not name.startswith("outrider") and not _controls_slaves(text):
            yield (
                f"environment {name}, of whole nodes, has control_slaves FALSE: in reservations no program "
                "can start others on its nodes (qrsh -inherit, tightly integrated MPI); say TRUE by "
                f"qconf -mp {name}, unless its jobs are to be suspended on several nodes"
            )
    for name, text in site.environments.items():
        start = value(text, "start_proc_args")
        if start not in (*NO_START, PE_START):
            yield (
                f"environment {name} has its own start {start}: jobs in it get their image on their first "
                f"node only, unless it runs {PE_START.removeprefix('root@')} as root"
            )
    if offset_s > MOST_OFFSET_S:
        yield (
            f"DURATION_OFFSET is {offset_s} s, which Grid Engine takes off each reservation, "
            "and ours are longer by as much; params DURATION_OFFSET=5 is enough for most sites"
        )
