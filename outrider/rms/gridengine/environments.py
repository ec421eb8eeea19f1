"""How many slots a node gives in parallel environments that nobody has named to us: by their own rule.

A job in one whose rule is a number runs on as many nodes as its slots fill. Where Grid Engine places slots
as it likes (`$fill_up`, `$round_robin`) nobody can say, and the job is taken for one that fits a node.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from outrider.rms.base import RmsError
from outrider.rms.gridengine import context
from outrider.rms.gridengine.commands import GridEngineCommands
from outrider.rms.gridengine.parsing import Detail
from outrider.rms.gridengine.settings import GridEngineSettings

KEPT_S = 300
MOST_KNOWN = 1_000
MOST_ASKED = 20
"""In one look; jobs of others are taken for one node until the next."""
RULE = "allocation_rule"


class Environments:
    """Asks for each once in a while, and for those alone in which jobs with an image are."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}
        """By name, the slots of a node, 0 where that is no number, and until when that is believed."""

    def settings(
        self,
        commands: GridEngineCommands,
        settings: GridEngineSettings,
        details: Iterable[Detail],
        now_s: int,
    ) -> GridEngineSettings:
        """The settings, in which the environments of these jobs are named, too."""
        named = {name for _, name in settings.environments}
        wanted = {each.environment or "" for each in details if context.METADATA in each.context} - {
            "",
            *named,
        }
        old = sorted(name for name in wanted if self._known.get(name, (0, 0))[1] <= now_s)
        for name in old[:MOST_ASKED]:
            self._known[name] = (_slots(commands, name), now_s + KEPT_S)
        while len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]
        found = [(self._known[name][0], name) for name in sorted(wanted & self._known.keys())]
        rules = tuple(each for each in found if each[0])
        return replace(settings, environments=(*settings.environments, *rules))


def _slots(commands: GridEngineCommands, name: str) -> int:
    try:
        text = commands.read("qconf", "-sp", name)
    except RmsError:
        return 0
    rules = [line.split()[1] for line in text.splitlines() if line.startswith(RULE) and len(line.split()) > 1]
    is_number = bool(rules) and rules[0].isascii() and rules[0].isdecimal() and len(rules[0]) < 10
    return int(rules[0]) if is_number else 0
