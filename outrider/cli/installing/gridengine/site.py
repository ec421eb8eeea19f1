"""A Grid Engine as qconf shows it: those of its objects that an installation looks at or changes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from outrider.cli.errors import InputError, MissingPartError
from outrider.cli.installing.common.running import ProgramRunner
from outrider.rms.gridengine.parsing import duration_s

NOTHING = ("", "NONE", "none")
VARIABLES = ("SGE_ROOT", "SGE_CELL", "SGE_ARCH", "SGE_QMASTER_PORT", "SGE_EXECD_PORT")
_OWN = re.compile(r"\[([^=\[\]]+)=([^\[\]]*)\]")
_BROKEN = re.compile(r"(?<![ \t])[ \t]*\\\n[ \t]*")
_BROKEN_LIST = re.compile(r",[ \t]*\\\n[ \t]*")
_MEMORY = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)([kKmMgGtT]?)")
_OFFSET = re.compile(r"\bDURATION_OFFSET=(\d+)", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True, slots=True)
class GridSite:
    """What was found. Each object is its text as `qconf -s…` prints it, lines joined."""

    version: str
    work_queue: str
    configuration: str
    host_hooks: tuple[str, ...]
    """Hooks that are configured for single hosts, in words."""
    queues: Mapping[str, str]
    environments: Mapping[str, str]
    """Those of the work queue, and those that are to be ours."""
    complexes: str
    managers: frozenset[str]
    reservers: frozenset[str]
    hosts: tuple[str, ...]
    duration_offset_s: int
    scheduler: str = ""
    checkpoints: frozenset[str] = frozenset()
    """The names of the checkpoint objects."""
    schedule_interval_s: int = 1
    """How often it is looked which jobs can start, beside when one was submitted or has ended."""

    @property
    def work(self) -> str:
        return self.queues[self.work_queue]

    def slots(self) -> tuple[int, ...]:
        """How many slots nodes of the work queue have."""
        text = value(self.work, "slots")
        found = {text.partition(",")[0].strip(), *(each[1].strip() for each in _OWN.findall(text))}
        return tuple(sorted(int(each) for each in found if each.isdigit() and each != "0"))


def read_site(runner: ProgramRunner, work_queue: str, others: tuple[str, ...]) -> GridSite:
    """Ask for everything. `others` are queues that may be there. Raises InputError."""

    def asked(*argv: str) -> str:
        done = runner.run(["qconf", *argv])
        if done.code is None:
            raise MissingPartError(f"{done.reason}: install Grid Engine's commands on this machine")
        return joined(done.output) if done.is_good else ""

    configuration = asked("-sconf")
    if not configuration:
        raise InputError(
            f"qconf prints nothing ({runner.run(['qconf', '-sconf']).reason}): is this a head node?"
        )
    queues = {name: asked("-sq", name) for name in (work_queue, *others)}
    if not queues[work_queue]:
        known = " ".join(asked("-sql").split())
        raise InputError(f"there is no queue {work_queue}: name one of {known} with --work-queue")
    named = [name for name in words(value(queues[work_queue], "pe_list")) if name not in NOTHING]
    ours = [name for name in asked("-spl").split() if name.startswith("outrider")]
    scheduler = asked("-ssconf")
    return GridSite(
        version=(asked("-help").split() or ["", "unknown"])[1],
        work_queue=work_queue,
        configuration=configuration,
        host_hooks=tuple(_host_hooks(asked, asked("-sconfl").split())),
        queues={name: text for name, text in queues.items() if text},
        environments={name: asked("-sp", name) for name in dict.fromkeys((*named, *ours))},
        complexes=asked("-sc"),
        managers=frozenset(asked("-sm").split()),
        reservers=frozenset(words(value(asked("-su", "arusers"), "entries"))),
        hosts=tuple(asked("-sel").split()),
        duration_offset_s=_offset(scheduler),
        scheduler=scheduler,
        checkpoints=frozenset(asked("-sckptl").split()),
        schedule_interval_s=duration_s(value(scheduler, "schedule_interval") or "0:0:1") or 1,
    )


def _host_hooks(asked: object, hosts: list[str]) -> list[str]:
    found = []
    for host in hosts:
        text = asked("-sconf", host) if callable(asked) else ""
        found += [
            f"{key} {value(text, key)} of host {host}"
            for key in ("prolog", "epilog", "shepherd_cmd")
            if value(text, key) not in NOTHING
        ]
    return found


def with_offset(params: str, seconds: int) -> str:
    """The scheduler's params with that DURATION_OFFSET."""
    said = f"DURATION_OFFSET={seconds}"
    if _OFFSET.search(params):
        return _OFFSET.sub(said, params)
    return said if params in NOTHING else f"{params},{said}"


def _offset(text: str) -> int:
    found = _OFFSET.search(text)
    return int(found[1]) if found else 60


def joined(text: str) -> str:
    """An object with each value on one line, as it was before qconf broke it to be read."""
    # A blank after a comma would stay in the value, and belong to the next word of its list.
    return _BROKEN.sub(" ", _BROKEN_LIST.sub(",", text))


def value(text: str, key: str) -> str:
    """What an object says of a key, with single blanks; empty if nothing."""
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        if name == key:
            return " ".join(rest.split())
    return ""


def memory_bytes(text: str) -> int | None:
    """A limit of memory as Grid Engine writes it, such as 2G; None if it is none."""
    found = _MEMORY.fullmatch(text)
    if found is None:
        return None
    unit = {"": 1, "k": 1000, "m": 1000**2, "g": 1000**3, "t": 1000**4,
            "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4}[found[2]]  # fmt: skip
    return round(float(found[1]) * unit)


def with_values(text: str, values: Mapping[str, str | None]) -> str:
    """An object with other values; None takes a key away; new ones come at its end."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    done = []
    left = dict(values)
    for line in lines:
        key = line.split(None, 1)[0]
        if key not in left:
            done.append(line)
            continue
        after = left.pop(key)
        if after is not None:
            done.append(f"{key} {after}")
    return "\n".join([*done, *(f"{key} {after}" for key, after in left.items() if after is not None)]) + "\n"


def words(text: str) -> list[str]:
    """A list of names, whatever separates them."""
    return [each for each in re.split(r"[\s,]+", text) if each]
