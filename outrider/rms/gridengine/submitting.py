"""The arguments of qsub for a job that the service hands over in a user's name."""

from __future__ import annotations

from collections.abc import Mapping

from outrider.core.model import Resources
from outrider.rms.base import Refused, Submission
from outrider.rms.gridengine import context
from outrider.rms.gridengine.settings import GridEngineSettings
from outrider.rms.saved import SavedMachine


def arguments(
    submission: Submission,
    settings: GridEngineSettings,
    limit_s: int | None,
    bound: list[str],
    *,
    whole_node_slots: int | None = None,
) -> list[str]:
    """
    `bound` is what ties it to a reservation, `limit_s` its limit there, if that is not its end, and
    `whole_node_slots` how many slots a node of the reservation has: a parallel job gets all of them.
    """
    command = submission.argv[0] if submission.argv else ""
    if not command or command.startswith(("-", "@")):
        raise Refused(f"{command!r} is not a command: a job needs one")
    if submission.machine:
        raise Refused("a job in a virtual machine (run: vm) is handed to Grid Engine by qsub: use that")
    argv = ["qsub", "-terse", "-w", "e", "-r", "y", "-N", "outrider", "-b", "y"]
    argv += [
        *slots(submission.nodes_wanted, submission.resources, settings, whole_node_slots),
        *bound,
    ]
    wanted = {"h_rt": str(limit_s)} if limit_s is not None else {}
    if bound:
        wanted[settings.reservation_complex] = "TRUE"
    if wanted:
        argv += ["-l", requests(wanted)]
    if submission.folder:
        argv += ["-wd", submission.folder]
    if submission.account:
        argv += ["-A", submission.account]
    if settings.checkpoint:
        argv += ["-ckpt", settings.checkpoint]
    if submission.metadata is not None:
        argv += ["-ac", f"{context.METADATA}={context.encoded(submission.metadata)}"]
    if submission.tag:
        argv += ["-ac", f"{context.TAG}={context.encoded(submission.tag)}"]
    return [*argv, *submission.argv]


def requests(wanted: Mapping[str, str]) -> str:
    """The argument of -l."""
    return ",".join(f"{name}={text}" for name, text in sorted(wanted.items()))


def time_left(machine: SavedMachine | None, wanted: Mapping[str, str]) -> list[str]:
    """The requests with which a job goes on: Grid Engine gives each run the whole limit."""
    if machine is None or not machine.limit_s:
        return []
    return ["-l", requests({**wanted, "h_rt": str(machine.left_s)})]


def slots(
    nodes: int, resources: Resources, settings: GridEngineSettings, whole_node_slots: int | None = None
) -> list[str]:
    """The parallel environment and its slots with which a job has so many nodes."""
    each = resources["cpus"] or 1
    if each == nodes == 1:
        return []
    # In an advance reservation there is no other allocation rule than its own, that of whole nodes.
    each = whole_node_slots or each
    environment = settings.environment(each)
    if environment is None:
        raise Refused(
            f"no parallel environment gives {each} slots on each node: "
            f"make one with allocation_rule {each} and name it in environments"
        )
    return ["-pe", environment, str(each * nodes)]
