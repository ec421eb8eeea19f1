"""`outrider init slurm`: beside an existing Slurm, or away from it again. Without --apply it only tells."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.arguments import Parser, Subparsers, add_command
from outrider.cli.errors import InputError, MissingPartError, NotAllowedError
from outrider.cli.output import print_json

if TYPE_CHECKING:
    from outrider.cli.installing.common.placing import Json
    from outrider.cli.installing.common.running import Runner
    from outrider.cli.installing.slurm.facts import Facts
    from outrider.cli.installing.slurm.headfiles import Head
    from outrider.cli.installing.slurm.plan import Plan

_LEAVABLE = ("submit-filter", "prolog", "epilog", "task-prolog", "prolog-slurmctld", "slurm-conf", "unit")
_SLURM = """Without --apply nothing is changed: the lines are shown, for whoever wants to write them. With it,
the head gets Outrider's files. Once "outrider nodes deploy" has brought the hooks to all nodes, the site's
own files get their lines: marked, beside what is there, with a copy of each file as it was.
--remove takes all of it out again, to the byte; the store of promises stays.

examples:
  outrider init slurm
  outrider init slurm --apply
  outrider init slurm --apply --with-prolog-slurmctld
  outrider init slurm --remove
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Wishes:
    """What the command line says."""

    conf: str | None
    user: str
    parts: frozenset[str]
    keeps: frozenset[str]
    """Parts that stay if an earlier run has put them in force."""
    spank: str | None
    are_nodes_ready: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """The Slurm that was found."""

    slurm_conf: str
    files: tuple[str, ...]
    version: str
    nodes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What was found, what is or was to be done, and what comes next; as --json shows it."""

    seen: Seen
    settings: dict[str, str]
    edits: dict[str, tuple[str, ...]]
    put: tuple[str, ...]
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    advice: tuple[str, ...]
    troubles: tuple[str, ...]
    is_applied: bool
    waits_for_nodes: str
    next_steps: tuple[str, ...]


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "init", help="install beside a batch system, or show how",
        description="install beside a batch system, or show how.", epilog=_SLURM,
    )  # fmt: skip
    from outrider.cli.installing.gridengine import command as gridengine

    parser.set_defaults(command=_no_command)
    below = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    slurm = add_command(below, "slurm", init_slurm, "install beside Slurm, or show what that changes", _SLURM)
    slurm.add_argument(
        "--conf", metavar="FILE", help="the site's slurm.conf (SLURM_CONF, or the usual places)"
    )
    does = slurm.add_mutually_exclusive_group()
    does.add_argument("--apply", action="store_true", help="do it, instead of showing it")
    does.add_argument("--remove", action="store_true", help="take everything out again")
    slurm.add_argument("--user", metavar="USER", default="root", help="as whom outriderd runs (root)")
    for part in _LEAVABLE:
        slurm.add_argument(f"--without-{part}", action="store_true", help=f"leave out: {_MEANING[part]}")
    slurm.add_argument(
        "--with-cli-filter", action="store_true",
        help="add the filter of sbatch and srun, too: every machine on which users submit has to have it",
    )  # fmt: skip
    slurm.add_argument(
        "--with-prolog-slurmctld", action="store_true",
        help="add a last look on the head before a job starts, which costs every job of the site 0.1 s",
    )  # fmt: skip
    slurm.add_argument(
        "--spank", metavar="FILE", help="the compiled plugin for --workspace=, if it is wanted"
    )
    slurm.add_argument(
        "--nodes-are-ready",
        action="store_true",
        help="the nodes got their hooks in another way than by deploy",
    )
    slurm.add_argument("--json", action="store_true", help="print what was found and done as JSON")
    gridengine.add(below)


_MEANING = {
    "submit-filter": "the filter in slurmctld, without which jobs are not managed",
    "prolog": "the hook that gives a job its image",
    "epilog": "the hook that takes the image away after a job",
    "task-prolog": "the hook that tells a job where its image is",
    "prolog-slurmctld": "the last look before a job starts, on the head",
    "slurm-conf": "the lines of slurm.conf",
    "unit": "the unit of systemd",
}


def init_slurm(arguments: argparse.Namespace) -> None:
    from outrider.cli.installing.common.running import SystemRunner
    from outrider.cli.installing.slurm.facts import conf_path

    wishes = _wishes(arguments)
    if (arguments.apply or arguments.remove) and os.geteuid() != 0:
        raise NotAllowedError("only root can install: run it again with sudo, or without --apply to look")
    runner = SystemRunner(conf_path(wishes.conf, os.environ))
    if arguments.remove:
        outcome = remove(wishes, runner)
    else:
        outcome = install(wishes, runner, is_applied=arguments.apply)
    if arguments.json:
        print_json(outcome)
    else:
        from outrider.cli.installing.common.screen import screen

        print(screen(outcome, is_removal=arguments.remove))
    if outcome.troubles:
        raise InputError("nothing was changed: see to what stands under TROUBLE first")


def install(wishes: Wishes, runner: Runner, *, is_applied: bool) -> Outcome:
    """Plan, and carry the plan out if that is wanted and nothing is in its way."""
    from outrider.cli.installing.common.onhead import (
        check_configuration,
        lacking,
        looked_at,
        made_in_words,
        make_store,
        make_user,
        placed,
    )
    from outrider.cli.installing.slurm import editing, facts, headfiles
    from outrider.cli.installing.slurm.plan import CONF_PART

    found = facts.gather(wishes.conf, os.environ, runner)
    head = _head(wishes, found)
    planned = planned_for(found, head, has_spank=wishes.spank is not None)
    request: Json = {
        "manifest": headfiles.MANIFEST, "folders": headfiles.folders(head),
        "files": headfiles.files(head, planned.hooks),
    }  # fmt: skip
    waits = "" if wishes.are_nodes_ready or CONF_PART not in head.parts else _unready(found, planned)
    people = lacking([wishes.user], runner)
    put, kept = looked_at(placed({**request, "do": "look"}), request["files"])
    is_done = is_applied and not planned.troubles
    if is_done:
        check_configuration(headfiles.configuration(head), runner)
        for user in people:
            make_user(user, runner)
        done = placed({**request, "do": "put"})
        put, kept = tuple(done["changed"]), tuple(done["kept"])
        make_store(runner)
        if not waits:
            editing.apply(planned.edits)
        if any(path.endswith(".lua") for path in put):
            # slurmctld reads its filter anew when this file changes, whatever lies beside it.
            editing.touch(f"{found.site.folder}/job_submit.lua")
    return Outcome(
        seen=_seen(found),
        settings=dict(planned.settings),
        edits={each.path: each.lines for each in planned.edits},
        put=put,
        kept=kept,
        removed=(),
        advice=(*map(made_in_words, people), *planned.advice),
        troubles=planned.troubles,
        is_applied=is_done,
        waits_for_nodes=waits,
        next_steps=_next_steps(found, planned, waits, _again(head), is_done=is_done),
    )


def remove(wishes: Wishes, runner: Runner) -> Outcome:
    """Lines first, then whoever runs by them is told, then the files go."""
    from outrider.cli.installing.common.onhead import STORE, placed
    from outrider.cli.installing.slurm import editing, facts, headfiles

    found = facts.gather(wishes.conf, os.environ, runner)
    folder = found.site.folder
    paths = [each.path for each in found.site.files]
    paths += [f"{folder}/{name}" for name in ("job_submit.lua", "cli_filter.lua", "plugstack.conf")]
    changed, remarks = editing.take_out(paths)
    if changed and found.running:
        told = runner.run(["scontrol", "reconfigure"])
        if not told.is_good:
            raise MissingPartError(
                f"Outrider's lines are out of {', '.join(changed)}, but scontrol reconfigure failed "
                f"({told.reason}): its files stay until you have run that and --remove again"
            )
    nodes = headfiles.deployed()
    service = {"unit": "outriderd.service"} if os.path.exists(headfiles.UNIT) else None
    done = placed({"do": "remove", "manifest": headfiles.MANIFEST, "service": service})
    steps = [f"the store of promises stays in {os.path.dirname(STORE)}: delete it yourself if you want"]
    if nodes:
        from outrider.metadata.notation.hostlists import fold

        steps.insert(0, f"the nodes still have their files: outrider nodes deploy --remove '{fold(nodes)}'")
    copied = [each for each in changed if not each.endswith("job_submit.lua")]
    if copied and not found.is_configless and not found.shared_as:
        steps.insert(0, f"copy {' '.join(copied)} to the nodes that have copies, then scontrol reconfigure")
    if waiting := _waiting(runner):
        steps.insert(
            0,
            f"jobs {' '.join(waiting)} wait for images for ever now: scancel them, or let them start without "
            "by scontrol update jobid=JOB StartTime=now, and by scontrol release JOB those with a deadline",
        )
    return Outcome(
        seen=_seen(found), settings={}, edits=dict.fromkeys(changed, ()), put=(), kept=tuple(done["kept"]),
        removed=tuple(done["removed"]), advice=tuple(remarks), troubles=(), is_applied=True,
        waits_for_nodes="", next_steps=tuple(steps),
    )  # fmt: skip


def _waiting(runner: Runner) -> list[str]:
    """Pending jobs that nobody but Outrider would let start."""
    said = runner.run(["scontrol", "--oneliner", "show", "job"]).output
    jobs = [line for line in said.splitlines() if " AdminComment=" in line and '{"outrider":1' in line]
    return [line.split()[0].removeprefix("JobId=") for line in jobs if " JobState=PENDING " in line]


def _wishes(arguments: argparse.Namespace) -> Wishes:
    from outrider.cli.installing.slurm.plan import PARTS, UNLESS_WANTED

    left_out = {each for each in _LEAVABLE if getattr(arguments, f"without_{each.replace('-', '_')}")}
    unwanted = {each for each in UNLESS_WANTED if not getattr(arguments, f"with_{each.replace('-', '_')}")}
    return Wishes(
        conf=arguments.conf,
        user=arguments.user,
        parts=frozenset(PARTS) - left_out - unwanted,
        keeps=frozenset(unwanted - left_out),
        spank=arguments.spank,
        are_nodes_ready=arguments.nodes_are_ready,
    )


def _head(wishes: Wishes, found: Facts) -> Head:
    from outrider.cli.installing.slurm import headfiles

    spank = None
    if wishes.spank is not None:
        try:
            spank = Path(wishes.spank).read_bytes()
        except OSError as error:
            raise InputError(
                f"{wishes.spank} cannot be read ({error.strerror}): make it with make spank"
            ) from error
    return headfiles.Head(
        site=found.site,
        user=wishes.user,
        slurm_user=found.slurm_user,
        has_systemd=found.has_systemd,
        spank=spank,
        key=headfiles.key(),
        parts=wishes.parts | (wishes.keeps & headfiles.in_force(found.site)),
    )


def planned_for(found: Facts, head: Head, *, has_spank: bool) -> Plan:
    """What is to be done to this site's files."""
    from outrider.cli.installing.slurm.editing import read_text
    from outrider.cli.installing.slurm.plan import Texts, plan

    folder = found.site.folder
    texts = Texts(
        submit=read_text(f"{folder}/job_submit.lua"),
        cli=read_text(f"{folder}/cli_filter.lua"),
        plugstack=read_text(f"{folder}/plugstack.conf"),
    )
    return plan(found.site, texts, head.parts, found.version, has_spank=has_spank)


def _unready(found: Facts, planned: Plan) -> str:
    """The nodes whose jobs would meet hooks that are not there: their nodes would be drained."""
    from outrider.cli.installing.slurm import headfiles
    from outrider.metadata.notation.hostlists import fold

    if not planned.wants_hooks_on_nodes:
        return ""
    known = set(headfiles.deployed("wrapped"))
    return fold(name for name in headfiles.nodes_of(found.site) if name not in known)


def _seen(found: Facts) -> Seen:
    from outrider.cli.installing.slurm.headfiles import nodes_of

    return Seen(
        slurm_conf=found.site.main.path,
        files=tuple(each.path for each in found.site.files),
        version=found.version_text,
        nodes=len(nodes_of(found.site)),
    )


def _again(head: Head) -> str:
    """The command that goes on with what was asked for."""
    from outrider.cli.installing.slurm.plan import UNLESS_WANTED

    wanted = "".join(f" --with-{each}" for each in UNLESS_WANTED if each in head.parts)
    return f"outrider init slurm --apply{wanted}"


def _next_steps(found: Facts, planned: Plan, waits: str, again: str, *, is_done: bool) -> tuple[str, ...]:
    """What the administrator does now, in order."""
    from outrider.cli.installing.slurm.headfiles import deployed
    from outrider.metadata.notation.hostlists import expand

    if planned.troubles:
        return ()
    if not is_done:
        return (again,)
    if waits:
        # Nodes to which an earlier version has brought its files have their pools already.
        size = "" if set(expand(waits)) <= set(deployed()) else " --limit 200GiB"
        return (f"outrider nodes deploy '{waits}'{size}", again)
    steps = []
    changed = [each.path for each in planned.edits if not each.path.endswith("job_submit.lua")]
    if changed and not found.is_configless and not found.shared_as:
        steps.append(f"copy {' '.join(changed)} to the nodes, unless they read these very files")
    if found.site.main.path in changed or any(each.path != found.site.main.path for each in planned.edits):
        steps.append("scontrol reconfigure")
    steps.append(
        "systemctl enable --now outriderd"
        if found.has_systemd
        else "start outriderd (there is no systemd here)"
    )
    return (*steps, "outrider doctor")


def _no_command(arguments: object) -> None:
    raise InputError("no batch system given after init; try outrider init slurm, or gridengine")
