"""Outrider's lines in a site's own job_submit.lua or cli_filter.lua, or such a file where there is none.

The site's functions are called as before, and first; ours see what they have made of the job. The lines
have to stand below the site's functions, yet above a `return` that ends the file: nothing may follow it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cli.installing.marking import LUA, changed, restored

_RETURN = re.compile(r"return\b(?:[ \t]+[\w.]+)?[ \t]*;?")


UP_TO = "-- The site's own rules may stand here."
"""In Outrider's own files: what stands above loads ours, what stands below calls it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """One of the two Lua files that Slurm reads from its own folder."""

    name: str
    functions: tuple[tuple[str, str], ...]
    """Slurm's function, and ours; no name where ours has nothing to do."""


SUBMIT = Filter(
    name="job_submit.lua",
    functions=(
        ("slurm_job_submit", "outrider_job_submit"),
        ("slurm_job_modify", "outrider_job_modify"),
    ),
)
CLI = Filter(
    name="cli_filter.lua",
    functions=(
        ("slurm_cli_setup_defaults", ""),
        ("slurm_cli_pre_submit", "outrider_cli_pre_submit"),
        ("slurm_cli_post_submit", ""),
    ),
)


def with_ours(text: str, kind: Filter, loader: str, name: str) -> str:
    """A site's file with our lines in it; `name` is the file's, for errors."""
    own = restored(text, LUA, name)
    return changed(own, LUA, added=lines(kind, loader), before=_last_return(own))


def lines(kind: Filter, loader: str) -> Sequence[str]:
    """What loads ours and calls it after the site's. `loader` is Outrider's own file of that name."""
    head = [each for each in loader.partition(UP_TO)[0].rstrip().split("\n") if not each.startswith("--")]
    found = ["do", *(f"  {each}".rstrip() for each in head if each.strip()), "end"]
    for theirs, ours in kind.functions:
        if not ours:
            found.append(f"{theirs} = {theirs} or function() return slurm.SUCCESS end")
            continue
        found += [
            "do",
            f"  local site = {theirs}",
            f"  function {theirs}(...)",
            "    local code = site and site(...) or slurm.SUCCESS",
            "    if code ~= slurm.SUCCESS then return code end",
            f"    return {ours}(...)",
            "  end",
            "end",
        ]
    return found


def _last_return(text: str) -> int | None:
    """The line of a `return` after which there are only blank lines and comments."""
    physical = text.split("\n")
    for number in range(len(physical) - 1, -1, -1):
        line = physical[number].strip()
        if not line or line.startswith("--"):
            continue
        return number if _RETURN.fullmatch(line.partition("--")[0].strip()) else None
    return None
