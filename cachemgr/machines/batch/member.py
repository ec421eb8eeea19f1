"""One of the other machines of a job: its keeper on its node, which the first machine's keeper has begun.

    machine member

What is to be done comes on standard input, what has come of it goes to standard output. When the first
machine's keeper is gone for good, this one ends its machine and itself. If this one is killed, the next
(`running.kept`) finds the machine as it is, and has itself told again what to do with it.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import BadRequest, CacheError, NotInPool
from cachemgr.machines import states
from cachemgr.machines.batch.bootfiles import boot_files
from cachemgr.machines.batch.image import ROOT, job_images
from cachemgr.machines.batch.leading import (
    AGAIN,
    AGREE_S,
    CONTINUE,
    END,
    FAILED,
    GO_ON,
    LOADED,
    LOST,
    READY,
    SAVED,
    SUSPEND,
)
from cachemgr.machines.batch.options import JobInstance, read_options
from cachemgr.machines.batch.remains import continued, end_machine
from cachemgr.machines.batch.steps.left import LeftFiles, leave
from cachemgr.machines.batch.steps.lines import LinesIn, write_line
from cachemgr.machines.guest import channel
from cachemgr.machines.guest.readiness import Readiness
from cachemgr.machines.network.place import ClusterPlace
from cachemgr.machines.network.switch import SwitchPlan, SwitchProcess
from cachemgr.machines.record import has_record, read_record
from cachemgr.machines.running import JobOutput
from cachemgr.machines.troubles import check_room
from cachemgr.machines.wish import MachineDisk, MachineJob, MachineWish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.machines.batch.image import JobImages
    from cachemgr.machines.batch.options import WrapperOptions
    from cachemgr.machines.batch.system import BatchJob
    from cachemgr.machines.machine import Machine
    from cachemgr.machines.running import CaughtSignals, Keeping

TOLD_S = 60.0
LOOK_S = 0.1
LOOKS_AT_QEMU = 10
ENDING_S = 20.0
"""So long after TERM the first machine's keeper may still end its own."""
WAITS = "trap 'exit 0' TERM\nwhile :; do sleep 3600 & wait $!; done\n"
SCRIPT = f"#!/bin/sh\n{WAITS}"
"""There for the first machine's script, until that ends."""
INTERACTIVE = "#!/bin/sh\necho ready: outrider ssh ${SLURM_JOB_ID:-${JOB_ID:-$OUTRIDER_JOB}}\n" + WAITS
"""There for the job's user."""


def member(machine: Machine, job: BatchJob, environment: Mapping[str, str], keeping: Keeping) -> int:
    """Keep the machine until it is to end; 0 if it was there until then."""
    commands, caught, left = LinesIn(0), keeping.caught, LeftFiles(keeping.left)
    number = job.member
    if not keeping.is_first:
        write_line(1, {"instance": number, "state": AGAIN})
    try:
        wanted = left.given or _told(commands)
        first = environment.get("SLURM_LAUNCH_NODE_IPADDR") or str(wanted["node"])
        options = read_options(str(wanted["options"]))
        token = str(wanted["token"])
        number = _number_of_saved(machine, number) if token else number
        path, own = environment.get("OUTRIDER_IMAGE", ""), _instance(wanted, number)
        images = job_images(machine.site.disk, job.key, path, own.image, _texts(wanted, "data"))
        has_begun = bool(left) and _has_begun(machine, token)
        if token and not has_begun:
            _check_saved(machine, job, images, token, number)
        elif not left:
            # What there is was left by an earlier run, whose others are gone.
            end_machine(machine)
            check_room(options.scratch)
        wish = _wish(job, options, images, wanted, number)
        machine.make_folder()
        switch = SwitchProcess(
            SwitchPlan(
                folder=machine.folder,
                key=bytes.fromhex(str(wanted["key"])),
                number=number,
                count=len(_texts(wanted, "names")),
                first=(first, _whole(wanted, "port")),
                rate_bytes_per_s=options.network_rate_bytes_per_s,
            ),
            machine.site.clock,
            left.outside_fd,
        )
    except (CacheError, OSError, ValueError) as error:
        return _lost(number, str(error))
    if not left:
        leave(keeping, wanted, switch)
    try:
        if token and not has_begun:
            machine.resume(agreed=lambda: _agreed(commands, caught, number, token))
        elif not has_begun:
            machine.start(wish)
        return _kept(machine, commands, caught, number, switch)
    except (CacheError, OSError) as error:
        return _lost(number, str(error))
    finally:
        end_machine(machine, but=(states.SUSPENDED, states.MOVED))
        switch.close()


def _has_begun(machine: Machine, token: str) -> bool:
    """Whether a killed keeper had begun the machine, or had it go on."""
    if not has_record(machine.site.disk, machine.folder):
        return False
    with suppress(NotInPool):
        record = machine.status().record
        return record.state != states.SUSPENDED or record.together != token
    return False


def _told(commands: LinesIn) -> dict[str, object]:
    found = commands.read(TOLD_S)
    if not found:
        raise CacheError("the keeper of the first machine says nothing")
    return found[0]


def _number_of_saved(machine: Machine, number: int) -> int:
    """Which of the job's machines is to go on here: each was brought to some node, and the batch system
    numbers nodes by its own order. The first one is never kept by this program."""
    if not has_record(machine.site.disk, machine.folder):
        return number
    place = read_record(machine.site.disk, machine.folder).wish.cluster
    return number if place is None else place.number or number


def _check_saved(machine: Machine, job: BatchJob, images: JobImages, token: str, number: int) -> None:
    """Here is the machine of this number that was suspended with the first one."""
    record = continued(machine, job, images)
    if record is None or record.state != states.SUSPENDED or record.together != token:
        raise NotInPool(
            f"there is no machine here that was suspended with the job's first one, as machine "
            f"{number + 1} of the job: none has gone on; submit the job again"
        )
    place = record.wish.cluster
    if place is None or place.number != number:
        raise BadRequest(f"{record.name} is here, and not machine {number + 1} of the job")


def _agreed(commands: LinesIn, caught: CaughtSignals, number: int, token: str) -> None:
    """All others are so far that they can go on, too."""
    said: dict[str, object] = {"instance": number, "state": LOADED, "token": token}
    write_line(1, said)
    clock = SystemClock()
    until_s = clock.monotonic_s() + AGREE_S
    while clock.monotonic_s() < until_s and not commands.is_closed:
        for each in commands.read(LOOK_S):
            if each.get("verb") == GO_ON and each.get("token") == token:
                return
            if each.get("verb") == CONTINUE:
                write_line(1, said)
            if each.get("verb") == END:
                raise CacheError("the job's other machines do not go on")
        if caught.next() in (signal.SIGTERM, signal.SIGINT):
            break
    raise CacheError("the job's other machines were not ready to go on")


def _suspended(machine: Machine, number: int, token: str) -> None:
    said: dict[str, object] = {"instance": number, "token": token}
    try:
        machine.suspend(token)
        write_line(1, {**said, "state": SAVED})
    except (CacheError, OSError) as error:
        write_line(1, {**said, "state": FAILED, "reason": f"{os.uname().nodename}: {error}"})


def _kept(
    machine: Machine, commands: LinesIn, caught: CaughtSignals, number: int, switch: SwitchProcess
) -> int:
    output, clock = JobOutput(machine, fds=(2, 2)), machine.site.clock
    is_ready, looks, until_s = False, 0, None
    readiness, record = Readiness(machine), machine.status().record
    while True:
        output.pass_on()
        switch.keep()
        readiness.tell(record.wish, record.state)
        for each in commands.read(LOOK_S):
            if each.get("verb") == END:
                return 0
            if each.get("verb") == SUSPEND:
                _suspended(machine, number, str(each["token"]))
                record = machine.status().record
            elif each.get("verb") == CONTINUE:
                # Another could not be saved, or the first one was not to be; or its keeper was killed.
                record = machine.resume().record
                is_ready = False
        if commands.is_closed:
            return 0
        if caught.next() in (signal.SIGTERM, signal.SIGINT) and until_s is None:
            until_s = clock.monotonic_s() + ENDING_S
        if until_s is not None and clock.monotonic_s() >= until_s:
            return 0
        if not is_ready and channel.has_said(machine.site.disk, machine.folder, "began"):
            write_line(1, {"instance": number, "state": READY})
            is_ready = True
        looks += 1
        has_ended = channel.exit_status(machine.site.disk, machine.folder) is not None
        if has_ended or looks % LOOKS_AT_QEMU == 0:
            record = machine.status().record
            if record.state in states.OVER:
                output.pass_on()
                return _lost(number, f"machine {record.name} is {record.state} ({record.reason})")


def _lost(number: int, why: str) -> int:
    write_line(1, {"instance": number, "state": LOST, "reason": f"{os.uname().nodename}: {why}"})
    return 1


def _wish(
    job: BatchJob,
    options: WrapperOptions,
    images: JobImages,
    wanted: Mapping[str, object],
    number: int,
) -> MachineWish:
    folder, own, image = str(wanted["folder"]), _instance(wanted, number), images.root
    if os.path.realpath(os.getcwd()) != os.path.realpath(folder):
        raise BadRequest(
            f"the job's working folder {folder} is not there on this node: all nodes have to have it"
        )
    boot = boot_files(options.boot)
    place = ClusterPlace(
        number, _texts(wanted, "names"), _texts(wanted, "addresses"), *_texts(wanted, "keys")
    )
    return MachineWish(
        name=f"job-{job.key}-{place.name}",
        memory_bytes=own.memory_bytes,
        cpus=own.cpus or job.cpus,
        disks=(
            MachineDisk(ROOT, path=image.path, format=image.format, digest=image.digest or None),
            *options.scratch,
            *images.disks,
        ),
        disk_rate_bytes_per_s=options.disk_rate_bytes_per_s,
        kernel=boot.kernel,
        initrd=boot.initrd,
        append=boot.append,
        context=own.context(folder),
        cluster=place,
        job=MachineJob(script=SCRIPT, folder=folder, brings_back=False, data=_texts(wanted, "data")),
    )


def _instance(wanted: Mapping[str, object], number: int) -> JobInstance:
    found = wanted["instances"]
    if not isinstance(found, list) or number >= len(found):
        raise BadRequest(f"there is no machine {number + 1} among those of the job")
    return JobInstance(**found[number])


def _texts(wanted: Mapping[str, object], key: str) -> tuple[str, ...]:
    found = wanted[key]
    if not isinstance(found, list):
        raise BadRequest(f"{key} are no list")
    return tuple(map(str, found))


def _whole(wanted: Mapping[str, object], key: str) -> int:
    found = wanted[key]
    if not isinstance(found, int):
        raise BadRequest(f"{key} is no number")
    return found
