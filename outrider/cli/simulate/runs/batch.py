"""Best effort as jobs of a batch system: who starts them in a simulation, and what that system takes."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from outrider.cli.errors import InputError
from outrider.cli.simulate.runs.suspending import OPTIONS as SUSPENDING

if TYPE_CHECKING:
    from outrider.core.model import Node
    from outrider.sim.batch.site import BatchSite
    from outrider.sim.setup import Setup
    from outrider.sim.workload.trace import Trace

# What a site has whose best effort runs with images or under other rules, as attributes and as options.
_WORLD_ONLY = {
    "profile": "--profile", "link": "--link-mbit", "shared_link": "--shared-link", "pool": "--pool",
    "keep": "--keep", "evict": "--evict", "reuse": "--reuse", "push_back": "--push-back",
    "shipping": "--shipping", "yielding": "--yielding", "slowdown": "--slowdown",
    "fail": "--fail", "slow": "--slow",
    **SUSPENDING,
}  # fmt: skip
_BATCH_ONLY = {"batch_system": "--batch-system", "order": "--order", "delay": "--delay"}


def check_batch(arguments: argparse.Namespace) -> None:
    """Options that say nothing where others are given."""
    if arguments.mode is None:
        _refuse(arguments, _BATCH_ONLY, "needs --mode schedule or --mode lead")
        return
    _refuse(arguments, _WORLD_ONLY, "has no effect with --mode, where images cost nothing: leave it out")
    if arguments.mode == "lead":
        words = "has no effect with --mode lead, where the batch system starts jobs: leave it out"
        _refuse(arguments, {"policy": "--policy", "order": "--order"}, words)
    else:
        _refuse(arguments, {"batch_system": "--batch-system"}, "has no effect with --mode schedule")


def _refuse(arguments: argparse.Namespace, options: dict[str, str], words: str) -> None:
    given = next((option for name, option in options.items() if getattr(arguments, name) is not None), "")
    if given:
        raise InputError(f"{given} {words}")


def batch_site(
    arguments: argparse.Namespace, setup: Setup, nodes: tuple[Node, ...], trace: Trace
) -> BatchSite:
    """The site, once `check_batch` has passed."""
    from outrider.core.besteffort.jobs.order import Order
    from outrider.core.besteffort.jobs.schedule import ScheduleRules
    from outrider.sim.batch.site import BatchSite, Delays
    from outrider.sim.batch.turns import LEAD, Starter

    if setup.leases is not None and setup.leases.slices is not None:
        raise InputError("leases.first_slice suspends who runs, which --mode does not: leave out one of them")
    if arguments.mode == "lead":
        starter = LEAD[arguments.batch_system or "slurm"]
    else:
        rules = ScheduleRules(backfilling=setup.backfilling, places=setup.places)
        starter = Starter(rules=rules, order=Order(arguments.order or "fcfs"))
    given = {f"{name}_s": seconds for name, seconds in arguments.delay or ()}
    return BatchSite(setup, nodes, trace, starter, Delays(**given))


def said_mode(arguments: argparse.Namespace) -> str:
    """In words; empty without one."""
    if arguments.mode == "lead":
        return f"started by {arguments.batch_system or 'slurm'}"
    return f"started by Outrider, policy {arguments.policy or 'aggressive'}" if arguments.mode else ""
