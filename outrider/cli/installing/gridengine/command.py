"""`outrider init gridengine`: beside an existing Grid Engine, or away from it again."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.errors import InputError, NotAllowedError
from outrider.cli.output import print_json

if TYPE_CHECKING:
    from outrider.cli.installing.common.placing import Json
    from outrider.cli.installing.common.running import Runner
    from outrider.cli.installing.gridengine.carrying import Qconf
    from outrider.cli.installing.gridengine.files import GridHead
    from outrider.cli.installing.gridengine.plan import GridPlan, GridWishes
    from outrider.cli.installing.gridengine.site import GridSite

_MEANING = {
    "submit-filter": "the filter in the qmaster, without which jobs are not managed",
    "prolog": "the hook that gives a job its image",
    "epilog": "the hook that takes the image away after a job",
    "starter": "the hook that tells a job where its image is",
    "shepherd": "what keeps Grid Engine from ending hooks of interactive jobs",
    "pe-start": "the hook that gives a parallel job its image on its other nodes",
    "unit": "the unit of systemd",
}
_EPILOG = """Without --apply nothing is changed: what would be is shown. With it, the head gets Outrider's
files and Grid Engine the objects that reservations need; both change nothing for anybody. Once
"outrider nodes deploy" has brought the hooks to all nodes, they are tried on a queue of their own on one
node, and only if a job comes through there, the site's queues get them. --remove takes all of it back;
the store of promises stays.

examples:
  outrider init gridengine
  outrider init gridengine --apply
  outrider init gridengine --apply --prove-as ada
  outrider init gridengine --remove
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What the command line says."""

    wishes: GridWishes
    work_queue: str
    user: str
    prove_as: str | None
    are_nodes_ready: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class GridOutcome:
    """What was found, what is or was to be done, and what comes next; as --json shows it."""

    version: str
    nodes: int
    objects: tuple[str, ...]
    hooks: tuple[str, ...]
    put: tuple[str, ...]
    kept: tuple[str, ...]
    removed: tuple[str, ...]
    advice: tuple[str, ...]
    troubles: tuple[str, ...]
    proved_on: str
    is_applied: bool
    waits_for_nodes: str
    next_steps: tuple[str, ...]


def add(below: Subparsers) -> None:
    from outrider.cli.installing.gridengine.names import ACCOUNT, RESERVATION_QUEUE, WORK_QUEUE

    parser = add_command(
        below, "gridengine", init_gridengine, "install beside Grid Engine, or show what that changes", _EPILOG
    )
    does = parser.add_mutually_exclusive_group()
    does.add_argument("--apply", action="store_true", help="do it, instead of showing it")
    does.add_argument("--remove", action="store_true", help="take everything out again")
    parser.add_argument("--user", metavar="USER", default="root", help="as whom outriderd runs (root)")
    parser.add_argument(
        "--account", metavar="USER", default=ACCOUNT, help=f"whose the reservations are ({ACCOUNT})"
    )
    parser.add_argument(
        "--work-queue", metavar="QUEUE", default=WORK_QUEUE, help=f"the queue of jobs ({WORK_QUEUE})"
    )
    parser.add_argument(
        "--reservation-queue", metavar="QUEUE", default=RESERVATION_QUEUE,
        help=f"the queue of reservations, which is made ({RESERVATION_QUEUE})",
    )  # fmt: skip
    for part, meaning in _MEANING.items():
        parser.add_argument(f"--without-{part}", action="store_true", help=f"leave out: {meaning}")
    parser.add_argument(
        "--prove-as", metavar="USER", help="whose job tries the hooks (root, if Grid Engine takes its jobs)"
    )
    parser.add_argument(
        "--nodes-are-ready",
        action="store_true",
        help="the nodes got their hooks in another way than by deploy",
    )
    parser.add_argument("--json", action="store_true", help="print what was found and done as JSON")


def init_gridengine(arguments: argparse.Namespace) -> None:
    from outrider.cli.installing.common.running import SystemRunner
    from outrider.cli.installing.gridengine.site import VARIABLES

    if (arguments.apply or arguments.remove) and os.geteuid() != 0:
        raise NotAllowedError("only root can install: run it again with sudo, or without --apply to look")
    runner = SystemRunner(passed_on=VARIABLES)
    options = _options(arguments)
    if arguments.remove:
        outcome = remove(options, runner)
    else:
        outcome = install(options, runner, is_applied=arguments.apply)
    if arguments.json:
        print_json(outcome)
    else:
        from outrider.cli.installing.gridengine.words import screen

        print(screen(outcome, is_removal=arguments.remove))
    if outcome.troubles:
        raise InputError("nothing was changed: see to what stands under TROUBLE first")


def install(options: Options, runner: Runner, *, is_applied: bool) -> GridOutcome:
    """Plan, and carry the plan out if that is wanted and nothing is in its way."""
    from outrider.cli.installing.common import onhead
    from outrider.cli.installing.gridengine import carrying, files, plan, proof
    from outrider.cli.installing.slurm.headfiles import MANIFEST

    site = site_of(options, runner)
    planned = plan.plan(site, options.wishes)
    head = head_of(site, options, planned, runner)
    people = onhead.lacking(dict.fromkeys((options.wishes.account, options.user)), runner)
    request: Json = {"manifest": MANIFEST, "folders": files.folders(head), "files": files.head_files(head)}
    waits = "" if options.are_nodes_ready else _unready(site)
    put, kept = onhead.looked_at(onhead.placed({**request, "do": "look"}), request["files"])
    is_done = is_applied and not planned.troubles
    proved_on = ""
    if is_done:
        is_proof_needed = not waits and any(each.key != "jsv_url" for each in planned.hooks)
        user = proof.user_for(site, options.prove_as) if is_proof_needed else ""
        for name in people:
            onhead.make_user(name, runner)
        onhead.check_configuration(files.configuration(head), runner)
        done = onhead.placed({**request, "do": "put"})
        put, kept = tuple(done["changed"]), tuple(done["kept"])
        qconf = carrying.Qconf(runner)
        carrying.carry_out(planned.objects, qconf)
        onhead.make_store(runner)
        if is_proof_needed:
            from cachemgr.base.clock import SystemClock

            proved_on = site.hosts[0]
            proof.prove(site, proved_on, user, runner, SystemClock(), hooks=_wanted(options))
        if not waits:
            _lead_to_files(options, runner, qconf, proved_on, user)
    return GridOutcome(
        version=site.version, nodes=len(site.hosts),
        objects=(*map(onhead.made_in_words, people), *(each.words for each in planned.objects)),
        hooks=tuple(each.words for each in planned.hooks), put=put, kept=kept, removed=(),
        advice=(*planned.advice, *planned.pace), troubles=planned.troubles, proved_on=proved_on,
        is_applied=is_done, waits_for_nodes=waits, next_steps=_next_steps(planned, waits, is_done=is_done),
    )  # fmt: skip


def _lead_to_files(options: Options, runner: Runner, qconf: Qconf, proved_on: str, user: str) -> None:
    """Changes what leads to files on nodes; what interactive jobs need is tried before queues have hooks."""
    from cachemgr.base.clock import SystemClock
    from outrider.cli.installing.gridengine import carrying, plan, proof

    # The queues are there now, and their hooks are not.
    now = plan.plan(site_of(options, runner), options.wishes)
    shields = [each for each in now.hooks if each.key == plan.SHEPHERD_KEY]
    carrying.carry_out(shields, qconf)
    site = site_of(options, runner)
    if shields:
        SystemClock().sleep(proof.heard_s(site))
    if proved_on and proof.is_shielded(site):
        try:
            proof.prove_sessions(site, proved_on, user, runner, clock=SystemClock(), hooks=_wanted(options))
        except proof.ProofFailed:
            carrying.undo(shields, qconf)
            raise
    carrying.carry_out([each for each in now.hooks if each not in shields], qconf)


def _wanted(options: Options) -> dict[str, str]:
    from outrider.cli.installing.gridengine.plan import HOOKS

    return {part: text for part, text in HOOKS.items() if part in options.wishes.parts}


def remove(options: Options, runner: Runner) -> GridOutcome:
    """What leads to files first, then the files."""
    from cachemgr.base.clock import SystemClock
    from outrider.cli.installing.common import onhead
    from outrider.cli.installing.gridengine import carrying
    from outrider.cli.installing.gridengine.plan import SHEPHERD_KEY
    from outrider.cli.installing.gridengine.proof import heard_s
    from outrider.cli.installing.slurm.headfiles import MANIFEST, UNIT, deployed

    site = site_of(options, runner)
    if waiting := _in_reservations(options, runner):
        raise InputError(
            f"jobs {' '.join(waiting)} are in queue {options.wishes.reservation_queue}: let them end, or "
            "qdel them"
        )
    changes, kept = carrying.take_back(carrying.Qconf(runner))
    if any(each.key == SHEPHERD_KEY for each in changes):
        # Until they have heard of it, execds start what "nodes deploy --remove" takes away.
        SystemClock().sleep(heard_s(site))
    service = {"unit": "outriderd.service"} if os.path.exists(UNIT) else None
    nodes = deployed()
    done = onhead.placed({"do": "remove", "manifest": MANIFEST, "service": service})
    steps = [
        f"the store of promises stays in {os.path.dirname(onhead.STORE)}, and the user "
        f"{options.wishes.account}: delete them yourself if you want"
    ]
    if nodes:
        from outrider.metadata.notation.hostlists import fold

        steps.insert(0, f"the nodes still have their files: outrider nodes deploy --remove '{fold(nodes)}'")
    return GridOutcome(
        version=site.version, nodes=len(site.hosts), objects=tuple(each.words for each in changes), hooks=(),
        put=(), kept=tuple(done["kept"]), removed=tuple(done["removed"]), advice=tuple(kept), troubles=(),
        proved_on="", is_applied=True, waits_for_nodes="", next_steps=tuple(steps),
    )  # fmt: skip


def site_of(options: Options, runner: Runner) -> GridSite:
    from outrider.cli.installing.gridengine.site import read_site

    return read_site(runner, options.work_queue, (options.wishes.reservation_queue,))


def head_of(site: GridSite, options: Options, planned: GridPlan, runner: Runner) -> GridHead:
    from outrider.cli.installing.gridengine.files import GridHead
    from outrider.cli.installing.gridengine.programs import folder_of_commands
    from outrider.cli.installing.slurm import headfiles

    root, cell = os.environ.get("SGE_ROOT", "/var/lib/gridengine"), os.environ.get("SGE_CELL", "default")
    return GridHead(
        user=options.user,
        account=options.wishes.account,
        work_queue=site.work_queue,
        reservation_queue=options.wishes.reservation_queue,
        environments=planned.environments,
        duration_offset_s=planned.duration_offset_s,
        root=root,
        cell=cell,
        commands=folder_of_commands(root, cell, runner),
        has_systemd=os.path.isdir("/run/systemd/system"),
        key=headfiles.key(),
        parts=options.wishes.parts,
    )


def _options(arguments: argparse.Namespace) -> Options:
    from outrider.cli.installing.gridengine.plan import PARTS, GridWishes

    left_out = {each for each in _MEANING if getattr(arguments, f"without_{each.replace('-', '_')}")}
    return Options(
        wishes=GridWishes(
            account=arguments.account,
            reservation_queue=arguments.reservation_queue,
            parts=frozenset(PARTS) - left_out,
        ),
        work_queue=arguments.work_queue,
        user=arguments.user,
        prove_as=arguments.prove_as,
        are_nodes_ready=arguments.nodes_are_ready,
    )


def _unready(site: GridSite) -> str:
    """The nodes that have no hooks yet: a queue that names them is disabled by its first job."""
    from outrider.cli.installing.slurm.headfiles import deployed
    from outrider.metadata.notation.hostlists import fold

    known = set(deployed())
    return fold(name for name in site.hosts if name not in known)


def _in_reservations(options: Options, runner: Runner) -> list[str]:
    done = runner.run(["qstat", "-u", "*", "-q", options.wishes.reservation_queue, "-s", "rs"])
    rows = [line.split() for line in done.output.splitlines()[2:]] if done.is_good else []
    return [row[0] for row in rows if row]


def _next_steps(planned: GridPlan, waits: str, *, is_done: bool) -> tuple[str, ...]:
    """What the administrator does now, in order."""
    if planned.troubles:
        return ()
    if not is_done:
        return ("outrider init gridengine --apply",)
    if waits:
        return (
            f"outrider nodes deploy '{waits}' --for gridengine --limit 200GiB",
            "outrider init gridengine --apply",
        )
    return ("systemctl enable --now outriderd", "outrider doctor")
