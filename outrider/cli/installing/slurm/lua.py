"""Outrider's lines in a site's own job_submit.lua or cli_filter.lua, or such a file where there is none.

The site's functions are called as before, and first; ours see what they have made of the job. The lines
have to stand below the site's functions, yet above a `return` that ends the file: nothing may follow it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cli.installing.slurm.marking import LUA, changed, restored

_RETURN = re.compile(r"return\b(?:[ \t]+[\w.]+)?[ \t]*;?")


FOLDER = "/usr/lib/outrider/slurm"
_BROKEN = (
    "    local function is_ours(job)",
    '      return (job.comment or ""):find("outrider:", 1, true)',
    '        or (job.script or ""):sub(1, 65536):find("#OUTRIDER", 1, true)',
    "    end",
    "    function outrider_job_submit(job)",
    "      if not is_ours(job) then return slurm.SUCCESS end",
    '      slurm.log_user("%s", "outrider: the submit filter is missing: tell your administrators")',
    "      return slurm.ERROR",
    "    end",
    "    function outrider_job_modify() return slurm.SUCCESS end",
)
"""Where ours is gone: jobs that need it are refused, all others go on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Filter:
    """One of the two Lua files that Slurm reads from its own folder, and that loads ours of that name."""

    name: str
    functions: tuple[tuple[str, str], ...]
    """Slurm's function, and ours; no name where ours has nothing to do."""
    broken: tuple[str, ...]
    """What is defined where ours cannot be loaded."""

    @property
    def ours(self) -> str:
        return f"{FOLDER}/{self.name}"


SUBMIT = Filter(
    name="job_submit.lua",
    functions=(
        ("slurm_job_submit", "outrider_job_submit"),
        ("slurm_job_modify", "outrider_job_modify"),
    ),
    broken=_BROKEN,
)
CLI = Filter(
    name="cli_filter.lua",
    functions=(
        ("slurm_cli_setup_defaults", ""),
        ("slurm_cli_pre_submit", "outrider_cli_pre_submit"),
        ("slurm_cli_post_submit", ""),
    ),
    broken=("    function outrider_cli_pre_submit() return slurm.SUCCESS end",),
)


def with_ours(text: str, kind: Filter, name: str) -> str:
    """A site's file with our lines in it; `name` is the file's, for errors."""
    own = restored(text, LUA, name)
    if any(ours and ours in own for _, ours in kind.functions):
        # The site calls ours where it wants to.
        return own
    return changed(own, LUA, added=lines(kind), before=_last_return(own))


def lines(kind: Filter) -> Sequence[str]:
    """What loads ours and calls it after the site's. Ours sets Slurm's functions, too; these are put back."""
    names = [theirs for theirs, _ in kind.functions]
    found = [
        "do",
        f"  local {', '.join(f'site_{number}' for number in range(len(names)))} = {', '.join(names)}",
        f'  if not pcall(dofile, "{kind.ours}") then',
        *kind.broken,
        "  end",
    ]
    for number, (theirs, ours) in enumerate(kind.functions):
        site = f"site_{number}"
        found += [
            f"  function {theirs}(...)",
            f"    local code = {site} and {site}(...) or slurm.SUCCESS",
            *([f"    return code == slurm.SUCCESS and {ours}(...) or code"] if ours else ["    return code"]),
            "  end",
        ]
    return [*found, "end"]


def _last_return(text: str) -> int | None:
    """The line of a `return` after which there are only blank lines and comments."""
    physical = text.split("\n")
    for number in range(len(physical) - 1, -1, -1):
        line = physical[number].strip()
        if not line or line.startswith("--"):
            continue
        return number if _RETURN.fullmatch(line.partition("--")[0].strip()) else None
    return None
