"""What jobs had that are over: by Grid Engine's own accounting, which is written some time after that."""

from __future__ import annotations

import calendar
import re
import time

from outrider.rms.base import JobUse, RmsError, Unavailable, Unknown
from outrider.rms.gridengine.commands import GridEngineCommands

WRITTEN_S = 600
"""Within so long the accounting has a job; by default it is written every 15 s."""
MOST_ASKED = 1000
_TIME = "%a %b %d %H:%M:%S %Y"
_RECORD = re.compile(r"^=+$", re.MULTILINE)


class UseOfJobs:
    """Asks qacct, and remembers since when it has not known a job."""

    def __init__(self, commands: GridEngineCommands) -> None:
        self._commands = commands
        self._since_s: dict[str, int] = {}

    def use_of(self, key: str, now_s: int) -> JobUse:
        """Raises Unavailable as long as the accounting may not have it yet, then Unknown."""
        done = self._commands.attempt("qacct", "-j", key)
        found = _uses(done.text.decode("utf-8", "replace")) if done.code == 0 else []
        if found:
            self._since_s.pop(key, None)
            # One that was started more than once has a record of each time.
            had_s = sum(each.end_s - each.start_s for each in found)
            last = found[-1]
            return JobUse(start_s=last.end_s - had_s, end_s=last.end_s, cpus=last.cpus, group=last.group)
        since_s = self._since_s.setdefault(key, now_s)
        while len(self._since_s) > MOST_ASKED:
            del self._since_s[next(iter(self._since_s))]
        if now_s - since_s < WRITTEN_S:
            raise Unavailable(f"the accounting has no job {key} yet")
        raise Unknown(f"the accounting has no job {key}: what it had is not known")


def _uses(text: str) -> list[JobUse]:
    """The records of one job that was started."""
    found = []
    for record in _RECORD.split(text):
        pairs = (line.split(None, 1) for line in record.splitlines())
        said = {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}
        start, end = said.get("start_time", "-/-"), said.get("end_time", "-/-")
        if "-/-" in (start, end):
            continue
        try:
            start_s, end_s = (calendar.timegm(time.strptime(each, _TIME)) for each in (start, end))
            cpus = int(said.get("slots", "1"))
        except ValueError as error:
            raise RmsError(f"qacct printed what is no record of a job: {error}") from error
        if end_s >= start_s > 0:
            found.append(JobUse(start_s=start_s, end_s=end_s, cpus=cpus, group=said.get("group", "")))
    return found
