"""A batch job whose script runs in a virtual machine: what the batch system starts in the script's place.

    machine run=vm,memory=512,boot=debian SCRIPT ARGUMENT …
    machine member                          one of the other machines of a job of several nodes
    machine tasks NODE:SLOTS,… PROGRAM …    a program on each of its other nodes, where there is no srun
    machine tidy JOB                        as the epilog calls it, with the user's rights
    machine console JOB                     the console of its guest
    machine ssh JOB COMMAND …               a shell in its guest, or a command there
    machine discard JOB                     as the node's daemon calls it for a job that is gone
    machine move arrive|give|drop JOB       as it calls them for one whose machine goes on elsewhere
    machine hold JOB RATE [SECONDS]         a holder job, to whose node a job's running machine goes
    machine change JOB STAMP IMAGE          have the keeper of a virtual node bring it to its other folder

The submit filter puts `#!/usr/lib/outrider/machine run=vm,…` above the script's own first line. The machine
is kept in a folder of the job's user on the node. A job that is told to be suspended (USR1) saves its
machine, notes in its user's home where that is, and gives itself back to the queue; started again it
goes on. Where its machine is saved elsewhere it does not begin anew: it goes back to the queue.
"""

from __future__ import annotations

import json
import os
import pwd
import re
import stat
import sys
from contextlib import suppress
from dataclasses import asdict, replace

from cachemgr.base.errors import BadRequest, CacheError, NotAllowed
from cachemgr.machines import states
from cachemgr.machines.batch.bootfiles import BootFiles, boot_files
from cachemgr.machines.batch.console import LOGIN_VERB, VERB, console, login
from cachemgr.machines.batch.image import ROOT, JobImages, job_images
from cachemgr.machines.batch.kept import DISCARD
from cachemgr.machines.batch.kept import PROGRAM as OWN_PROGRAM
from cachemgr.machines.batch.leading import MEMBER, OtherMachines, first_place, with_keys
from cachemgr.machines.batch.member import INTERACTIVE, member
from cachemgr.machines.batch.moving import (
    DROPPED,
    GIVEN,
    MOVE,
    STEPS,
    TAKEN,
    read_wanted,
    remove_arrivals,
    step,
)
from cachemgr.machines.batch.options import WrappedScript, WrapperOptions, read_script, understood
from cachemgr.machines.batch.remains import continued, end_machine, remove_machine
from cachemgr.machines.batch.steps.changing import (
    CHANGE,
    ChangingMachine,
    after_change,
    ask_for_change,
    folder_of_machine,
    folders_of_machine,
    remove_orders,
)
from cachemgr.machines.batch.steps.leaving import LeavingMachine, clear_after
from cachemgr.machines.batch.steps.left import LeftFiles
from cachemgr.machines.batch.steps.marks import FOLDER_PREFIX, HOLD, HOLDS, SavedMark
from cachemgr.machines.batch.steps.tasks import TASKS, run_tasks
from cachemgr.machines.batch.system import BatchJob, folder_of_user, home_of_marks, job_here
from cachemgr.machines.keeper import PROGRAM, real_site
from cachemgr.machines.machine import Machine
from cachemgr.machines.qemu.process import BUSY
from cachemgr.machines.record import has_record, read_record
from cachemgr.machines.running import ENDING, SUSPENDED_STATUS, CaughtSignals, Keeping, kept, run
from cachemgr.machines.troubles import check_room
from cachemgr.machines.wish import MachineDisk, MachineJob, MachineWish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cachemgr.machines.keeper import MachineSite

TIDY = "tidy"
GRACE_S = 20.0
"""What a job has between TERM and its end, less than Slurm's KillWait of 30 s."""
FAILED_STATUS = 125
MOST_SCRIPT_BYTES = 16 << 20
TRIES = 12
PAUSE_S = 5.0
KEY = re.compile(r"[0-9]{1,10}(-[0-9]{1,10})?")
NOT_FOR_GUESTS = re.compile(
    r"LD_.*|PYTHON.*|OUTRIDER_(IMAGE|MACHINES?(_[A-Z]+)?|TICKET)|TMPDIR|TMP|BASH_FUNC_.*"
)
NODES = re.compile(
    r"SLURM_(JOB_|STEP_)?NODELIST|SLURM_NNODES|SLURM_TASKS_PER_NODE|SLURM_JOB_CPUS_PER_NODE|PE_HOSTFILE"
)
"""From these a program such as mpirun would learn of the nodes, and not of the machines on them."""


def main(arguments: Sequence[str], *, site: MachineSite | None = None) -> int:
    try:
        if len(arguments) == 2 and arguments[0] == TIDY:
            return tidy(arguments[1], site or real_site(os.uname().nodename, PROGRAM))
        if len(arguments) == 2 and arguments[0] == VERB:
            return console(_folder(_key(arguments[1])))
        if len(arguments) >= 2 and arguments[0] == LOGIN_VERB:
            return login(_folder(_key(arguments[1])), arguments[2:])
        if len(arguments) == 4 and arguments[0] == CHANGE:
            key = _key(arguments[1])
            print(ask_for_change(folder_of_user(os.environ), key, *arguments[2:]))  # noqa: T201 - read by the batch system
            return 0
        if len(arguments) == 2 and arguments[0] == DISCARD:
            return discard(arguments[1], site or real_site(os.uname().nodename, PROGRAM))
        if len(arguments) == 3 and arguments[0] == MOVE and arguments[1] in STEPS:
            return move(arguments[1], _key(arguments[2]), site or real_site(os.uname().nodename, PROGRAM))
        if len(arguments) in (3, 4) and arguments[0] == HOLD:
            found = site or real_site(os.uname().nodename, PROGRAM)
            return _hold(_key(arguments[1]), arguments[2:], os.environ, found)
        if len(arguments) > 2 and arguments[0] == TASKS:
            return run_tasks(arguments[1], arguments[2:])
        if list(arguments) == [MEMBER]:
            return _member(os.environ, site or real_site(os.uname().nodename, PROGRAM))
        return _main(arguments, os.environ, site or real_site(os.uname().nodename, PROGRAM))
    except (CacheError, OSError) as error:
        _say(str(error))
        return FAILED_STATUS


def _main(arguments: Sequence[str], environment: Mapping[str, str], site: MachineSite) -> int:
    job = job_here(environment)
    mark = SavedMark(home_of_marks(environment), job.key)
    ended = mark.take_end()
    if ended is not None and job.attempt > 0:
        mark.remove_rest()
        return ended
    if job.attempt > 0:
        mark.open_outputs()
    options, script, rest = understood(arguments, environment)
    wrapped = read_script(_read(script), options, job.nodes)

    return kept(lambda keeping: _keep(job, options, wrapped, rest, environment, site, keeping))


def _keep(
    job: BatchJob,
    options: WrapperOptions,
    wrapped: WrappedScript,
    rest: Sequence[str],
    environment: Mapping[str, str],
    site: MachineSite,
    keeping: Keeping,
) -> int:
    caught, left = keeping.caught, LeftFiles(keeping.left)
    if not keeping.is_first:
        # What is lost in the middle of a run does not begin anew in it.
        job = replace(job, attempt=0)
    folder = _folder(job.key)
    make_private(os.path.dirname(folder))
    machine = Machine(folder, site)
    if job.changes_folder:
        machine = after_change(machine)
    mark = SavedMark(home_of_marks(environment), job.key)
    first = wrapped.instances[0]
    path = environment.get("OUTRIDER_IMAGE", "")
    images = job_images(site.disk, job.key, path, first.image, wrapped.data)
    record = continued(machine, job, images, has_others=bool(left))
    wish, token = (None, "") if record is None else (record.wish, record.together)
    if wish is None:
        _forget_holder(machine, job, mark)
        elsewhere = _moved_to(machine) or mark.elsewhere(machine.place)
        if elsewhere:
            _say(f"the machine of this job is saved at {elsewhere}: it can continue there alone")
            if job.elsewhere_status is not None:
                return job.elsewhere_status
            return _given_back(job, site, caught)
        _remove_forgotten(machine, job)
        wish = _wish(job, options, wrapped, images, rest, environment)
        if left:
            wish = with_keys(wish, left)
    if record is not None and record.state == states.SUSPENDED and caught.was_to_save:
        # Whoever has saved it was killed before it could say so.
        mark.write(machine.place)
        return _given_back(job, site, caught)
    others = _others(machine, job, options, wrapped, wish, token, keeping)
    try:
        if job.changes_folder:
            machine, status = _run_in_two_folders(machine, job, wish, mark, caught)
        else:
            with_it = others or LeavingMachine(mark)
            status = run(machine, wish, grace_s=GRACE_S, caught=caught, is_up=mark.remove, others=with_it)
    finally:
        if others is not None:
            others.end()
    if status == SUSPENDED_STATUS:
        if not clear_after(machine, mark):
            mark.write(machine.place)
        return _given_back(job, site, caught)
    keeping.is_over(status)
    mark.remove()
    mark.remove_rest()
    if job.comes_back and caught.was_to_save:
        # It could not be saved, and has run to its end: it is not to begin anew.
        mark.write_end(status)
    remove_machine(machine)
    return status


def _run_in_two_folders(
    machine: Machine, job: BatchJob, wish: MachineWish, mark: SavedMark, caught: CaughtSignals
) -> tuple[Machine, int]:
    """Where it is at its end, and how that was."""
    is_appended = False
    while True:
        with_it = ChangingMachine(folder_of_user(os.environ), job.key)
        status = run(
            machine, wish, grace_s=GRACE_S, caught=caught, is_up=mark.remove, others=with_it,
            is_appended=is_appended,
        )  # fmt: skip
        there = after_change(machine) if status == SUSPENDED_STATUS else machine
        if there is machine:
            return machine, status
        machine, is_appended = there, True


def _hold(key: str, rate_and_time: Sequence[str], environment: Mapping[str, str], site: MachineSite) -> int:
    from cachemgr.machines.batch.steps.holding import hold

    own, folder = job_here(environment), _folder(key)
    make_private(os.path.dirname(folder))
    images = job_images(site.disk, own.key, environment.get("OUTRIDER_IMAGE", ""), 0, ())
    mark = SavedMark(home_of_marks(environment), key)
    return hold(Machine(folder, site), own, mark, images, *rate_and_time)


def _member(environment: Mapping[str, str], site: MachineSite) -> int:
    job = job_here(environment)
    folder = _folder(job.key)
    make_private(os.path.dirname(folder))
    return kept(lambda keeping: member(Machine(folder, site), job, environment, keeping))


def _others(
    machine: Machine,
    job: BatchJob,
    options: WrapperOptions,
    wrapped: WrappedScript,
    wish: MachineWish,
    token: str,
    keeping: Keeping,
) -> OtherMachines | None:
    """The job's other machines, begun, or those that were suspended with the first one's token; None if it
    has no other."""
    if wish.cluster is None or wish.cluster.count == 1:
        return None
    if wish.cluster.count != job.nodes or wish.cluster.number != 0:
        raise BadRequest(
            f"machine {wish.cluster.number + 1} of {wish.cluster.count} is here, and the job has {job.nodes} "
            "nodes: it has to continue on the nodes to which its machines were brought"
        )
    wanted: dict[str, object] = {
        "instances": [asdict(each) for each in wrapped.instances],
        "data": wrapped.data,
        "addresses": wish.cluster.addresses,
        "keys": [wish.cluster.private_key, wish.cluster.public_key],
        "options": options.text,
        "token": token,
        "folder": os.getcwd(),
        "node": os.uname().nodename,
    }
    argv = [*job.others_step, OWN_PROGRAM, MEMBER]
    rate = options.network_rate_bytes_per_s
    return OtherMachines(machine, argv, wish.cluster.names, wanted, keeping, rate)


def tidy(key: str, site: MachineSite) -> int:
    """What the epilog asks for when a run of a job is over, whatever has ended it: no machine of it runs on,
    and nothing is left of one that is not to go on."""
    is_own = False
    for machine in _both(key, site):
        if os.path.exists(f"{machine.folder}/{HOLDS}"):
            from cachemgr.machines.batch.steps.holding import tidy_held

            tidy_held(machine)
        else:
            end_machine(machine, but=(states.SUSPENDED, states.MOVED))
            is_own = True
    if is_own and not _both(key, site):
        # Who was killed could not do it; and the epilog's HOME is not the user's.
        home = pwd.getpwuid(os.getuid()).pw_dir
        mark = SavedMark(home_of_marks({**os.environ, "HOME": home}), key)
        if not mark.elsewhere(""):
            mark.remove_rest()
    return 0


def discard(key: str, site: MachineSite) -> int:
    """Remove all that is left of a job that is gone, its saved machine, too."""
    for machine in _both(key, site):
        end_machine(machine)
        with suppress(CacheError, OSError):
            remove_arrivals(machine)
            os.rmdir(machine.folder)
    remove_orders(folder_of_user(os.environ), key)
    mark = SavedMark(home_of_marks(os.environ), key)
    mark.remove()
    mark.remove_rest()
    mark.take_end()
    return FAILED_STATUS if _both(key, site) else 0


def _both(key: str, site: MachineSite) -> list[Machine]:
    """The folders of a job's machine that are there."""
    folders = folders_of_machine(folder_of_user(os.environ), key)
    return [Machine(folder, site) for folder in folders if os.path.isdir(folder)]


def move(name: str, key: str, site: MachineSite) -> int:
    """A step of a machine's way to another node. Where it is then is noted in its user's home, before
    it can go on there: the node that it left would begin the job anew otherwise."""
    try:
        wanted = read_wanted(sys.stdin.read())
        machine = Machine(_folder(key), site)
        make_private(os.path.dirname(machine.folder))
        done = step(machine, name, wanted)
    except CacheError as error:
        _say(str(error))
        return error.exit_code
    if done["state"] in (GIVEN, TAKEN) and _is_first(machine):
        place = str(wanted["place"]) if done["state"] == GIVEN else machine.place
        SavedMark(home_of_marks(os.environ), key).write(place)
    if done["state"] == DROPPED:
        with suppress(OSError):
            os.unlink(f"{machine.folder}/{BUSY}")
        with suppress(OSError):
            os.rmdir(machine.folder)
    print(json.dumps(done))  # noqa: T201 - what the daemon reads
    return 0


def _is_first(machine: Machine) -> bool:
    """Whether it is the machine with which its job begins: of several that of the job's first node."""
    place = read_record(machine.site.disk, machine.folder).wish.cluster
    return place is None or place.number == 0


def _moved_to(machine: Machine) -> str:
    """Where the machine is that was given away from here; empty if none was."""
    if not has_record(machine.site.disk, machine.folder):
        return ""
    record = read_record(machine.site.disk, machine.folder)
    return record.moving_to if record.state == states.MOVED else ""


def _forget_holder(machine: Machine, job: BatchJob, mark: SavedMark) -> None:
    """A machine that went to a holder job which is gone, and has left no word of its end, is lost: the job
    begins anew, as any whose node died."""
    holder = mark.holder()
    if holder and job.is_gone(holder):
        mark.remove()
        if _moved_to(machine):
            machine.remove()


def _remove_forgotten(machine: Machine, job: BatchJob) -> None:
    """Machines of jobs that were cancelled while they were suspended: nobody has told their node."""
    known = job.others()
    if known is None:
        return
    above = os.path.dirname(machine.folder)
    for name in sorted(os.listdir(above)):
        if name.startswith(FOLDER_PREFIX) and name[len(FOLDER_PREFIX) :] not in known:
            end_machine(Machine(f"{above}/{name}", machine.site))


def make_private(folder: str) -> None:
    """A folder in a place where everybody may make one: it has to be this user's alone."""
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise NotAllowed(f"{folder} is not a folder of yours alone: remove it, or tell an administrator")


def _folder(key: str) -> str:
    return folder_of_machine(folder_of_user(os.environ), key)


def _key(text: str) -> str:
    """A job as its user calls it, as its folder is called."""
    key = text.replace(".", "-")
    if KEY.fullmatch(key) is None:
        raise BadRequest(f"{text[:40]!r} is not a job's number")
    return key


def _wish(
    job: BatchJob,
    options: WrapperOptions,
    wrapped: WrappedScript,
    images: JobImages,
    arguments: Sequence[str],
    environment: Mapping[str, str],
) -> MachineWish:
    check_room(options.scratch)
    boot: BootFiles = boot_files(options.boot, job.kernels)
    has_network = job.nodes > 1 or options.is_interactive or options.roles > 0
    folder, first, image = os.getcwd(), wrapped.instances[0], images.root
    variables = sorted(
        (name, value) for name, value in environment.items() if NOT_FOR_GUESTS.fullmatch(name) is None
    )
    if job.nodes > 1:
        variables = [(name, value) for name, value in variables if NODES.fullmatch(name) is None]
    own = tuple(sorted(filter(None, {_below(folder, number) for number in (1, 2)})))
    return MachineWish(
        name=f"job-{job.key}",
        memory_bytes=first.memory_bytes,
        cpus=first.cpus or job.cpus,
        disks=(
            MachineDisk(ROOT, path=image.path, format=image.format, digest=image.digest or None),
            *options.scratch,
            *images.disks,
        ),
        disk_rate_bytes_per_s=options.disk_rate_bytes_per_s,
        kernel=boot.kernel,
        initrd=boot.initrd,
        append=boot.append,
        job=MachineJob(
            script=INTERACTIVE if options.is_interactive else wrapped.text,
            arguments=tuple(arguments),
            environment=tuple(variables),
            folder=folder,
            left_out=own,
            waits=job.nodes > 1,
            data=wrapped.data,
        ),
        context=first.context(folder),
        cluster=first_place([each.name for each in wrapped.instances], os.path.dirname(_folder(job.key)))
        if has_network
        else None,
    )


def _below(folder: str, number: int) -> str:
    """The file behind this process' output, if it is in that folder: by its path from there."""
    with suppress(OSError):
        path = os.readlink(f"/proc/self/fd/{number}")
        inside = os.path.relpath(path, os.path.realpath(folder))
        if path.startswith("/") and os.path.isfile(path) and not inside.startswith(".."):
            return inside
    return ""


def _read(path: str) -> str:
    """The script, with the lines that the submit filter has put above it."""
    with open(path, "rb") as file:
        data = file.read(MOST_SCRIPT_BYTES + 1)
    if len(data) > MOST_SCRIPT_BYTES:
        raise BadRequest(f"the script has more than {MOST_SCRIPT_BYTES} bytes")
    return data.decode(errors="replace")


def _given_back(job: BatchJob, site: MachineSite, caught: CaughtSignals) -> int:
    """Back to the queue, held. If that cannot be said, the service or an administrator does it."""
    for _ in range(TRIES):
        if job.give_back():
            return 0 if job.ends_well else SUSPENDED_STATUS
        site.clock.sleep(PAUSE_S)
        if caught.next() in ENDING:
            break
    return SUSPENDED_STATUS


def _say(words: str) -> None:
    print(f"outrider: {' '.join(words.split())}", file=sys.stderr)  # noqa: T201 - a program's word


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
