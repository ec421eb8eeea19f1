"""`outrider sim switch`: what a cluster-wide context switch costs, on random sites."""

from __future__ import annotations

import argparse
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.errors import InputError, MissingPartError
from outrider.cli.output import complete_file, print_csv, print_json
from outrider.cli.progress import progress
from outrider.cli.quantities import positive
from outrider.cli.simulate.figure import check_picture

if TYPE_CHECKING:
    from outrider.core.switch.planner import Improve
    from outrider.sim.switch.experiment import ReductionRow, Sample
    from outrider.sim.switch.solving import SolvedInstance

MOST_MACHINES = 200_000
DEFAULT_SEEDS = 15
DEFAULT_EFFORT = 10
_SAMPLE_COLUMNS = (
    "mix", "machines", "seed", "cost", "packed_cost", "longest", "packed_longest", "bound", "stages",
    "actions", "in_stages_s", "continuous_s", "by",
)  # fmt: skip

_EPILOG = """A site has nodes of 2 processors and 4 GB, and jobs of 9 or 18 virtual machines that run, sleep
or wait. A switch goes from there to the placement in which as many jobs as possible run, in the order of
the queue. Its cost is the paper's: of every action what it moves (MB of memory) and the stages before it.
It is compared with the plan that leads to First Fit Decreasing's placement.

Every plan is carried out by an independent check, instant by instant. A cost is optimal if the solver
has proven that no plan costs less in which each machine does no more than its own action.

mixes: running, sleeping and waiting jobs in parts; the paper does not say which it had
  thirds          1:1:1           thirds-busy     1:1:1, 95 % of machines compute
  mostly-running  8:1:1           six-two-two     6:2:2
  halves          1:0:1           running         all run

With --instance one file of BtrPlace's is read instead, in JSON, also with gzip. Which machines run it says
itself; constraints that are not known here are refused by name. Of `among` the group of nodes is kept that
holds most of the machines' memory; what is to be apart on the way, too, is looked at in the plan, and said.

examples:
  outrider sim switch --figure-9
  outrider sim switch --instance li6.json.gz --no-solver --explain vm17
  outrider sim switch --mix six-two-two --seeds 3
  outrider sim switch --machines 486 --picture figure10.svg
  outrider sim switch --nodes 1000 --machines 2430 --no-solver --seeds 1 --json
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "switch", switch, "say what a cluster-wide context switch costs", _EPILOG)
    parser.add_argument(
        "--nodes", type=positive, default=200, metavar="N", help="nodes of a site (default: %(default)s)"
    )
    parser.add_argument(
        "--machines", type=positive, action="append", metavar="N",
        help="virtual machines of a site; again for more sizes (default: 54, 108, … 486)",
    )  # fmt: skip
    parser.add_argument(
        "--mix", action="append", metavar="MIX", help="again for more than one (default: all but six-two-two)"
    )
    parser.add_argument(
        "--seeds", type=positive, default=DEFAULT_SEEDS, metavar="N",
        help="sites of each mix and size (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--first-seed", type=positive, default=1, metavar="N", help="of the first one")
    parser.add_argument(
        "--order", choices=("memory", "processors"), default="memory",
        help="by what First Fit Decreasing sorts first (default: memory)",
    )  # fmt: skip
    parser.add_argument(
        "--effort", type=positive, default=DEFAULT_EFFORT, metavar="N",
        help="the solver's, in its own units: about seconds (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--no-solver", action="store_true", help="the heuristic alone")
    parser.add_argument(
        "--workers", type=positive, metavar="N", help="processes to run in (default: one for each core)"
    )
    instances = parser.add_argument_group("one instance")
    instances.add_argument("--instance", metavar="FILE", help="solve an instance of BtrPlace's")
    instances.add_argument(
        "--fewest-moves", action="store_true", help="count migrations, not what they move (no times then)"
    )  # fmt: skip
    instances.add_argument(
        "--explain", metavar="VM",
        help="say why a machine is moved or not, of an instance or of one random site",
    )  # fmt: skip
    parser.add_argument(
        "--figure-9", action="store_true", help="the stages of the paper's example, and nothing else"
    )
    outputs = parser.add_argument_group("output")
    outputs.add_argument("--json", action="store_true", help="print rows and samples as JSON")
    outputs.add_argument("--csv", action="store_true", help="print a line for each sample")
    outputs.add_argument("--picture", metavar="FILE", help="draw the reductions: .svg, .png or .pdf")


def switch(arguments: argparse.Namespace) -> None:
    if arguments.figure_9:
        _show_figure_9(arguments)
        return
    if arguments.instance:
        _solve(arguments)
        return
    if arguments.fewest_moves:
        raise InputError("--fewest-moves is for --instance: random sites count what is moved")
    if arguments.explain:
        _explain(arguments)
        return
    if arguments.picture:
        check_picture(arguments.picture)
    from outrider.core.switch.selection import Decreasing
    from outrider.sim.switch.experiment import SIZES, rows, samples
    from outrider.sim.switch.situations import MIXES

    mixes = _known(arguments.mix) or [name for name in MIXES if name != "six-two-two"]
    sizes = arguments.machines or SIZES
    if max(sizes) > MOST_MACHINES:
        raise InputError(f"--machines {max(sizes)}: at most {MOST_MACHINES} are drawn")
    effort = _effort(arguments)
    with progress("switches") as on_progress:
        found = samples(
            nodes=arguments.nodes,
            sizes=sizes,
            mixes=mixes,
            seeds=range(arguments.first_seed, arguments.first_seed + arguments.seeds),
            order=Decreasing[arguments.order.upper()],
            effort=effort,
            workers=arguments.workers,
            on_progress=on_progress,
        )
    summed = rows(found)
    if arguments.picture:
        from outrider.sim.plots.switch import draw_reductions

        with complete_file(arguments.picture) as path:
            draw_reductions(summed, path)
    _print(summed, found, arguments)


def _known(mixes: list[str] | None) -> list[str]:
    from outrider.sim.switch.situations import MIXES

    if unknown := [name for name in mixes or () if name not in MIXES]:
        raise InputError(f"--mix {unknown[0]}: choose from {', '.join(MIXES)}")
    return mixes or []


def _effort(arguments: argparse.Namespace) -> int:
    """The solver's; 0 for none."""
    if not arguments.no_solver and find_spec("ortools") is None:
        raise MissingPartError(
            "the solver needs OR-tools: install outrider[switch], or give --no-solver for the heuristic alone"
        )
    return 0 if arguments.no_solver else int(arguments.effort)


def _improve(arguments: argparse.Namespace) -> Improve | None:
    from outrider.sim.switch.experiment import solver

    return solver(_effort(arguments))


def _show_figure_9(arguments: argparse.Namespace) -> None:
    for name in ("instance", "fewest_moves", "mix", "machines", "explain", "csv", "picture"):
        if getattr(arguments, name):
            option = name.replace("_", "-")
            raise InputError(f"--{option}: --figure-9 is one example of its own: leave one of both out")
    from outrider.core.switch.cost import longest_cost, sum_cost
    from outrider.core.switch.stages import plan_stages
    from outrider.sim.switch.figure9 import figure_9, told

    situation, target = figure_9()
    plan = plan_stages(situation, target)
    costs = sum_cost(plan, situation.machines), longest_cost(plan, situation.machines)
    if arguments.json:
        print_json({"stages": told(situation, plan), "cost": costs[0], "longest": costs[1]})
        return
    for number, stage in enumerate(told(situation, plan), 1):
        print(f"  stage {number}  {', '.join(stage)}")
    print(f"  cost     {costs[0]}; by stages {costs[1]}")


def _solve(arguments: argparse.Namespace) -> None:
    """One instance of BtrPlace's."""
    for name in ("mix", "machines", "csv", "picture"):
        if getattr(arguments, name):
            raise InputError(f"--{name} is for random sites: leave it out beside --instance")
    from outrider.core.switch.planner import NoSwitch
    from outrider.sim.switch.instances import InstanceFault, read_instance
    from outrider.sim.switch.solving import explained, solve

    path = Path(arguments.instance)
    try:
        instance = read_instance(path, counts_moves=arguments.fewest_moves)
        solved, found = solve(instance, _improve(arguments))
    except (InstanceFault, NoSwitch) as error:
        raise InputError(f"--instance {path}: {error}") from error
    words = explained(instance, found, arguments.explain) if arguments.explain else ()
    if words is None:
        raise InputError(f"--explain {arguments.explain}: there is no such machine; the file's 7 is vm7 here")
    if arguments.json:
        print_json({"solved": solved, "explanation": words})
        return
    for line in (*_screen_of(solved, has_times=not arguments.fewest_moves), *words):
        print(line)


def _screen_of(solved: SolvedInstance, *, has_times: bool) -> list[str]:
    what = ", ".join(f"{count} {kind}" for kind, count in solved.actions.items() if count) or "nothing"
    gap = 100 * (solved.cost / solved.bound - 1) if solved.bound else 0.0
    is_proven = solved.cost == solved.bound
    lines = [
        f"  size     {solved.nodes} nodes, {solved.machines} machines",
        f"  to do    {what}, in {solved.stages} stages",
        f"  moves    {solved.moves}; no placement has fewer than {solved.least_moves}",
        f"  cost     {solved.cost}, by {solved.by}; "
        + ("optimal, proven" if is_proven else f"at most {gap:.2f} % above the least"),
    ]
    if has_times:
        lines.append(f"  takes    {solved.in_stages_s} s in stages, {solved.continuous_s} s continuously")
    return [*lines, *(f"  broken on the way: {each}" for each in solved.breaches)]


def _explain(arguments: argparse.Namespace) -> None:
    """One machine of one random site."""
    mixes, sizes = _known(arguments.mix), arguments.machines or []
    if len(mixes) != 1 or len(sizes) != 1 or arguments.csv or arguments.picture:
        raise InputError(
            "--explain is about one site: give one --mix and one --machines, and --first-seed for which"
        )
    from outrider.core.switch.explanation import explain
    from outrider.core.switch.planner import plan_switch
    from outrider.core.switch.rules import NO_RULES
    from outrider.core.switch.selection import Decreasing
    from outrider.sim.switch.situations import MIXES, draw

    situation = draw(arguments.nodes, sizes[0], MIXES[mixes[0]], arguments.first_seed)
    names = [each.name for each in situation.machines]
    if arguments.explain not in names:
        raise InputError(f"--explain {arguments.explain}: the machines are {names[0]} to {names[-1]}")
    queue = range(len(situation.jobs))
    found = plan_switch(
        situation, queue, order=Decreasing[arguments.order.upper()], improve=_improve(arguments)
    )
    words = explain(situation, found, NO_RULES, names.index(arguments.explain), queue)
    if arguments.json:
        print_json({"explanation": words})
    else:
        print("\n".join(words))


def _print(summed: list[ReductionRow], found: list[Sample], arguments: argparse.Namespace) -> None:
    if arguments.json:
        print_json({"rows": summed, "samples": found})
    elif arguments.csv:
        print_csv(_SAMPLE_COLUMNS, ([getattr(each, name) for name in _SAMPLE_COLUMNS] for each in found))
    else:
        print(screen(summed))


def screen(summed: list[ReductionRow]) -> str:
    """A line for each mix and size."""
    lines = [
        f"{'mix':<15}{'machines':>9}{'reduction of the cost':>24}{'by stages':>11}"
        f"{'optimal':>11}{'gap':>8}{'stages':>8}{'in stages':>11}{'continuous':>12}"
    ]
    for row in summed:
        share = f"{row.reduction_percent:.1f} ± {row.reduction_error:.1f} %"
        lines.append(
            f"{row.mix:<15}{row.machines:>9}{share:>24}{row.longest_reduction_percent:>9.1f} %"
            f"{f'{row.optimal} of {row.samples}':>11}{row.gap_percent:>6.2f} %{row.stages:>8.1f}"
            f"{row.in_stages_s:>9.0f} s{row.continuous_s:>10.0f} s"
        )
    return "\n".join(lines)
