"""An instance's place among the machines of its job: its number, and the names and addresses of all."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_INSTANCES = 1024
NETWORK, PREFIX_BITS = "10.211", 16
"""Of a network that no packet leaves, so that every job has the same."""
MAC_PREFIX = bytes.fromhex("52540000")
LOGIN_ADDRESS, LOGIN_MAC, LOGIN_MTU = "10.0.2.15", "52:54:00:01:00:00", 1500
"""Of the card by which a guest is reached from its own node."""
MTU = 1400
"""So that a frame, its signature and the headers around them are one packet of an Ethernet."""
ADDRESS = re.compile(r"10\.211\.(0|[1-9][0-9]{0,2})\.(0|[1-9][0-9]{0,2})")
LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")


@dataclass(frozen=True)
class ClusterPlace:
    """One instance among those of its job. The first runs the job's script."""

    number: int
    names: tuple[str, ...]
    addresses: tuple[str, ...]
    private_key: str = ""
    """Of a pair made for this job, with which a machine lets in the others, by ssh; none if empty."""
    public_key: str = ""

    def __post_init__(self) -> None:
        count = len(self.names)
        if not 1 <= count <= MOST_INSTANCES or len(self.addresses) != count:
            raise BadRequest(f"a job has 1 to {MOST_INSTANCES} machines, each with a name and an address")
        if not 0 <= self.number < count:
            raise BadRequest(f"there is no machine {self.number} among {count}")
        if len(set(self.names)) != count or len(set(self.addresses)) != count:
            raise BadRequest("two machines of a job cannot have one name or one address")
        for name in self.names:
            if LABEL.fullmatch(name) is None:
                raise BadRequest(f"{name[:80]!r} is not a host name: letters, digits and hyphens are")
        for address in self.addresses:
            found = ADDRESS.fullmatch(address)
            if found is None or max(int(found[1]), int(found[2])) > 255 or found[1] == found[2] == "0":
                raise BadRequest(
                    f"address {address[:40]!r} is not in the machines' network {NETWORK}.0.0/{PREFIX_BITS}"
                )

    @property
    def count(self) -> int:
        return len(self.names)

    @property
    def name(self) -> str:
        return self.names[self.number]

    @property
    def interface(self) -> str:
        """The address with the length of its network's prefix."""
        return f"{self.addresses[self.number]}/{PREFIX_BITS}"

    @property
    def mac(self) -> str:
        return mac_of(self.number).hex(":")

    @property
    def hosts(self) -> str:
        """Lines for /etc/hosts."""
        return "".join(f"{address} {name}\n" for name, address in zip(self.names, self.addresses))


def mac_of(number: int) -> bytes:
    """The hardware address of an instance's card, from which a switch knows where a frame goes."""
    return MAC_PREFIX + number.to_bytes(2, "big")


def places(names: Sequence[str], keys: tuple[str, str] = ("", "")) -> list[ClusterPlace]:
    """All instances of a job, with addresses in their order."""
    addresses = tuple(f"{NETWORK}.{number >> 8}.{number & 255}" for number in range(1, len(names) + 1))
    return [ClusterPlace(number, tuple(names), addresses, *keys) for number in range(len(names))]
