"""How Outrider's hooks get beside those that a site has already, whatever form they are in.

What slurm.conf names is never a file of Outrider's own folder: Slurm drains a node whose hook is missing or
cannot be run, so a few lines of shell outside of it call ours, and go on without. Where the site has a
single program of its own, they call both. A pattern gets one more program that matches it, which calls ours.
Nothing of the site's is left out or changes places: its prolog runs before ours and its failure counts as
before, its epilog runs after ours.
"""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from outrider.cli.installing.slurm.siteconf import SiteConf

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
class ComposedHook:
    """What the key has to say (None: as it is), what has to be placed, and what stands in the way."""

    hook: Hook
    value: str | None = None
    wrapper: str = ""
    """The text of the file that calls ours, if there is one: in WRAPPERS, or where `link` says."""
    link: str = ""
    """Where that file has to be for the site's pattern to match it."""
    trouble: str = ""
    before: str = field(default="")

    @property
    def wrapper_path(self) -> str:
        return f"{WRAPPERS}/{self.hook.name}"


def composed(hook: Hook, site: SiteConf, *, can_be_several: bool) -> ComposedHook:
    """Ours beside the site's. `can_be_several`: since 24.05 each line of such a key adds a program."""
    found = site.all(hook.key)
    if not found:
        return _alone(hook)
    if (len(found) > 1 and can_be_several) or "," in found[-1].value:
        return ComposedHook(
            hook=hook,
            before=found[-1].value,
            wrapper=_wrapper(hook, ""),
            trouble=f"{found[-1].place}: {hook.key} names several programs: add one more line, "
            f"{hook.key}={WRAPPERS}/{hook.name}, and leave {hook.key} to yourself with --without-{hook.name}",
        )
    value = found[-1].value
    if value.lower() in ("", "none", "(null)", hook.ours):
        return _alone(hook, value)
    path = posixpath.join(site.folder, value)
    if path == f"{WRAPPERS}/{hook.name}":
        return ComposedHook(hook=hook, before=value, wrapper=_wrapper(hook, ""))
    if not _SPECIAL.isdisjoint(value):
        return _in_pattern(hook, path, found[-1].place)
    wrapper = ComposedHook(hook=hook, before=value, wrapper=_wrapper(hook, path))
    return ComposedHook(hook=hook, before=value, value=wrapper.wrapper_path, wrapper=wrapper.wrapper)


def _alone(hook: Hook, before: str = "") -> ComposedHook:
    found = ComposedHook(hook=hook, before=before, wrapper=_wrapper(hook, ""))
    return replace(found, value=found.wrapper_path)


def _in_pattern(hook: Hook, pattern: str, place: str) -> ComposedHook:
    folder, _, names = pattern.rpartition("/")
    name = names.replace("*", NAME_IN_PATTERN, 1).replace("*", "")
    if not _SPECIAL.isdisjoint(name) or not _SPECIAL.isdisjoint(folder) or not fnmatchcase(name, names):
        return ComposedHook(
            hook=hook,
            before=pattern,
            wrapper=_wrapper(hook, ""),
            trouble=f"{place}: no name for {hook.key}={pattern} can be guessed: "
            f"let a name that it matches point to {WRAPPERS}/{hook.name}, and use --without-{hook.name}",
        )
    return ComposedHook(hook=hook, before=pattern, link=f"{folder}/{name}", wrapper=_wrapper(hook, ""))


_UNABLE = "outrider: Outrider's own files on this node cannot be run: tell the administrator"
_PATH = "PATH=/usr/sbin:/usr/bin:/sbin:/bin\n"
_NAME = (
    _PATH
    + 'case ${SLURM_JOB_ID-} in "" | *[!0-9]*) exit 0 ;; esac\nfailed=/run/outrider/failed/$SLURM_JOB_ID\n'
)
# What follows Outrider's own where it could not be run. No state of our files may drain a node or stop a job
# that has no image; one that has fails alone, with a sentence.
_INSTEAD = {
    "prolog": "case ${SLURM_JOB_COMMENT-}:${SLURM_JOB_RESERVATION-} in\n*outrider-ticket=*) ;;\n*:*-*[0-9])\n"
    # A reservation of the service's, by the mark that operators alone can set.
    f"    {_PATH}"
    '    case $(timeout 5 scontrol --oneliner show reservation "$SLURM_JOB_RESERVATION" 2>&1) in\n'
    "    *PURGE_COMP=1366-14:17:00*) ;; *) exit 0 ;; esac ;;\n*) exit 0 ;; esac\n"
    + _NAME
    + "mkdir -p -m 755 /run/outrider /run/outrider/failed\n"
    f'umask 077\nprintf \'%s\\n\' "{_UNABLE}" >"$failed.new" &&\n'
    '    chown "${SLURM_JOB_UID-0}" "$failed.new" && mv -f "$failed.new" "$failed"\nexit 0\n',
    "task-prolog": _NAME + '[ -r "$failed" ] || exit 0\nIFS= read -r words <"$failed"\n'
    "printf 'print %s\\n' \"$words\"\nexit 3\n",
    "prolog-slurmctld": "exit 0\n",
}


def _wrapper(hook: Hook, site_path: str) -> str:
    """What calls ours, and the site's own before or after it if there is one."""
    site = f'{shlex.quote(site_path)} "$@"'
    source = f"the site's own and Outrider's. Written by outrider init slurm from {hook.key}={site_path};"
    head = f"#!/bin/sh\n# {hook.key}: {source}\n# change that there, and run it again.\n"
    if not site_path:
        head = f"#!/bin/sh\n# {hook.key}: Outrider's. Written by outrider init slurm.\n"
    if hook.is_ours_first:
        forget = (
            'case ${SLURM_JOB_ID-} in "" | *[!0-9]*) ;; *) rm -f "/run/outrider/failed/$SLURM_JOB_ID" ;; esac'
        )
        return f"{head}{hook.ours} ||\n    {forget}\n" + (f"exec {site}\n" if site_path else "exit 0\n")
    first = f"{site} || exit $?\n" if site_path else ""
    # 126 and 127: the shell's own words for what cannot be run, or is not there.
    return (
        f"{head}{first}{hook.ours}\nstatus=$?\n"
        f"case $status in 126 | 127) ;; *) exit $status ;; esac\n{_INSTEAD[hook.name]}"
    )
