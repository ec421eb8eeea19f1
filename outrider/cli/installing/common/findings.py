"""What a check found, in one line: how bad it is, where, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from outrider.cli.installing.common.placing import Json


class Level(IntEnum):
    """How bad; the worst of all is the exit code."""

    OK = 0
    WARNING = 1
    FAULT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class DoctorFinding:
    """One line of the doctor's."""

    level: Level
    where: str
    what: str
    words: str

    @property
    def row(self) -> tuple[str, str, str, str]:
        return (self.level.name.lower(), self.where, self.what, self.words)


def ok(where: str, what: str, words: str) -> DoctorFinding:
    return DoctorFinding(level=Level.OK, where=where, what=what, words=words)


def warning(where: str, what: str, words: str) -> DoctorFinding:
    return DoctorFinding(level=Level.WARNING, where=where, what=what, words=words)


def fault(where: str, what: str, words: str) -> DoctorFinding:
    return DoctorFinding(level=Level.FAULT, where=where, what=what, words=words)


Check = Callable[[], Sequence[DoctorFinding]]


def of_states(where: str, states: dict[str, str], remedy: str) -> list[DoctorFinding]:
    """What became of files that were installed: one line for all that are right, one for each other."""
    found = []
    for path, state in sorted(states.items()):
        if state == "missing":
            found.append(fault(where, "files", f"{path} is missing: {remedy}"))
        elif state == "unusable":
            words = f"{path} cannot be run by everybody: give it and the folders above it the mode 0755"
            found.append(fault(where, "files", words))
        elif state == "older":
            found.append(warning(where, "files", f"{path} is of another version or mode: {remedy}"))
        elif state in ("edited", "foreign"):
            found.append(
                warning(where, "files", f"{path} was changed by somebody: compare it, then {remedy}")
            )
    right = sum(state == "same" for state in states.values())
    return [*found, ok(where, "files", f"{right} are as they were shipped")] if right else found


def of_rights(where: str, too_open: Sequence[Json]) -> list[DoctorFinding]:
    """Files and folders that others than root can write to, or read where they are secret."""
    found = []
    for each in too_open:
        path, mode = each["path"], each["mode"]
        if each["by"] == "read":
            words = f"{path} is a secret and can be read by others ({mode}): chmod 600 it, and make a new one"
            found.append(fault(where, "key", words))
        else:
            words = f"{path} can be written to by others than root ({mode}): chown root, chmod go-w"
            found.append(fault(where, "folders", words))
    return found or [ok(where, "folders", "only root can write to our files and to the folders above them")]
