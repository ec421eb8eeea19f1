"""What the keeper of one of several machines leaves, as open files, to the next if it is killed.

What was said at the beginning, as JSON; the socket of its switch; the pipes of the step that it has begun.
"""

from __future__ import annotations

import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cachemgr.machines.network.switch import SwitchProcess
    from cachemgr.machines.running import Keeping

MOST_BYTES = 1 << 20


class LeftFiles:
    """Those of a keeper that was killed; false if there was none, or it came to leave nothing."""

    def __init__(self, fds: Sequence[int]) -> None:
        self.given: dict[str, object] = json.loads(os.pread(fds[0], MOST_BYTES, 0)) if fds else {}
        self.outside_fd = fds[1] if fds else None
        self.pipes = fds[2:]

    @property
    def keys(self) -> tuple[str, str]:
        """Private and public, of the job's machines."""
        keys = self.given["keys"]
        assert isinstance(keys, list)
        private, public = keys
        return private, public

    def __bool__(self) -> bool:
        return bool(self.given)


def leave(
    keeping: Keeping, given: Mapping[str, object], switch: SwitchProcess, pipes: Sequence[int] = ()
) -> None:
    """What this keeper was given, and what it has opened, for the next one."""
    with open(os.memfd_create("given"), "wb") as file:
        file.write(json.dumps(given).encode())
        file.flush()
        keeping.leave([file.fileno(), switch.outside_fd, *pipes])
