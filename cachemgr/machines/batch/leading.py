"""Several machines of one job, seen from the first: it has the others begun, waits for them, and ends them.

The others are kept by programs that the batch system begins on the job's other nodes, in one step of the job
(`member.py`). What is said between the two goes through that step's standard input and output. If a machine
is lost, the job is over: its others cannot replace it.

All are suspended, or none: each of the others writes down that it is suspended, with a token made for this
one time, before the first one does; until then all can go on again. When they go on, all have read their
memory before the first one writes down that it runs, and only then do the others run. So of machines that are
suspended with one token none has run since, and none goes on beside one that has another.
"""

from __future__ import annotations

import secrets
import subprocess
import sys
import tempfile
from contextlib import suppress

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, CacheError, Unsuitable
from cachemgr.machines.batch.steps.lines import LinesIn, write_line
from cachemgr.machines.guest import channel
from cachemgr.machines.network.frames import KEY_BYTES
from cachemgr.machines.network.place import MOST_INSTANCES, places
from cachemgr.machines.network.switch import SwitchPlan, SwitchProcess
from cachemgr.machines.running import Companions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.machines.keeper import MachineStatus
    from cachemgr.machines.machine import Machine
    from cachemgr.machines.network.place import ClusterPlace

MEMBER = "member"
END_S = 15.0
"""So long the others have to end."""
READY, LOST, END = "ready", "lost", "end"
SUSPEND, SAVED, FAILED, CONTINUE = "suspend", "saved", "failed", "continue"
LOADED, GO_ON = "loaded", "go-on"
AGREE_S = 900.0
"""So long the others have to save their machines, or to read them again."""
LOOK_S = 0.2
TOKEN_BYTES = 16
KEYS_S = 20
MOST_KEY_BYTES = 65_536
MOST_REASON = 300


def first_place(names: Sequence[str], folder: str) -> ClusterPlace:
    """That of the first machine of a job. The keys are made in a folder that is this user's alone."""
    if len(names) > MOST_INSTANCES:
        raise BadRequest(
            f"a job has at most {MOST_INSTANCES} machines, not {len(names)}: ask for fewer nodes"
        )
    return places(names, _made_keys(folder))[0]


def _made_keys(folder: str) -> tuple[str, str]:
    """A pair of keys for ssh, private and public, of which nothing stays in the folder."""
    with tempfile.TemporaryDirectory(prefix="key-", dir=folder) as inside:
        argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "outrider", "-f", f"{inside}/key"]
        try:
            done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=KEYS_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise Unsuitable(
                "ssh-keygen, which makes the keys of the job's machines, cannot be run on this node: "
                f"install openssh-client ({error})"
            ) from error
        if done.returncode != 0:
            raise CacheError(f"ssh-keygen: {done.stderr.decode(errors='replace')[-200:]}")
        found = [RealDisk().read(f"{inside}/{name}", MOST_KEY_BYTES).decode() for name in ("key", "key.pub")]
    return found[0], found[1]


class OtherMachines(Companions):
    """The other machines of a job, as the first one's keeper deals with them."""

    def __init__(
        self,
        machine: Machine,
        argv: Sequence[str],
        names: Sequence[str],
        wanted: dict[str, object],
        rate_bytes_per_s: int | None = None,
    ) -> None:
        machine.make_folder()
        self._machine = machine
        key, count = secrets.token_bytes(KEY_BYTES), len(names)
        self._names = names
        self._switch = SwitchProcess(
            SwitchPlan(machine.folder, key, 0, count, rate_bytes_per_s=rate_bytes_per_s), machine.site.clock
        )
        self._others = frozenset(range(1, count))
        self._waited_for = set(self._others)
        self._has_begun = False
        self._loss = ""
        try:
            self._step = subprocess.Popen(list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            self._switch.close()
            raise CacheError(f"{argv[0]} cannot begin the job's other machines: {error.strerror}") from error
        assert self._step.stdin is not None
        assert self._step.stdout is not None
        self._said = LinesIn(self._step.stdout.fileno())
        self._tell({**wanted, "names": names, "key": key.hex(), "port": self._switch.port})

    def look(self, machine: Machine) -> MachineStatus | None:
        self._hear()
        if self._loss:
            print(f"outrider: {' '.join(self._loss.split())}", file=sys.stderr)  # noqa: T201 - a program's word
            return self._machine.stop(0)
        if not self._has_begun and not self._waited_for:
            self._begin()
        return None

    def _begin(self) -> None:
        """Let the script begin, now that the others can be reached."""
        folder, site = self._machine.folder, self._machine.site
        self._has_begun = channel.has_said(site.disk, folder, "began")
        if not self._has_begun and channel.has_said(site.disk, folder, channel.READY):
            self._machine.signal(channel.GO)
            self._has_begun = True

    def suspend(self, machine: Machine) -> MachineStatus:
        token = secrets.token_hex(TOKEN_BYTES)
        self._tell({"verb": SUSPEND, "token": token})
        try:
            return machine.suspend(token, lambda: self._wait_for(SAVED, token))
        except (CacheError, OSError):
            self._tell({"verb": CONTINUE, "token": token})
            raise

    def resume(self, machine: Machine) -> MachineStatus:
        token = machine.status().record.together
        return machine.resume(
            agreed=lambda: self._wait_for(LOADED, token),
            decided=lambda: self._tell({"verb": GO_ON, "token": token}),
        )

    def _wait_for(self, state: str, token: str) -> None:
        """All others have come so far. Raises CacheError once it is known that one does not."""
        clock, left = self._machine.site.clock, set(self._others)
        until_s = clock.monotonic_s() + AGREE_S
        while left:
            for said in self._hear(LOOK_S):
                if said.get("token") == token and said.get("state") == FAILED:
                    raise CacheError(str(said.get("reason"))[:MOST_REASON])
                if said.get("token") == token and said.get("state") == state:
                    left.discard(_number(said))
            if self._loss:
                raise CacheError(self._loss)
            if clock.monotonic_s() >= until_s:
                late = ", ".join(self._names[number] for number in sorted(left))
                raise CacheError(f"not {state} after {AGREE_S:.0f} s: {late}")

    def _hear(self, wait_s: float = 0) -> list[dict[str, object]]:
        """What the others say; who is ready or lost is noted."""
        self._switch.keep()
        found = self._said.read(wait_s)
        for said in found:
            if said.get("state") == READY:
                self._waited_for.discard(_number(said))
            elif said.get("state") == LOST:
                self._loss = self._loss or str(said.get("reason"))[:MOST_REASON]
        if not self._loss and self._step.poll() is not None:
            self._loss = f"the step of the job's other machines has ended ({self._step.returncode})"
        return found

    def _tell(self, plain: dict[str, object]) -> None:
        assert self._step.stdin is not None
        with suppress(BrokenPipeError):
            write_line(self._step.stdin.fileno(), plain)

    def end(self) -> None:
        """End the others, and the network between them."""
        self._tell({"verb": END})
        with suppress(OSError):
            assert self._step.stdin is not None
            self._step.stdin.close()
        try:
            self._step.wait(END_S)
        except subprocess.TimeoutExpired:
            self._step.kill()
            self._step.wait()
        self._switch.close()


def _number(said: dict[str, object]) -> int:
    found = said.get("instance")
    return found if isinstance(found, int) else -1
