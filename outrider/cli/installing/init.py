"""`outrider init`: beside a batch system, or away from it again. Without --apply it only tells."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import fields
from functools import partial

from outrider.cli.arguments import Parser, Subparsers, add_command
from outrider.cli.errors import InputError, NotAllowedError
from outrider.cli.installing.common.port import (
    BatchSystemInstallation,
    InstallationPlan,
    InstallOutcome,
    installation_of,
    options_of,
)
from outrider.cli.installing.systems import SYSTEMS
from outrider.cli.output import print_json


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "init", help="install beside a batch system, or show how",
        description="install beside a batch system, or show how.",
        epilog=options_of(next(iter(SYSTEMS))).epilog,
    )  # fmt: skip
    parser.set_defaults(command=_no_command)
    below = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    for name in SYSTEMS:
        _add_system(below, name)


def _add_system(below: Subparsers, name: str) -> None:
    offered = options_of(name)
    parser = add_command(below, name, partial(init, name), offered.summary, offered.epilog)
    for each in offered.of_site:
        each.add_to(parser)
    does = parser.add_mutually_exclusive_group()
    does.add_argument("--apply", action="store_true", help="do it, instead of showing it")
    does.add_argument("--remove", action="store_true", help="take everything out again")
    parser.add_argument(
        "--user", metavar="USER", default="root", help="the user that outriderd runs as (root)"
    )
    for part, meaning in offered.parts.items():
        parser.add_argument(f"--without-{part}", action="store_true", help=f"leave out: {meaning}")
    for each in offered.of_init:
        each.add_to(parser)
    parser.add_argument(
        "--nodes-are-ready",
        action="store_true",
        help="the nodes got their hooks by other means than deploy",
    )
    parser.add_argument("--json", action="store_true", help="print what was found and done as JSON")


def init(system: str, arguments: argparse.Namespace) -> None:
    if (arguments.apply or arguments.remove) and os.geteuid() != 0:
        raise NotAllowedError("only root can install: run it again with sudo, or without --apply to look")
    installation = installation_of(system, arguments)
    if arguments.remove:
        outcome = remove(installation)
    else:
        outcome = install(installation, is_applied=arguments.apply, are_nodes_ready=arguments.nodes_are_ready)
    if arguments.json:
        print_json(as_json(installation, outcome))
    else:
        print(screen(installation, outcome, is_removal=arguments.remove))
    if outcome.troubles:
        raise InputError("nothing was changed: repair what is listed under TROUBLE first")


def install(
    installation: BatchSystemInstallation, *, is_applied: bool, are_nodes_ready: bool
) -> InstallOutcome:
    """Plan, and carry the plan out if that is wanted and nothing is in its way."""
    from outrider.cli.installing.common import onhead
    from outrider.cli.installing.common.headfiles import MANIFEST

    planned = installation.plan()
    request = {"manifest": MANIFEST, "folders": planned.folders, "files": planned.files}
    waits = "" if are_nodes_ready else planned.waits_for_nodes
    put, kept = onhead.looked_at(onhead.placed({**request, "do": "look"}), planned.files)
    is_done = is_applied and not planned.troubles
    are_others_ready = not (waits or planned.waits_for_heads)
    if is_done:
        if are_others_ready:
            installation.prepare()
        for user in planned.missing_users:
            onhead.make_user(user, installation.runner)
        onhead.check_configuration(planned.configuration, installation.runner)
        done = onhead.placed({**request, "do": "put"})
        put, kept = tuple(done["changed"]), tuple(done["kept"])
        onhead.make_store(installation.runner)
        installation.apply(put, are_others_ready=are_others_ready)
    return InstallOutcome(
        changes=planned.changes, put=put, kept=kept, advice=planned.advice, troubles=planned.troubles,
        is_applied=is_done, waits_for_nodes=waits, waits_for_heads=planned.waits_for_heads,
        next_steps=_next_steps(planned, waits, is_done=is_done),
    )  # fmt: skip


def _next_steps(planned: InstallationPlan, waits: str, *, is_done: bool) -> tuple[str, ...]:
    """What the administrator does now, in order."""
    from outrider.cli.installing.common.headfiles import has_systemd

    if planned.troubles:
        return ()
    if not is_done:
        return (planned.again,)
    if waits or planned.waits_for_heads:
        nodes = (f"outrider nodes deploy '{waits}'{planned.deploy_options}",) if waits else ()
        heads = tuple(f"on {each}: {planned.again}" for each in planned.waits_for_heads)
        return (*nodes, *heads, f"{planned.again} {planned.heads_are_ready}" if heads else planned.again)
    start = (
        "systemctl enable --now outriderd" if has_systemd() else "start outriderd (there is no systemd here)"
    )
    return (*planned.next_steps, start, "outrider doctor")


def remove(installation: BatchSystemInstallation) -> InstallOutcome:
    """What leads to our files first, then the files."""
    from outrider.cli.installing.common.headfiles import MANIFEST, UNIT, deployed
    from outrider.cli.installing.common.onhead import STORE, placed
    from outrider.metadata.notation.hostlists import fold

    undone = installation.undo()
    service = {"unit": "outriderd.service"} if os.path.exists(UNIT) else None
    done = placed({"do": "remove", "manifest": MANIFEST, "service": service})
    steps = list(undone.next_steps)
    if nodes := deployed():
        steps.append(f"the nodes still have their files: outrider nodes deploy --remove '{fold(nodes)}'")
    others = "".join(f", and the user {user}" for user in undone.users)
    them = "them" if others else "it"
    stays = f"the store of promises stays in {os.path.dirname(STORE)}{others}"
    steps.append(f"{stays}: delete {them} yourself if you want")
    return InstallOutcome(
        changes=undone.changes, kept=tuple(done["kept"]), removed=tuple(done["removed"]),
        advice=undone.advice, is_applied=True, next_steps=tuple(steps),
    )  # fmt: skip


def as_json(installation: BatchSystemInstallation, outcome: InstallOutcome) -> dict[str, object]:
    """All of it by name; what a batch system has of its own stands beside what all have."""
    values = {each.name: getattr(outcome, each.name) for each in fields(outcome) if each.name != "changes"}
    return {**installation.facts(), **outcome.changes, **values}


def screen(installation: BatchSystemInstallation, outcome: InstallOutcome, *, is_removal: bool) -> str:
    """What was found and done for people: everything, the conclusion last."""
    title = "files put on this machine" if outcome.is_applied else "files for this machine"
    parts = [
        *installation.shown(outcome, is_removal=is_removal),
        ("files removed", outcome.removed),
        (title, outcome.put),
        ("kept as somebody has changed them", outcome.kept),
        ("worth knowing", outcome.advice),
        ("TROUBLE", outcome.troubles),
    ]
    lines = [installation.heading(), *(line for name, each in parts for line in _part(name, each))]
    if node := installation.proved_on:
        lines += ["", f"Jobs have come through the hooks on {node}, in a queue of their own."]
    if outcome.waits_for_nodes and not outcome.troubles:
        lines += ["", f"{installation.unready} {outcome.waits_for_nodes}."]
    if outcome.waits_for_heads and not outcome.troubles:
        others = " and ".join(outcome.waits_for_heads)
        lines += ["", f"The site's own files are not changed yet: {others} would lack what they name."]
    if not outcome.is_applied:
        lines += ["", "Nothing was changed."]
    return "\n".join([*lines, *_part("next", outcome.next_steps)])


def _part(title: str, found: Sequence[str]) -> list[str]:
    return ["", f"{title}:", *(f"  {one}" for one in found)] if found else []


def _no_command(arguments: object) -> None:
    raise InputError(f"no batch system given after init; try outrider init {', or '.join(SYSTEMS)}")
