"""Several machines of one job, seen from the first: it has the others begun, waits for them, and ends them.

The others are kept by programs that the batch system begins on the job's other nodes, in one step of the job
(`member.py`). What is said between the two goes through that step's standard input and output. If a machine
is lost, the job is over: its others cannot replace it. A keeper that is killed is begun again beside its
machine (`running.kept`). The first one finds the step as it was left, and says again what may not have been
heard; another one has it said again.

All are suspended, or none: each of the others writes down that it is suspended, with a token made for this
one time, before the first one does; until then all can go on again. When they go on, all have read their
memory before the first one writes down that it runs, and only then do the others run. So of machines that are
suspended with one token none has run since, and none goes on beside one that has another.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import replace

from cachemgr.base.disk import RealDisk
from cachemgr.base.errors import BadRequest, CacheError, NotInPool, Unsuitable
from cachemgr.machines import states
from cachemgr.machines.batch.steps.left import LeftFiles, leave
from cachemgr.machines.batch.steps.lines import LinesIn, write_line
from cachemgr.machines.guest import channel
from cachemgr.machines.network.frames import KEY_BYTES
from cachemgr.machines.network.place import MOST_INSTANCES, places
from cachemgr.machines.network.switch import SwitchPlan, SwitchProcess
from cachemgr.machines.running import Companions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cachemgr.machines.keeper import MachineStatus
    from cachemgr.machines.machine import Machine
    from cachemgr.machines.network.place import ClusterPlace
    from cachemgr.machines.running import Keeping
    from cachemgr.machines.wish import MachineWish

MEMBER = "member"
END_S = 15.0
"""So long the others have to end."""
READY, LOST, AGAIN, END = "ready", "lost", "again", "end"
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


def with_keys(wish: MachineWish, left: LeftFiles) -> MachineWish:
    """With the keys that a killed keeper has told the others."""
    private, public = left.keys
    assert wish.cluster is not None
    return replace(wish, cluster=replace(wish.cluster, private_key=private, public_key=public))


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
        keeping: Keeping,
        rate_bytes_per_s: int | None = None,
    ) -> None:
        machine.make_folder()
        self._machine, self._names, left = machine, names, LeftFiles(keeping.left)
        key = bytes.fromhex(str(left.given["key"])) if left else secrets.token_bytes(KEY_BYTES)
        plan = SwitchPlan(machine.folder, key, 0, len(names), rate_bytes_per_s=rate_bytes_per_s)
        self._switch = SwitchProcess(plan, machine.site.clock, left.outside_fd)
        self._others = frozenset(range(1, len(names)))
        self._waited_for = set(self._others)
        self._has_begun = False
        self._loss = ""
        self._given = left.given or {**wanted, "names": names, "key": key.hex(), "port": self._switch.port}
        self._last: list[dict[str, object]] = []
        """What was told last, of which a killed keeper may not know."""
        self._step: subprocess.Popen[bytes] | None = None
        self._until_s: float | None = None
        if left:
            self._tell_fd, hear_fd = left.pipes
        else:
            self._tell_fd, hear_fd = self._begun_step(argv)
            leave(keeping, self._given, self._switch, (self._tell_fd, hear_fd))
        self._said = LinesIn(hear_fd)
        if left:
            self._go_on()
        else:
            self._write(self._given)

    def _begun_step(self, argv: Sequence[str]) -> tuple[int, int]:
        try:
            self._step = subprocess.Popen(list(argv), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            self._switch.close()
            raise CacheError(f"{argv[0]} cannot begin the job's other machines: {error.strerror}") from error
        assert self._step.stdin is not None
        assert self._step.stdout is not None
        with self._step.stdin as tell, self._step.stdout as hear:
            return os.dup(tell.fileno()), os.dup(hear.fileno())

    def _go_on(self) -> None:
        """With what a killed keeper has left. A suspension that it had begun is over: if it is still wanted,
        it begins anew. All say once more how far they are."""
        self._until_s = self._machine.site.clock.monotonic_s() + AGREE_S
        if self._runs():
            self._last.append({"verb": GO_ON, "token": self._given["token"]})
        self._last.append({"verb": CONTINUE})
        self._tell_again()

    def _runs(self) -> bool:
        with suppress(NotInPool):
            return self._machine.status().record.state == states.RUNNING
        return False

    def look(self, machine: Machine) -> MachineStatus | None:
        self._hear()
        if self._loss:
            print(f"outrider: {' '.join(self._loss.split())}", file=sys.stderr)  # noqa: T201 - a program's word
            return self._machine.stop(0)
        if not self._waited_for:
            self._until_s = None
            if not self._has_begun:
                self._begin()
        elif self._until_s is not None and self._machine.site.clock.monotonic_s() >= self._until_s:
            self._loss = f"nothing was heard of {self._names_of(self._waited_for)} for {AGREE_S:.0f} s"
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
                raise CacheError(f"not {state} after {AGREE_S:.0f} s: {self._names_of(left)}")

    def _names_of(self, numbers: Iterable[int]) -> str:
        return ", ".join(self._names[number] for number in sorted(numbers))

    def _hear(self, wait_s: float = 0) -> list[dict[str, object]]:
        """What the others say; who is ready or lost is noted, and who has not heard it is told again."""
        self._switch.keep()
        found = self._said.read(wait_s)
        for said in found:
            if said.get("state") == READY:
                self._waited_for.discard(_number(said))
            elif said.get("state") == LOST:
                self._loss = self._loss or str(said.get("reason"))[:MOST_REASON]
            elif said.get("state") == AGAIN:
                self._tell_again()
        has_ended = self._said.is_closed if self._step is None else self._step.poll() is not None
        if not self._loss and has_ended:
            status = "" if self._step is None else f" ({self._step.returncode})"
            self._loss = f"the step of the job's other machines has ended{status}"
        return found

    def _tell(self, plain: dict[str, object]) -> None:
        # Whoever has not heard that all go on has to, before anything else.
        self._last = [*[each for each in self._last if each["verb"] == GO_ON], plain]
        self._write(plain)

    def _tell_again(self) -> None:
        """For those who have not heard it; half a line that a killed keeper has written ends first."""
        with suppress(BrokenPipeError):
            os.write(self._tell_fd, b"\n")
        for each in (self._given, *self._last):
            self._write(each)

    def _write(self, plain: dict[str, object]) -> None:
        with suppress(BrokenPipeError):
            write_line(self._tell_fd, plain)

    def end(self) -> None:
        """End the others, and the network between them."""
        self._tell({"verb": END})
        with suppress(OSError):
            os.close(self._tell_fd)
        clock = self._machine.site.clock
        until_s = clock.monotonic_s() + END_S
        while not self._said.is_closed and clock.monotonic_s() < until_s:
            self._said.read(LOOK_S)
        if self._step is not None:
            self._end_step(self._step)
        self._switch.close()

    def _end_step(self, step: subprocess.Popen[bytes]) -> None:
        if not self._said.is_closed:
            step.kill()
        step.wait()


def _number(said: dict[str, object]) -> int:
    found = said.get("instance")
    return found if isinstance(found, int) else -1
