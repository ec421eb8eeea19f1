"""What was found and done, as a screen for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outrider.cli.asking.display.words import plural

if TYPE_CHECKING:
    from outrider.cli.installing.slurm.init import Outcome


MOST_LINES = 12


def screen(outcome: Outcome, *, is_removal: bool) -> str:
    """Everything, the conclusion last."""
    others = len(outcome.seen.files) - 1
    lines = [
        f"Slurm {outcome.seen.version}, {outcome.seen.slurm_conf}"
        + (f" and {plural(others, 'file')} that it includes" if others else "")
        + f", {plural(outcome.seen.nodes, 'node')}"
    ]
    if is_removal:
        lines += part("lines taken out of", outcome.edits)
        lines += part("files removed", outcome.removed)
    else:
        are_in = outcome.is_applied and not outcome.waits_for_nodes
        for path, added in outcome.edits.items():
            shown = added if len(added) <= MOST_LINES else (f"{len(added)} lines: --json shows them",)
            lines += part(f"lines {'in' if are_in else 'for'} {path}", shown)
        title = "files put on this machine" if outcome.is_applied else "files for this machine"
        lines += part(title, outcome.put)
    lines += part("kept as somebody has changed them", outcome.kept)
    lines += part("worth knowing", outcome.advice)
    lines += part("TROUBLE", outcome.troubles)
    if outcome.waits_for_nodes and not outcome.troubles:
        lines += [
            "",
            "The site's own files are not changed yet: for want of the hooks the first job would drain "
            f"{outcome.waits_for_nodes}.",
        ]
    if not outcome.is_applied:
        lines += ["", "Nothing was changed."]
    lines += part("next", outcome.next_steps)
    return "\n".join(lines)


def part(title: str, found: object) -> list[str]:
    each = [str(one) for one in found] if isinstance(found, (tuple, list, dict)) else []
    return ["", f"{title}:", *(f"  {one}" for one in each)] if each else []
