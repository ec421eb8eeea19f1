"""A node's daemon that ends when whoever holds the other end of its stdin does.

    python3 -P -m outrider.service.nodes.ends_with_input --config FILE

The kernel closes a pipe however its holder dies. Its other way of telling children,
PR_SET_PDEATHSIG, speaks of the thread that made them, which may end long before the process.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from cachemgr.base.clock import SystemClock
from cachemgr.daemon.__main__ import main

STOP_S = 10.0
"""How long the daemon may take to note what has arrived, before it is ended as it is."""


def _end_with_holder() -> None:
    """Reads nothing, for as long as there is somebody who could write something."""
    while os.read(0, 4096):
        """Nobody writes here; whoever does has not died."""
    os.kill(os.getpid(), signal.SIGTERM)
    SystemClock().sleep(STOP_S)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_holder, name="end with input", daemon=True).start()
    raise SystemExit(main(sys.argv[1:]))
