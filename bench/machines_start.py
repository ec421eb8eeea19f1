"""A part of `machines`: how long a job's machine takes to start, beside QEMU alone with its command line."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Protocol

from cachemgr.base.clock import SystemClock
from cachemgr.base.disk import RealDisk
from cachemgr.machines.keeper import PROGRAM
from cachemgr.machines.machine import Machine
from cachemgr.machines.qemu import process
from cachemgr.machines.qemu.accelerator import FACTS, find_facts
from cachemgr.machines.qemu.memory import make_memory
from cachemgr.machines.record import FILE
from cachemgr.machines.wish import MIB
from outrider.cli.installing.common.pyz import pack

if TYPE_CHECKING:
    from cachemgr.machines.keeper import MachineSite
    from cachemgr.machines.wish import MachineWish

DISK_BYTES = 1 << 20
WRAPPER = Path(__file__).parents[1] / "prolog/machine"
INSTALLED = "/usr/lib/outrider/cachemgr.pyz"
MACHINES = Path("/var/tmp")
FIRST_JOB = 4_294_900_000
"""No batch system counts so far."""
READY_S, LOOK_S = 60.0, 0.001


class StartedMachines(Protocol):
    """Where machines are started."""

    folder: Path
    site: MachineSite

    def machine(self, name: str) -> Machine: ...

    def drop(self, *machines: Machine) -> None: ...


@contextmanager
def facts_of_root() -> Iterator[None]:
    """What a node's daemon finds out once for all jobs; afterwards it is as it was."""
    folder = Path(FACTS).parent
    was_there, had_facts = folder.exists(), Path(FACTS).exists()
    folder.mkdir(parents=True, exist_ok=True)
    find_facts(PROGRAM, SystemClock(), RealDisk())
    try:
        yield
    finally:
        if not had_facts:
            Path(FACTS).unlink(missing_ok=True)
        if not was_there:
            with suppress(OSError):
                folder.rmdir()


def started(bench: StartedMachines, wish: MachineWish, rounds: int) -> tuple[float, float, float, float]:
    """Milliseconds: from a job's program to a machine that runs, what of that the program has had of
    processors, of the engine's start alone, and of QEMU alone with the engine's command line, up to its
    monitor's greeting. One after the other in each round, so that what else the machine does meanwhile
    falls on all alike."""
    whole, own, engine, plain = [], [], [], []
    program = _program(bench.folder)
    for number in range(rounds):
        begun_s, own_s = _program_start(bench, program, wish, number)
        whole.append(begun_s)
        own.append(own_s)
        machine = bench.machine("start")
        begun_s = perf_counter()
        machine.start(wish)
        engine.append(perf_counter() - begun_s)
        (pid,) = process.holders(f"{machine.folder}/lock")
        argv = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[:-1]
        bench.drop(machine)
        with closing(make_memory(wish.memory_bytes)) as memory:
            plain.append(_plain_start(bench.folder, argv, memory.fd))
    return median(whole) * 1000, median(own) * 1000, median(engine) * 1000, median(plain) * 1000


def _program(folder: Path) -> Path:
    """The interpreter of a job's script as it is on nodes, with the node side packed into one file."""
    packed, program = folder / "cachemgr.pyz", folder / "machine"
    pack(packed, bytecode_of="/usr/bin/python3")
    program.write_text(WRAPPER.read_text().replace(INSTALLED, str(packed)))
    program.chmod(0o755)
    return program


def _program_start(
    bench: StartedMachines, program: Path, wish: MachineWish, number: int
) -> tuple[float, float]:
    """Seconds from the job's program until its guest is about to run, and its own of a processor. It asks no
    batch system on its way."""
    place, key = bench.folder / f"job{number}", FIRST_JOB + os.getpid() * 10 % 60_000 + number
    place.mkdir()
    script = bench.folder / "script"
    script.write_text("#!/bin/sh\ntrue\n")
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": str(bench.folder), "JOB_ID": str(key), "SGE_TASK_ID": "undefined",
        "OUTRIDER_IMAGE": str(wish.disks[0].path),
    }  # fmt: skip
    machine = Machine(str(MACHINES / f"outrider-{os.geteuid()}" / f"job-{key}"), bench.site)
    argv = [str(program), f"run=vm,memory={wish.memory_bytes // MIB}", str(script)]
    begun_s = perf_counter()
    job = subprocess.Popen(
        argv, cwd=place, env=environment, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        record = Path(machine.folder) / FILE
        while not _runs(record):
            if job.poll() is not None or perf_counter() - begun_s > READY_S:
                raise RuntimeError(f"the job's program has ended: {job.stderr and job.stderr.read()!r}")
            sleep(LOOK_S)
        return perf_counter() - begun_s, _own_processor_s(job.pid)
    finally:
        # With whoever would begin a keeper again that is killed.
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        bench.drop(machine)
        with suppress(OSError):
            (MACHINES / f"outrider-{os.geteuid()}").rmdir()


def _own_processor_s(group: int) -> float:
    """What the program and its keeper have had so far, without QEMU."""
    nanoseconds = 0
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):
            name, _, rest = (path / "stat").read_text().partition("(")[2].rpartition(")")
            if int(rest.split()[2]) == group and not name.startswith("qemu"):
                nanoseconds += int((path / "schedstat").read_text().split()[0])
    return nanoseconds / 1e9


def _runs(record: Path) -> bool:
    with suppress(FileNotFoundError):
        return '"state": "running"' in record.read_text()
    return False


def _plain_start(folder: Path, argv: list[str], memory: int) -> float:
    """The same devices on a layer and memory that are there; its sockets are replaced by one that QEMU
    makes."""
    line = [each for each in argv if not each.startswith("socket,id=console")]
    path = folder / "plain.sock"
    layer = folder / "plain.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", layer, str(DISK_BYTES)], check=True)
    for number, each in enumerate(line):
        if each.startswith("socket,id=monitor"):
            line[number] = f"socket,id=monitor,path={path},server=on,wait=off"
        line[number] = line[number].replace(f"{folder}/start/root.1.qcow2", str(layer))
        line[number] = re.sub("/proc/self/fd/[0-9]+", f"/proc/self/fd/{memory}", line[number])
    at = line.index("-serial")
    del line[at : at + 2]
    del line[line.index("-chardev", line.index("-chardev") + 1)]
    begun_s = perf_counter()
    qemu = subprocess.Popen(line, pass_fds=[memory])
    try:
        while qemu.poll() is None:
            with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
                connection.connect(str(path))
                if connection.recv(4096):
                    return perf_counter() - begun_s
            sleep(0.001)
        raise RuntimeError("QEMU alone does not start with the engine's command line")
    finally:
        qemu.kill()
        qemu.wait()
        path.unlink(missing_ok=True)
