"""The demo's service, as a program that ends with the demo, however that ends.

The demo holds the other end of standard input, which the kernel closes at the latest.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from outrider.service.daemon.main import run


def _end_with_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, name="end with input", daemon=True).start()
    run()
