"""One of the other machines of a job: its keeper on its node, which the first machine's keeper has begun.

    machine member

What is to be done comes on standard input, what has come of it goes to standard output. When the first
machine's keeper is gone, this one ends its machine and itself.
"""

from __future__ import annotations

import os
import signal

from cachemgr.base.errors import BadRequest, CacheError
from cachemgr.machines import states
from cachemgr.machines.batch.bootfiles import boot_files
from cachemgr.machines.batch.image import base_image
from cachemgr.machines.batch.leading import END, LOST, READY
from cachemgr.machines.batch.lines import LinesIn, write_line
from cachemgr.machines.batch.options import read_options
from cachemgr.machines.batch.removal import end_machine
from cachemgr.machines.guest import channel
from cachemgr.machines.network.place import ClusterPlace
from cachemgr.machines.network.switch import SwitchPlan, SwitchProcess
from cachemgr.machines.running import CaughtSignals, JobOutput
from cachemgr.machines.wish import MachineDisk, MachineJob, MachineWish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from cachemgr.machines.batch.options import WrapperOptions
    from cachemgr.machines.batch.system import BatchJob
    from cachemgr.machines.machine import Machine

TOLD_S = 60.0
LOOK_S = 0.1
LOOKS_AT_QEMU = 10
ENDING_S = 20.0
"""So long after TERM the first machine's keeper may still end its own."""
WAITS = "trap 'exit 0' TERM\nwhile :; do sleep 3600 & wait $!; done\n"
SCRIPT = f"#!/bin/sh\n{WAITS}"
"""There for the first machine's script, until that ends."""
INTERACTIVE = "#!/bin/sh\necho ready: outrider ssh $SLURM_JOB_ID\n" + WAITS
"""There for the job's user."""


def member(machine: Machine, job: BatchJob, environment: Mapping[str, str]) -> int:
    """Keep the machine until it is to end; 0 if it was there until then."""
    commands, caught = LinesIn(0), CaughtSignals()
    number = job.member
    try:
        wanted = _told(commands)
        first = environment.get("SLURM_LAUNCH_NODE_IPADDR") or str(wanted["node"])
        options = read_options(str(wanted["options"]))
        wish = _wish(machine, job, options, wanted, environment)
        machine.make_folder()
        switch = SwitchProcess(
            SwitchPlan(
                folder=machine.folder,
                key=bytes.fromhex(str(wanted["key"])),
                number=number,
                count=_whole(wanted, "count"),
                first=(first, _whole(wanted, "port")),
                rate_bytes_per_s=options.network_rate_bytes_per_s,
            ),
            machine.site.clock,
        )
    except (CacheError, OSError, ValueError) as error:
        return _lost(number, str(error))
    try:
        machine.start(wish)
        return _kept(machine, commands, caught, number)
    except (CacheError, OSError) as error:
        return _lost(number, str(error))
    finally:
        end_machine(machine, but=(states.SUSPENDED, states.MOVED))
        switch.close()


def _told(commands: LinesIn) -> dict[str, object]:
    found = commands.read(TOLD_S)
    if not found:
        raise CacheError("the keeper of the first machine says nothing")
    return found[0]


def _kept(machine: Machine, commands: LinesIn, caught: CaughtSignals, number: int) -> int:
    output, clock = JobOutput(machine, fds=(2, 2)), machine.site.clock
    is_ready, looks, until_s = False, 0, None
    while True:
        output.pass_on()
        if any(each.get("verb") == END for each in commands.read(LOOK_S)) or commands.is_closed:
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
    machine: Machine,
    job: BatchJob,
    options: WrapperOptions,
    wanted: Mapping[str, object],
    environment: Mapping[str, str],
) -> MachineWish:
    folder = str(wanted["folder"])
    if os.path.realpath(os.getcwd()) != os.path.realpath(folder):
        raise BadRequest(
            f"the job's working folder {folder} is not there on this node: all nodes have to have it"
        )
    image = base_image(machine.site.disk, environment.get("OUTRIDER_IMAGE", ""))
    boot = boot_files(options.boot)
    place = ClusterPlace(
        job.member, _texts(wanted, "names"), _texts(wanted, "addresses"), *_texts(wanted, "keys")
    )
    return MachineWish(
        name=f"job-{job.key}-{place.name}",
        memory_bytes=options.memory_bytes,
        cpus=job.cpus,
        disks=(
            MachineDisk("root", path=image.path, format=image.format, digest=image.digest or None),
            *options.scratch,
        ),
        disk_rate_bytes_per_s=options.disk_rate_bytes_per_s,
        kernel=boot.kernel,
        initrd=boot.initrd,
        append=boot.append,
        cluster=place,
        job=MachineJob(script=SCRIPT, folder=folder, brings_back=False),
    )


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
