"""Runs commands where it was started, one a line: entering a host's namespaces each time takes longer."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def done(wanted: Mapping[str, object]) -> dict[str, object]:
    """How a command ended; a status of None means that it took too long."""
    user = wanted["uid"]
    try:
        ended = subprocess.run(
            wanted["argv"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            env=wanted["variables"],
            user=user,
            group=user,
            extra_groups=None if user is None else [],
            timeout=wanted["timeout_s"],
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
        sys.stdout.write(json.dumps(done(json.loads(line))) + "\n")
        sys.stdout.flush()
