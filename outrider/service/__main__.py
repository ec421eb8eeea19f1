"""`python -m outrider.service`: outriderd as a module, where its script is not installed."""

from __future__ import annotations

from outrider.service.daemon.main import run

if __name__ == "__main__":
    run()
