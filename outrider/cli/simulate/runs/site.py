"""A workload on a site with nodes, links and image pools, through the production scheduler."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.errors import InputError
from outrider.cli.quantities import size_bytes
from outrider.cli.simulate.runs.batch import batch_site, check_batch, said_mode
from outrider.cli.simulate.runs.log import RunResult
from outrider.cli.simulate.runs.suspending import suspends_the_serial_alone, with_suspension
from outrider.core.besteffort.backfilling.overtaking import Backfilling
from outrider.core.besteffort.board import Yielding
from outrider.core.model import Image, Node, Resources
from outrider.core.reservations.book import Shipping
from outrider.sim.faults import Fault, LinkFault, NodeFault
from outrider.sim.results.report import world_report
from outrider.sim.setup import PROFILES, Setup, no_virtualisation, ranked_by
from outrider.sim.workload.formats.convert import Form, form_of, read_trace
from outrider.sim.workload.trace import Trace, TraceSubmission
from outrider.sim.world import Simulation

if TYPE_CHECKING:
    from outrider.sim.results.occupancy import Schedule


def run_site(arguments: argparse.Namespace, trace: Trace | None = None) -> RunResult:
    """`trace` is what the file says, if it has been read already."""
    check_batch(arguments)
    setup = site_setup(arguments)
    images = dealt_images(arguments)
    if trace is None:
        trace = read_trace(
            arguments.workload, limit=arguments.limit, images=images, is_serial=bool(arguments.serial)
        )
    nodes = _nodes(arguments, trace)
    setup = with_suspension(setup, arguments, nodes)
    trace = suspends_the_serial_alone(trace, arguments)
    playable, never_fit = _playable(trace, setup, nodes)
    name = Path(arguments.workload).name
    try:
        faults = _faults(arguments, nodes)
        is_batch = arguments.mode is not None
        world = (
            batch_site(arguments, setup, nodes, playable)
            if is_batch
            else Simulation(setup, nodes, playable, faults)
        )
    except ValueError as error:
        raise InputError(f"{arguments.workload}: {error}") from error
    outcome = world.run()

    def occupancy() -> Schedule:
        from outrider.sim.results.occupancy import world_occupancy

        return world_occupancy(outcome, name)

    return RunResult(
        report=world_report(name, outcome, playable.submissions, never_fit=never_fit),
        occupancy=occupancy,
        site=f"{len(nodes):,} nodes, {said_mode(arguments) or 'profile ' + (arguments.profile or 'honest')}",
    )


def site_setup(arguments: argparse.Namespace) -> Setup:
    """The profile with what the options say otherwise."""
    setup = PROFILES[arguments.profile or "honest"]
    if arguments.images == "none":
        setup = no_virtualisation(setup)
    elif arguments.images == "predeployed":
        setup = replace(setup, has_images=False)
    if arguments.evict and not arguments.keep:
        raise InputError("--evict chooses among images that are kept: say how much with --keep")
    if arguments.slowdown and arguments.images == "none":
        raise InputError("--slowdown is of virtual machines: with --images none there are none; leave it out")
    changes: dict[str, object] = {
        "rate_bytes_per_s": arguments.link,
        "slowdown_percent": arguments.slowdown,
        "best_effort_percent": arguments.shared_link,
        "pool_bytes": arguments.pool,
        "keep_bytes": arguments.keep,
        "is_reusing": arguments.reuse,
        "rank": ranked_by(arguments.evict) if arguments.evict else None,
        "shipping": Shipping(arguments.shipping) if arguments.shipping else None,
    }
    given = {name: value for name, value in changes.items() if value is not None}
    if arguments.yielding is not None:
        given["yielding"] = Yielding(arguments.yielding.replace("-", " "))
    if arguments.push_back is not None:
        given["push_back_s"] = _push_back_s(arguments.push_back)
    if arguments.policy is not None:
        given |= _backfilling(arguments.policy)
    setup = replace(setup, **given)  # type: ignore[arg-type]
    return setup if arguments.site_policy is None else _under_policies(setup, arguments.site_policy)


def _under_policies(setup: Setup, path: str) -> Setup:
    """The site under the policies of a file, which needs more than the standard library to be read."""
    try:
        from outrider.cli.simulate.runs.policies import with_policies
        from outrider.metadata.errors import MetadataError
        from outrider.metadata.policies import read_policies
    except ImportError as error:
        raise InputError(f"--site-policy needs {error.name}, which is in the extra `service`") from error
    try:
        policies = read_policies(path)
        if policies.external is not None:
            raise InputError(f"{path}: a simulation asks no program: leave out external")
        return with_policies(setup, policies)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except MetadataError as error:
        raise InputError(str(error)) from error


def dealt_images(arguments: argparse.Namespace) -> Iterable[Image] | None:
    """The images for the jobs of a log, drawn at random; None leaves the file's."""
    text = arguments.images
    if text in ("trace", "none", "predeployed"):
        return None
    if form_of(arguments.workload) is not Form.SWF:
        raise InputError(
            f"--images {text} deals images to the jobs of a log; {arguments.workload} is not a log"
        )
    from random import Random

    from outrider.sim.workload.images import THESIS_IMAGE_BYTES, skewed_images, uniform_images

    if text == "skewed":
        return skewed_images().draws(Random(arguments.seed))
    found = re.fullmatch(r"uniform=([1-9]\d{0,5})(?:x(.+))?", text)
    if found is None:
        raise InputError(
            f"--images {text!r}: use trace, none, predeployed, uniform=N, uniform=NxSIZE or skewed"
        )
    try:
        each_bytes = size_bytes(found[2]) if found[2] else THESIS_IMAGE_BYTES
    except argparse.ArgumentTypeError as error:
        raise InputError(f"--images {text}: {error}") from error
    return uniform_images(int(found[1]), size_bytes=each_bytes).draws(Random(arguments.seed))


def _push_back_s(text: str) -> int | None:
    if text == "edf":
        return None
    if text == "jit":
        return 0
    if text.isascii() and text.isdigit():
        return int(text)
    raise InputError(f"--push-back {text!r}: write seconds, edf or jit")


def _backfilling(text: str) -> dict[str, object]:
    """The counted queue's policies, said in the terms of a site."""
    from outrider.core.besteffort.counted import Policy

    try:
        policy = Policy.named(text)
    except ValueError as error:
        raise InputError(f"--policy: {error}") from error
    if not policy.is_backfilling:
        return {"backfilling": Backfilling.OFF}
    if policy.reservations == 0:
        return {"backfilling": Backfilling.GREEDY}
    return {"backfilling": Backfilling.RESERVING, "places": policy.reservations}


def _nodes(arguments: argparse.Namespace, trace: Trace) -> tuple[Node, ...]:
    """The nodes of the options, or of the file, or of the log's header."""
    if arguments.nodes:
        asked_for = {name for one in trace.submissions for name, _ in one.workspace.resources.amounts}
        beyond = sorted(asked_for - {"cpus"})
        if beyond and trace.nodes:
            capacity = trace.nodes[0].capacity
            if arguments.cpus:
                capacity = Resources.from_mapping(dict(capacity.amounts) | {"cpus": arguments.cpus})
        elif beyond:
            raise InputError(f"{arguments.workload} asks for {beyond[0]}, which --nodes does not give")
        else:
            capacity = Resources.of(cpus=arguments.cpus or 1)
        return tuple(Node(name=name, capacity=capacity) for name in arguments.nodes)
    if trace.nodes and not arguments.cpus:
        return trace.nodes
    if arguments.cpus:
        raise InputError("--cpus is the processors of each node: name the nodes as well, with --nodes")
    if form_of(arguments.workload) is Form.SWF:
        from outrider.sim.workload.formats.swf import read_log
        from outrider.sim.workload.formats.swf_trace import log_nodes

        return log_nodes(read_log(arguments.workload, limit=arguments.limit))
    raise InputError(f"{arguments.workload} names no nodes; see --nodes")


def _faults(arguments: argparse.Namespace, nodes: tuple[Node, ...]) -> list[Fault]:
    known = {node.name for node in nodes}
    faults: list[Fault] = []
    try:
        for node, at_s, until_s in arguments.fail or ():
            if node not in known:
                raise InputError(
                    f"--fail: there is no node {node}; the first of {len(known)} is {nodes[0].name}"
                )
            faults.append(NodeFault(node=node, at_s=at_s, until_s=until_s))
        for at_s, until_s, percent in arguments.slow or ():
            faults.append(LinkFault(at_s=at_s, until_s=until_s, percent=percent))
    except ValueError as error:
        raise InputError(str(error)) from error
    return faults


def _playable(trace: Trace, setup: Setup, nodes: tuple[Node, ...]) -> tuple[Trace, list[str]]:
    """The trace without best effort whose image no pool can hold: it would wait forever."""
    limits = [node.pool_bytes for node in setup.limited(nodes)]
    if not setup.has_images or None in limits:
        return trace, []
    largest_bytes = max(limit for limit in limits if limit is not None)

    def fits(submission: TraceSubmission) -> bool:
        workspace = submission.workspace
        image = workspace.image
        return not workspace.is_best_effort or image is None or image.size_bytes <= largest_bytes

    kept = [submission for submission in trace.submissions if fits(submission)]
    left_out = [submission.workspace.name for submission in trace.submissions if not fits(submission)]
    return replace(trace, submissions=tuple(kept)), left_out
