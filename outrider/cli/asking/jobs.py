"""`outrider jobs`, `suspend`, `resume`, `migrate`, `console`; what `show` and `explain` say of a job."""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from outrider.cli.arguments import Subparsers
from outrider.cli.asking.session import Session, add_asking, add_filters, add_header_option, filters, session
from outrider_client.transport import in_path

if TYPE_CHECKING:
    from outrider.service.answers.jobs import JobDetails, JobView, MachineView

JOB_STATES = ("resolving", "refused", "waiting", "staging", "staged", "running", "suspended")
_JOBS = """Best-effort jobs that name an image. No column of the table has blanks in it, except the last.

examples:
  outrider jobs
  outrider jobs --mine
  outrider jobs --state staging --noheader
"""

_SUSPEND = """The machine of a job with run: vm is saved to its node's disk; the node is free, and the job
waits.

examples:
  outrider suspend 4711
  outrider suspend 4711 4712
"""
_RESUME = """The job goes on where its machine is, as soon as there is room, with the time that was left.

examples:
  outrider resume 4711
"""

_MIGRATE = """The machine of the job is saved, brought to another node, and continues there with the time that
was left. Meanwhile the job waits. Of several machines each goes to another node, NODE among these.

examples:
  outrider migrate 4711
  outrider migrate 4711 n7
"""

_CONSOLE = """What the guest says on its first serial port, and what is typed into it; Control and ] leave it.
With Slurm it is reached by a step of the job, on the embedded backend on the service's own machine, else by
ssh to the job's node.

examples:
  outrider console 4711
"""
_LOGIN = """By ssh, as root, with the key that was made for the job; its image has to have OpenSSH. For jobs
of several machines, and for interactive leases. The node is reached as by console.

examples:
  outrider ssh 4711
  outrider ssh 4711 vm2 uptime
"""
_INSTANCE = "which of its machines, by number or name, if it has several (default: %(default)s)"
MOST_INSTANCES = 1024
PR_SET_DUMPABLE = 4
ON_NODE = "/usr/lib/outrider/machine"


def add(commands: Subparsers) -> None:
    parser = add_asking(
        commands, "jobs", jobs, "list best-effort jobs, and how far their images are on their way", _JOBS
    )
    add_header_option(parser)
    add_filters(parser, JOB_STATES)
    for name, run, words, more in (
        ("suspend", suspend, "save the machines of jobs, and let them wait until they are resumed", _SUSPEND),
        ("resume", resume, "let suspended jobs continue", _RESUME),
    ):
        parser = add_asking(commands, name, run, words, more)
        parser.add_argument("jobs", nargs="+", metavar="JOB", help="the batch system's number of a job")
    words = "let a job's machine continue on another node"
    parser = add_asking(commands, "migrate", migrate, words, _MIGRATE)
    parser.add_argument("job", metavar="JOB", help="the batch system's number of a job")
    parser.add_argument("node", metavar="NODE", nargs="?", default="", help="the node; else one is chosen")
    parser = add_asking(commands, "console", console, "the console of a job's machine", _CONSOLE)
    parser.add_argument("job", metavar="JOB", help="the batch system's number of a job")
    parser.add_argument("instance", metavar="INSTANCE", nargs="?", default="1", help=_INSTANCE)
    parser = add_asking(commands, "ssh", login, "a shell in a job's machine", _LOGIN)
    parser.add_argument("job", metavar="JOB", help="the batch system's number of a job")
    parser.add_argument("instance", metavar="INSTANCE", nargs="?", default="1", help=_INSTANCE)
    parser.add_argument("inside", metavar="COMMAND", nargs="*", help="run in the guest instead of a shell")


def jobs(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.columns import JOBS
    from outrider.service.answers.jobs import JobList

    asking = session(arguments)
    query = filters(arguments)
    answer = asking.pages("/v1/jobs", query, "jobs")
    if (found := asking.shown(JobList, answer)) is not None:
        asking.table(JOBS, found.jobs, nothing="no jobs that name an image")


def suspend(arguments: argparse.Namespace) -> None:
    _order(arguments, "saves its machine; outrider show {} says when that is done", is_suspended=True)


def resume(arguments: argparse.Namespace) -> None:
    _order(arguments, "continues as soon as there is room; outrider show {} says when", is_suspended=False)


def migrate(arguments: argparse.Namespace) -> None:
    from outrider.service.answers.jobs import JobDetails
    from outrider_client.transport import printable_line

    asking = session(arguments)
    path = f"/v1/jobs/{in_path(arguments.job)}/migration"
    details = asking.shown(JobDetails, asking.client.post(path, {"node": arguments.node}))
    if details is not None:
        print(printable_line(f"job {details.job.job} moves {details.moves}"))


def console(arguments: argparse.Namespace) -> None:
    _enter(arguments, "console", ())


def login(arguments: argparse.Namespace) -> None:
    _enter(arguments, "ssh", arguments.inside)


def _enter(arguments: argparse.Namespace, verb: str, words: Sequence[str]) -> None:
    """Become the program on the node of one of a job's machines."""
    from outrider.cli.errors import InputError, MissingPartError
    from outrider.service.answers.jobs import JobDetails

    asking = session(arguments)
    details = asking.shown(JobDetails, asking.client.get(f"/v1/jobs/{in_path(arguments.job)}"))
    if details is None:
        return
    job = details.job
    if job.state != "running":
        raise InputError(f"job {job.job} is {job.state}: only one that runs in a machine has a console")
    number = _instance(arguments.instance, details.machines)
    if number > job.node_count:
        raise InputError(f"job {job.job} has no machine {number}: it has {job.node_count}")
    if details.machines_folder:
        _enter_here(details.machines_folder, job, verb, words)
    argv = [ON_NODE, verb, job.job, *words]
    if shutil.which("srun"):
        # Without a terminal there is none to pass on.
        terminal = ["--pty"] if os.isatty(0) else []
        # Machines that have moved are on other nodes than the batch system's own order says.
        told = next((each.node for each in details.machines if each.number == number and each.node), "")
        place = f"--nodelist={told}" if told else f"--relative={number - 1}"
        where = [f"--jobid={job.job}", "--overlap", "--nodes=1", "--ntasks=1", place]
        argv = ["srun", *where, *terminal, *argv]
    elif job.node_count == 1:
        argv = ["ssh", *(["-t"] if os.isatty(0) else []), "--", job.nodes, *argv]
    else:
        raise MissingPartError("srun, by which a job's nodes are reached, is not here: go to a login node")
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise MissingPartError(f"{argv[0]} cannot be run: {error.strerror}") from error


def _enter_here(folder: str, job: JobView, verb: str, words: Sequence[str]) -> NoReturn:
    """Machines of virtual nodes are on this machine, each with its user's rights, which root takes on."""
    import ctypes

    from cachemgr.machines.batch.main import main
    from cachemgr.machines.batch.system import FOLDER_VARIABLE
    from outrider.cli.errors import InputError

    if os.geteuid() == 0:
        try:
            user = pwd.getpwnam(job.user)
        except KeyError as error:
            raise InputError(f"job {job.job} is {job.user}'s, and there is no such user here") from error
        os.setgroups(os.getgrouplist(user.pw_name, user.pw_gid))
        os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
        os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)
        # What was root's is not shown to its user by /proc, and so ssh would not find its key there.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    for name in ("SLURM_JOB_ID", "JOB_ID"):
        os.environ.pop(name, None)
    os.environ[FOLDER_VARIABLE] = folder
    raise SystemExit(main([verb, job.job, *words]))


def _instance(text: str, machines: Sequence[MachineView]) -> int:
    """Which machine is meant: 2, or its name."""
    from outrider.cli.errors import InputError

    if named := [each.number for each in machines if each.name == text]:
        return named[0]
    digits = text.removeprefix("vm")
    if not digits.isascii() or not digits.isdigit() or not 1 <= int(digits[:9]) <= MOST_INSTANCES:
        raise InputError(f"INSTANCE is {text[:40]!r}: write a number from 1 on, or a name like vm2")
    return int(digits[:9])


def _order(arguments: argparse.Namespace, words: str, *, is_suspended: bool) -> None:
    from outrider.service.answers.jobs import JobDetails
    from outrider_client.transport import printable_line

    asking = session(arguments)
    for name in arguments.jobs:
        path = f"/v1/jobs/{in_path(name)}/suspension"
        answer = asking.client.post(path, None) if is_suspended else asking.client.delete(path)
        if (details := asking.shown(JobDetails, answer)) is not None:
            print(printable_line(f"job {details.job.job} {words.format(details.job.job)}"))


def is_job(name: str) -> bool:
    """Whether somebody means a job: reservations have letters in their names, or a hyphen."""
    return name.isascii() and name.isdecimal()


def show_job(asking: Session, name: str) -> None:
    from outrider.service.answers.jobs import JobDetails

    details = asking.shown(JobDetails, asking.client.get(f"/v1/jobs/{in_path(name)}"))
    if details is not None:
        print(job_screen(details, asking))


def explain_job(asking: Session, name: str) -> None:
    from cachemgr.base.tables import printable
    from outrider.cli.asking.display.terminal import GAP
    from outrider.service.answers.jobs import JobDetails

    details = asking.shown(JobDetails, asking.client.get(f"/v1/jobs/{in_path(name)}"))
    if details is None:
        return
    print(asking.paint(f"job {printable(details.job.job)}", "bold"))
    print(f"  it is {printable(_standing(details.job))}")
    if details.decisions:
        print()
    for each in details.decisions:
        told = f"{each.outcome}: {each.reason}" if each.reason else each.outcome
        print(f"  {asking.when.stamp(each.at_s)}{GAP}{printable(told)}")


def job_screen(details: JobDetails, asking: Session) -> str:
    """All about one job on one screen."""
    from cachemgr.base.tables import printable
    from outrider.cli.asking.display.decision import image_line
    from outrider.cli.asking.display.staging import staging_lines
    from outrider.cli.asking.display.terminal import facts, table
    from outrider.cli.asking.display.words import nodes_in_words, plural

    view, when, paint = details.job, asking.when, asking.paint
    color = "red" if view.state == "refused" or view.is_overdue else "green" if view.ready_s else ""
    state = paint(printable(view.state), color) if color else printable(view.state)
    title = f"{paint(f'job {printable(view.job)}', 'bold')} is {state}"
    if view.words:
        title += f": {printable(view.words)}"
    ready = ""
    if view.ready_s is not None:
        ready = f"{'since' if view.ready_s <= when.now_s else 'about'} {when.clock(view.ready_s)}"
    if view.state == "over":
        return "\n".join([title, facts([("user", printable(view.user))], paint)])
    wanted = plural(view.nodes_wanted, "node") + (f", {details.tasks} tasks" if details.tasks > 1 else "")
    known = [
        ("user", printable(view.user)),
        ("wants", wanted),
        ("nodes", nodes_in_words(view.node_count, printable(view.nodes)) if view.node_count else ""),
        ("submitted", when.clock(view.submitted_s)),
        ("image", "" if view.image is None else image_line(view.image)),
        ("address", "" if view.image is None else printable(view.image.uri or "")),
        ("digest", "" if view.image is None else printable(view.image.digest or "")),
        ("ready", ready),
        ("batch", "held until then" if view.held else f"released to {printable(details.released_to)}"),
    ]
    if not view.held and not details.released_to:
        known.pop()
    parts = [title, facts(known, paint)]
    if details.staging and view.state in ("staging", "staged"):
        parts += [paint("on its nodes", "bold"), *staging_lines(details.staging, when, paint)]
    if details.machines:
        rows = [[each.name, each.node or "-", each.address, each.state] for each in details.machines]
        cells = [[printable(cell) for cell in row] for row in rows]
        parts += [
            paint("its machines", "bold"),
            table(["NAME", "NODE", "ADDRESS", "STATE"], cells, paint, has_header=True),
        ]
    return "\n".join(parts)


def _standing(view: JobView) -> str:
    return view.state + (f": {view.words}" if view.words else "")
