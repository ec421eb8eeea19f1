"""What was found and done, as a screen for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.cli.asking.display.words import plural
from outrider.cli.installing.common.screen import part

if TYPE_CHECKING:
    from outrider.cli.installing.gridengine.command import GridOutcome


def screen(outcome: GridOutcome, *, is_removal: bool) -> str:
    """Everything, the conclusion last."""
    lines = [f"Grid Engine {outcome.version}, {plural(outcome.nodes, 'node')}"]
    if is_removal:
        lines += part("taken back", outcome.objects)
        lines += part("files removed", outcome.removed)
    else:
        are_in = outcome.is_applied and not outcome.waits_for_nodes
        lines += part("objects" if outcome.is_applied else "objects to be made or changed", outcome.objects)
        lines += part("hooks" if are_in else "hooks for later", outcome.hooks)
        title = "files put on this machine" if outcome.is_applied else "files for this machine"
        lines += part(title, outcome.put)
    lines += part("kept as somebody has changed them", outcome.kept)
    lines += part("worth knowing", outcome.advice)
    lines += part("TROUBLE", outcome.troubles)
    if outcome.proved_on:
        lines += ["", f"Jobs have come through the hooks on {outcome.proved_on}, in a queue of their own."]
    if outcome.waits_for_nodes and not outcome.troubles:
        lines += [
            "",
            "The queues have no hooks yet: for want of their files the first job would disable "
            f"{outcome.waits_for_nodes}.",
        ]
    if not outcome.is_applied:
        lines += ["", "Nothing was changed."]
    lines += part("next", outcome.next_steps)
    return "\n".join(lines)
