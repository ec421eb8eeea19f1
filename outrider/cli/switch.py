"""`outrider switch` and `outrider nodes drain --live`: machines of jobs moved by one plan."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from outrider.cli.arguments import Parser, Subparsers
from outrider.cli.asking.session import add_asking, session
from outrider.cli.errors import InputError
from outrider.cli.output import complete_file

if TYPE_CHECKING:
    from outrider.service.answers.switch import SwitchUse, SwitchView
    from outrider_client.transport import Json

_SWITCH = """For administrators. The machines of jobs with run: vm are
placed anew, so that as many jobs run as can, in the order in which they were submitted; what runs comes
before what waits. Each machine that moves is saved, brought to its new node and goes on there;
of a job with several nodes all are saved, and what need not move goes on where it was.

examples:
  outrider switch plan
  outrider switch plan --explain 4711
  outrider switch run --fence 4711=n2 --fence 4712=n1
  outrider switch show --svg switch.svg
"""
_DRAIN = """For administrators. With --live the machines of jobs with run: vm are saved and go on elsewhere;
each is named with the pause that is expected. What cannot move is named with the reason, and ends when it
ends. The node has to take no jobs any more: drain it in the batch system first; on the embedded backend this
command does it, and --undo lets it take jobs again.

examples:
  scontrol update NodeName=n3 State=DRAIN Reason=disk && outrider nodes drain n3 --live
  qmod -d all.q@n3 && outrider nodes drain n3 --live
  outrider nodes drain n3 --live --plan
  outrider nodes drain n3 --undo
"""


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "switch", help="move machines of jobs by one plan", description="move machines of jobs by one plan.",
        epilog=_SWITCH,
    )  # fmt: skip
    parser.set_defaults(command=_no_command)
    below = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    for name, run, words in (
        ("plan", plan, "say what would be done, with its cost, and do nothing"),
        ("run", carry_out, "plan a switch and carry it out"),
    ):
        parser = add_asking(below, name, run, words, _SWITCH)
        parser.add_argument(
            "--fence", action="append", default=[], metavar="JOB=NODES", help="its machines are to be there"
        )
        parser.add_argument("--explain", default="", metavar="JOB", help="say why it is moved or not")
    parser = add_asking(below, "show", show, "show the switch that goes on, or the last one", _SWITCH)
    parser.add_argument("--svg", metavar="FILE", help="draw it, too: nodes downwards, time to the right")
    parser = add_asking(commands, "drain", drain, "empty nodes of machines (as outrider nodes drain)", _DRAIN)
    parser.add_argument("nodes", metavar="NODES", help="these nodes: n[1-4,7]")
    parser.add_argument("--live", action="store_true", help="move what runs there")
    parser.add_argument("--plan", action="store_true", help="say what would be done, and do nothing")
    parser.add_argument("--undo", action="store_true", help="let them take jobs again (embedded backend)")


def plan(arguments: argparse.Namespace) -> None:
    _decide(arguments, is_plan=True)


def carry_out(arguments: argparse.Namespace) -> None:
    _decide(arguments, is_plan=False)


def show(arguments: argparse.Namespace) -> None:
    from outrider.service.answers.switch import SwitchView

    asking = session(arguments)
    answer = asking.client.get("/v1/switch")
    if arguments.svg:
        _draw(asking.read(SwitchView, answer), arguments.svg)
    if (found := asking.shown(SwitchView, answer)) is not None:
        print(screen(found))


def _draw(found: SwitchView, path: str) -> None:
    from outrider.cli.asking.display.switch_picture import picture

    if found.begun_s is None:
        raise InputError("--svg: there was no switch yet")
    with complete_file(path) as beside:
        beside.write_text(picture(found))


def drain(arguments: argparse.Namespace) -> None:
    if arguments.undo and (arguments.live or arguments.plan):
        raise InputError("--undo lets nodes take jobs again: leave --live and --plan out")
    if arguments.plan and not arguments.live:
        raise InputError("--plan says what --live would do: give both")
    if arguments.live:
        _ask(arguments, {"is_plan": arguments.plan, "drained": arguments.nodes})
        return
    from outrider.service.answers.nodes import NodeList

    asking = session(arguments)
    answer = asking.client.post("/v1/nodes/drain", {"nodes": arguments.nodes, "is_ended": arguments.undo})
    if (found := asking.shown(NodeList, answer)) is not None:
        from outrider_client.transport import printable_line

        print("\n".join(printable_line(f"node {each.name} is {each.state}") for each in found.nodes))


def _decide(arguments: argparse.Namespace, *, is_plan: bool) -> None:
    fences: dict[str, Json] = {}
    for each in arguments.fence:
        job, sign, node = each.partition("=")
        if not (job and sign and node):
            raise InputError(f"--fence {each}: write JOB=NODES, like 4711=n2 or 4712=n[1-3]")
        fences[job] = node
    _ask(arguments, {"is_plan": is_plan, "fences": fences, "explain": arguments.explain})


def _ask(arguments: argparse.Namespace, body: Json) -> None:
    from outrider.service.answers.switch import SwitchView

    asking = session(arguments)
    if (found := asking.shown(SwitchView, asking.client.post("/v1/switch", body))) is not None:
        print(screen(found))


def screen(found: SwitchView) -> str:
    """A line for each step, after what the whole is."""
    from outrider_client.transport import printable_line

    if found.state == "none":
        return "no switch yet"
    name = (
        "a switch is planned"
        if found.state == "planned"
        else f"switch {found.number} by {found.by}: {found.state}"
    )
    what = f"{found.cost_mib} MiB are moved, by no plan fewer than {found.bound_mib}"
    lines = [f"{name}; {what}" if found.steps else f"{name}; there is nothing to do"]
    for each in found.steps:
        where = " ".join(
            filter(None, (each.source, "to" if each.source and each.target else "", each.target))
        )
        pause = f", a pause of at most about {each.pause_s} s" if each.pause_s else ""
        lines.append(f"  stage {each.stage}  {each.kind} job {each.job} {where}: {each.state}{pause}")
    lines += [f"  job {job} stays suspended until there is room" for job in found.asleep]
    lines += [f"  stays: {each}" for each in found.kept]
    lines += [f"  {_use(each)}" for each in found.uses]
    lines += [f"  {each}" for each in (*found.explanation, found.words) if each]
    return "\n".join(printable_line(line) for line in lines)


def _use(each: SwitchUse) -> str:
    """As how much of processors a machine counts."""
    counted = f"uses: job {each.job} on {each.node} counts as {each.counted / 100:g} processors"
    if each.used is None or each.words:
        return f"{counted}, as asked for: {each.words}"
    return (
        f"{counted} of {each.asked / 100:g} asked for; it used {each.used / 100:g} until {each.age_s} s ago"
    )


def _no_command(arguments: argparse.Namespace) -> None:
    raise InputError("no command given; try outrider switch plan")
