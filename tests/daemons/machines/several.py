"""A job of several machines beside a stand-in for its batch system: each node is a folder of this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from cachemgr.machines.qemu.process import LOCK, holders
from testbed.linux_guest import LinuxGuest, append
from tests.daemons.machines.engine import PYTHON, UID, WAIT_S, Engine, wait_until
from tests.daemons.machines.test_batch_jobs import PROGRAM, StandIn
from tests.repository import ROOT

KEY = "7"
PORT = 7000
# The others have a script of the job's own, too, in the place of one that waits.
OWN_SCRIPT = """
import cachemgr.machines.batch.member as others
import sys
from cachemgr.machines.batch.bootfiles import BootFiles
others.SCRIPT = "#!/bin/sh\\nsh ./other.sh\\n"
others.boot_files = lambda name: BootFiles(*sys.argv[2:5])
"""
# As srun: what comes in goes to all, what they say comes out line by line; its end is theirs, and if one
# fails, all end.
STEP = """
import json, os, select, signal, subprocess, sys
begun = []
signal.signal(signal.SIGTERM, lambda *_: [each.send_signal(signal.SIGTERM) for each in begun])
for number, argv in enumerate(json.loads(os.environ["OTHERS"])):
    place = {"SLURM_STEP_ID": "0", "SLURM_PROCID": str(number)}
    begun.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  env={**os.environ, **place}))
sources = {each.stdout.fileno(): each for each in begun}
waits = [0, *sources]
while sources:
    for fd in select.select(waits, [], [])[0]:
        data = os.read(fd, 65536)
        if fd == 0:
            for each in begun:
                try:
                    each.stdin.write(data), each.stdin.flush()
                    data or each.stdin.close()
                except OSError:
                    pass
        else:
            os.write(1, data)
        if not data:
            waits.remove(fd)
            if fd and sources.pop(fd).wait():
                for each in sources.values():
                    each.terminate()
sys.exit(max(each.wait() for each in begun))
"""
# Connections that last: each machine adds 1 to what comes and passes it on; the first counts rounds aloud.
OTHER = f"""number=$(uname -n | tr -d vm)
next=vm$((number % COUNT + 1))
sleep 100000 | nc -l -p {PORT} | while read -r value; do echo $((value + 1)); done |
    until nc "$next" {PORT} 2>/dev/null; do sleep 0.2; done
"""
FIRST = f"""#!machine run=vm
#!/bin/sh
mkfifo /tmp/in
sleep 100000 | nc -l -p {PORT} >/tmp/in &
exec 7</tmp/in
{{
    echo 1
    while read -r value <&7; do
        echo "$value" >&2
        [ "$value" -lt LAST ] || break
        echo $((value + 1))
        sleep 0.05
    done
}} | until nc vm2 {PORT} 2>/dev/null; do sleep 0.2; done
echo over
"""


class SeveralMachines(StandIn):
    """A job of so many machines whose program goes around them until it has counted to `last`."""

    options = "run=vm,memory=96,boot=test"

    def __init__(self, engine: Engine, linux: LinuxGuest, count: int, last: int) -> None:
        super().__init__(engine, linux)
        self.count, self.last = count, last
        self.nodes = [self._node(f"n{number}") for number in range(1, count + 1)]
        (self.work / "other.sh").write_text(OTHER.replace("COUNT", str(count)))
        self.script.write_text(FIRST.replace("LAST", str(last)))
        for name, text in (("srun", f"#!{sys.executable if os.geteuid() else PYTHON}\n{STEP}"),):
            path = self.programs / name
            path.write_text(text)
            path.chmod(0o755)

    def _node(self, name: str) -> Path:
        folder = self.engine.machines / name
        folder.mkdir()
        folder.chmod(0o1777)
        return folder

    def program(self, node: Path, *arguments: str) -> list[str]:
        files = (str(node), str(self.linux.kernel), str(self.linux.initrd), append())
        return [PYTHON, "-c", OWN_SCRIPT + PROGRAM, *files, *arguments]

    def start(self) -> subprocess.Popen[bytes]:
        import json

        others = [self.program(node, "member") for node in self.nodes[1:]]
        environment = {
            "PATH": f"{self.programs}:/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(self.home),
            "PYTHONDONTWRITEBYTECODE": "1", "OUTRIDER_IMAGE": str(self.image), "SLURM_JOB_ID": KEY,
            "SLURM_CPUS_ON_NODE": "1", "SLURM_RESTART_COUNT": str(self.starts),
            "SLURM_JOB_NUM_NODES": str(self.count), "OTHERS": json.dumps(others),
        }  # fmt: skip
        self.starts += 1
        return self._begun(self.program(self.nodes[0], self.options, str(self.script)), environment)

    def _begun(self, argv: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        user = {"user": UID, "group": UID, "extra_groups": []} if os.geteuid() == 0 else {}
        with self.output.open("ab") as output:
            begun: subprocess.Popen[bytes] = subprocess.Popen(
                argv, env=environment, cwd=self.work, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True, **user,  # type: ignore[call-overload]
            )  # fmt: skip
        return begun

    def over(self, process: subprocess.Popen[bytes]) -> int:
        """The end of a run, as the batch system sees to it: no process is left, and the epilog has run."""
        status = process.wait(WAIT_S)
        wait_until(lambda: not self.keepers(), self.keepers)
        for node in self.nodes:
            self._begun(self.program(node, "tidy", KEY), {
                "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1",
            }).wait(WAIT_S)  # fmt: skip
        return status

    def keepers(self) -> list[int]:
        """The processes that keep the other machines."""
        line = ["pgrep", "-u", str(UID), "-f", f"{self.engine.machines}/n[0-9]* .* member$"]
        found = subprocess.run(line, capture_output=True, text=True, timeout=WAIT_S, check=False)
        return [int(word) for word in found.stdout.split()]

    def begun_again(self, process: int) -> list[int]:
        """The keepers of the job's machines that are begun again if they are killed, the first one's at
        first: those below the one process that the batch system has begun on each node."""
        outer = [process, *(pid for pid in self.keepers() if _parent(pid) not in self.keepers())]
        return [below for pid in outer for below in self.switches(pid)[:1]]

    def switches(self, keeper: int) -> list[int]:
        """What a keeper has forked and not begun as another program; nothing if it is gone meanwhile."""
        with suppress(OSError):
            words = Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()
            own = Path(f"/proc/{keeper}/cmdline").read_bytes()
            return [int(word) for word in words if Path(f"/proc/{word}/cmdline").read_bytes() == own]
        return []

    def at(self, node: Path) -> Path:
        return node / f"outrider-{UID}" / f"job-{KEY}"

    def qemus(self) -> list[list[int]]:
        """Of each node the processes that run a machine."""
        return [holders(str(self.at(node) / LOCK)) for node in self.nodes]

    def left(self) -> list[str]:
        return sorted(str(path) for node in self.nodes for path in node.glob("outrider-*/job-*"))

    def apart_s(self, name: str) -> float:
        """How long after the first of the machines the last one's file of that name was made: the memory's
        when the guest has stopped, the record when it is about to run."""
        paths = [str(path) for node in self.nodes for path in self.at(node).glob(name)]
        found = subprocess.run(
            ["stat", "--format=%.W", *paths], capture_output=True, text=True, timeout=WAIT_S, check=True
        )
        born_s = [float(line) for line in found.stdout.split()]
        assert len(born_s) == self.count
        return max(born_s) - min(born_s)

    def numbers(self) -> list[int]:
        return [int(line) for line in self.output.read_text().splitlines() if line.isdigit()]

    def wait_until_beyond(self, number: int, since: int = 0) -> None:
        def is_so() -> bool:
            return any(found > number for found in self.numbers()[since:])

        wait_until(is_so, lambda: self.output.read_text()[-2000:])

    def suspended(self, process: subprocess.Popen[bytes]) -> int:
        process.send_signal(signal.SIGUSR1)
        return self.over(process)


def _parent(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
