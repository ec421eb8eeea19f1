"""What a node's daemon and those who ask it say of jobs' machines: a part of `cachemgr.protocol`."""

from __future__ import annotations

from cachemgr.base.message import ProtocolMessage


class MachineFacts(ProtocolMessage):
    """By what virtual machines run on a node, and the room beside its pool."""

    version: str
    accelerator: str
    reason: str
    processor: str
    free_bytes: int


class MachineRoom(ProtocolMessage):
    """What machines may take of the disk on which they are kept, and what of it is promised to images."""

    free_bytes: int
    promised_bytes: int


class ListedMachines(ProtocolMessage):
    """Of which jobs (`job-17`) there are machines here, and how far each is (`1000 2 worker1 10.211.0.2
    runs`: whose it is, its number, its name, its address and a word; empty if nobody knows). `used`: whose it
    is and the microseconds of processors that it has had and waited for (`1000 52000000 310`), empty if it
    does not run, read at `at_us` of a clock that goes on as long as the node does."""

    owners: tuple[str, ...]
    told: tuple[str, ...] = ()
    used: tuple[str, ...] = ()
    at_us: int = 0


class Discarded(ProtocolMessage):
    """How many machines were removed."""

    machines: int


class MoveRequest(ProtocolMessage):
    """A step (`arrive`, `give`, `drop`) on a suspended machine's way to another node. `source` is the relay
    from which it comes, `place` to which place it is given."""

    owner: str
    step: str
    user: int
    source: str | None = None
    place: str | None = None
    rate_bytes_per_s: int | None = None
    at_least_1 = ("rate_bytes_per_s",)


class MovedMachine(ProtocolMessage):
    """How far it is (`coming`, `fetched`, `given`, `taken`, `dropped`), and what its place here is called."""

    state: str
    place: str = ""
