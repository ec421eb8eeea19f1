"""Runs commands where it was started, one a line: entering a host's namespaces each time takes longer."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def command() -> list[str]:
    """How it is started, also where this file cannot be seen."""
    return ["/usr/bin/python3", "-I", "-S", "-c", Path(__file__).read_text()]


def done(
    argv: list[str], uid: int | None, variables: dict[str, str], timeout_s: float
) -> dict[str, str | int | None]:
    """How a command ended; a status of None means that it took too long."""
    try:
        ended = subprocess.run(
            argv,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=variables,
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"status": None, "output": "", "error": ""}
    return {
        "status": ended.returncode,
        "output": ended.stdout.decode(errors="replace"),
        "error": ended.stderr.decode(errors="replace"),
    }


if __name__ == "__main__":
    for line in sys.stdin:
        sys.stdout.write(json.dumps(done(**json.loads(line))) + "\n")
        sys.stdout.flush()
