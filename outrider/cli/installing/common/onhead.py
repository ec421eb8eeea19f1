"""What every installation does to the head: files, the service's user, store, and configuration."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from outrider.cli.errors import MissingPartError, OutputError
from outrider.cli.installing.common.headfiles import CONFIG
from outrider.cli.installing.common.placing import Json, PlacingError, carry_out
from outrider.cli.installing.common.running import ProgramRunner

STORE = "/var/lib/outrider/outriderd.sqlite"
CHECK_S = 120


def placed(request: Json) -> Json:
    """Have files looked at, put or removed on this machine."""
    try:
        return carry_out(request)
    except (PlacingError, OSError) as error:
        raise OutputError(f"this machine's files: {error}") from error


def looked_at(answer: Json, files: Sequence[Json]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which files would be put, and which would be kept as somebody has made them."""
    states = answer["files"]
    configs = {each["path"] for each in files if each.get("is_config")}
    kept = [path for path, state in states.items() if path in configs and state in ("edited", "foreign")]
    put = [path for path, state in states.items() if state != "same" and path not in kept]
    return tuple(put), tuple(kept)


def check_configuration(text: str, runner: ProgramRunner) -> None:
    """Have the service's own program read its configuration before it is put anywhere."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outriderd.yaml"
        path.write_text(text)
        done = runner.run(
            [sys.executable, "-m", "outrider.service", "--config", str(path), "--check"], CHECK_S
        )
    if not done.is_good:
        raise MissingPartError(f"outriderd does not take its configuration: {done.reason}")


def lacking(users: Iterable[str], runner: ProgramRunner) -> list[str]:
    """Those of these users that this machine does not know."""
    return [user for user in users if not runner.run(["getent", "passwd", user]).is_good]


def made_in_words(user: str) -> str:
    """What is said before one is made."""
    return f"user {user} of this machine: is made, of the system, without a login"


def make_user(user: str, runner: ProgramRunner) -> None:
    made = runner.run(
        ["useradd", "--system", "--home-dir", "/var/lib/outrider", "--shell", "/usr/sbin/nologin", user]
    )
    if not made.is_good:
        raise MissingPartError(f"the user {user} could not be made: {made.reason}")


def make_store(runner: ProgramRunner) -> None:
    if os.path.exists(STORE):
        return
    done = runner.run([sys.executable, "-m", "outrider.service", "--config", CONFIG, "--init"], CHECK_S)
    if not done.is_good:
        raise MissingPartError(f"the store could not be made: {done.reason}")
