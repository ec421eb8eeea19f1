"""How Outrider's hooks get beside those that a site has already, whatever form they are in.

A hook that a site does not have is set. A single program is called by a few lines of shell together with
ours. A pattern gets one more name that matches it. Nothing of the site's is left out or changes places:
its prolog runs before ours and its failure counts as before, its epilog runs after ours.
"""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from outrider.cli.installing.siteconf import SiteConf

FOLDER = "/usr/lib/outrider/slurm"
WRAPPERS = "/etc/outrider/slurm"
NAME_IN_PATTERN = "50-outrider"
_SPECIAL = frozenset("*?[")


@dataclass(frozen=True, kw_only=True, slots=True)
class Hook:
    """One of Slurm's hooks, the file of ours, and which of the two runs first where a site has its own."""

    key: str
    name: str
    is_ours_first: bool = False
    is_on_head: bool = False

    @property
    def ours(self) -> str:
        return f"{FOLDER}/{self.name}"


PROLOG = Hook(key="Prolog", name="prolog")
EPILOG = Hook(key="Epilog", name="epilog", is_ours_first=True)
TASK_PROLOG = Hook(key="TaskProlog", name="task-prolog")
PROLOG_SLURMCTLD = Hook(key="PrologSlurmctld", name="prolog-slurmctld", is_on_head=True)
HOOKS = (PROLOG, EPILOG, TASK_PROLOG, PROLOG_SLURMCTLD)


@dataclass(frozen=True, kw_only=True, slots=True)
class Composed:
    """What the key has to say (None: as it is), what has to be placed, and what stands in the way."""

    hook: Hook
    value: str | None = None
    wrapper: str = ""
    """The text of the file in WRAPPERS, if there is one."""
    link: str = ""
    """Where a name that points to ours has to be."""
    trouble: str = ""
    before: str = field(default="")

    @property
    def wrapper_path(self) -> str:
        return f"{WRAPPERS}/{self.hook.name}"


def composed(hook: Hook, site: SiteConf, *, can_be_several: bool) -> Composed:
    """Ours beside the site's. `can_be_several`: since 24.05 each line of such a key adds a program."""
    found = site.all(hook.key)
    if not found:
        return Composed(hook=hook, value=hook.ours)
    if (len(found) > 1 and can_be_several) or "," in found[-1].value:
        return Composed(
            hook=hook,
            before=found[-1].value,
            trouble=f"{found[-1].place}: {hook.key} names several programs: add one more line, "
            f"{hook.key}={hook.ours}, and leave {hook.key} to yourself with --without-{hook.name}",
        )
    value = found[-1].value
    if value.lower() in ("", "none", "(null)"):
        return Composed(hook=hook, value=hook.ours, before=value)
    path = posixpath.join(site.folder, value)
    if value == hook.ours:
        return Composed(hook=hook, before=value)
    if not _SPECIAL.isdisjoint(value):
        return _in_pattern(hook, path, found[-1].place)
    wrapper = Composed(hook=hook, before=value, wrapper=_wrapper(hook, path))
    return Composed(hook=hook, before=value, value=wrapper.wrapper_path, wrapper=wrapper.wrapper)


def _in_pattern(hook: Hook, pattern: str, place: str) -> Composed:
    folder, _, names = pattern.rpartition("/")
    name = names.replace("*", NAME_IN_PATTERN, 1).replace("*", "")
    if not _SPECIAL.isdisjoint(name) or not _SPECIAL.isdisjoint(folder) or not fnmatchcase(name, names):
        return Composed(
            hook=hook,
            before=pattern,
            trouble=f"{place}: no name for {hook.key}={pattern} can be guessed: "
            f"let a name that it matches point to {hook.ours}, and use --without-{hook.name}",
        )
    return Composed(hook=hook, before=pattern, link=f"{folder}/{name}")


def _wrapper(hook: Hook, site_path: str) -> str:
    site = shlex.quote(site_path)
    head = (
        f"#!/bin/sh\n# {hook.key}: the site's own and Outrider's. Written by outrider init slurm from "
        f"{hook.key}={site_path};\n# change that there, and run it again.\n"
    )
    if hook.is_ours_first:
        return f'{head}{hook.ours}\nexec {site} "$@"\n'
    return f'{head}{site} "$@" || exit $?\nexec {hook.ours}\n'
