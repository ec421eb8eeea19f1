"""What an installation would do to a site: worked out as a whole before anything is touched. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.cli.installing.slurm.hooks import HOOKS, PROLOG, PROLOG_SLURMCTLD, ComposedHook, composed
from outrider.cli.installing.slurm.lua import CLI, SUBMIT, Filter, lines, with_ours
from outrider.cli.installing.slurm.marking import LUA, SLURM, Replacement, changed, restored
from outrider.cli.installing.slurm.siteconf import Located, SiteConf
from outrider.cli.installing.slurm.timeouts import batch_start_s, timeouts

MANY_PROGRAMS = (24, 5)
"""From this version on each line of Prolog and the like adds a program."""
SUBMIT_PART = "submit-filter"
CLI_PART = "cli-filter"
CONF_PART = "slurm-conf"
UNIT_PART = "unit"
UNLESS_WANTED = (CLI_PART, PROLOG_SLURMCTLD.name)
"""What is left out unless it is asked for, or in force."""
PARTS = (SUBMIT_PART, *(hook.name for hook in HOOKS), CLI_PART, CONF_PART, UNIT_PART)
SPANK_FILE = "/usr/lib/outrider/slurm/spank_outrider.so"
_PLUGINS = {
    SUBMIT_PART: ("JobSubmitPlugins", "job_submit/", "lua"),
    CLI_PART: ("CliFilterPlugins", "cli_filter/", "lua"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FileEdit:
    """A file of the site's with our lines in it. `present` is what it says now, None if there is none."""

    path: str
    present: str | None
    after: str
    lines: tuple[str, ...]
    """What is added or said anew, for people."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmPlan:
    """The changes to the site's own files, the hooks as they are composed, and what people have to know."""

    edits: tuple[FileEdit, ...]
    hooks: tuple[ComposedHook, ...]
    settings: tuple[tuple[str, str], ...]
    advice: tuple[str, ...]
    troubles: tuple[str, ...]
    """While there is one, nothing is changed."""

    @property
    def wants_hooks_on_nodes(self) -> bool:
        return any(each.value and not each.hook.is_on_head for each in self.hooks)


@dataclass(frozen=True, kw_only=True, slots=True)
class SiteTexts:
    """The files beside slurm.conf that may have to change; None where there is none."""

    submit: str | None
    cli: str | None
    plugstack: str | None


def plan(
    site: SiteConf,
    texts: SiteTexts,
    parts: frozenset[str],
    version: tuple[int, ...],
    *,
    has_spank: bool = False,
) -> SlurmPlan:
    """Everything for the parts that are wanted."""
    hooks = tuple(
        composed(hook, site, can_be_several=version >= MANY_PROGRAMS) for hook in HOOKS if hook.name in parts
    )
    wanted = {each.hook.key: each.value for each in hooks if each.value is not None}
    wanted |= _plugins(site, parts)
    if PROLOG.name in parts and site.last("BatchStartTimeout") is None:
        wanted["BatchStartTimeout"] = str(batch_start_s(site.value))
    troubles = [each.trouble for each in hooks if each.trouble]
    edits = list(_conf_edits(site, wanted)) if CONF_PART in parts else []
    for part, kind, text in ((SUBMIT_PART, SUBMIT, texts.submit), (CLI_PART, CLI, texts.cli)):
        if part in parts:
            edits.append(_lua_edit(site, kind, text))
            troubles += _dormant(site, part, kind, text)
    if has_spank:
        edits.append(_plugstack_edit(site, texts.plugstack))
    return SlurmPlan(
        edits=tuple(each for each in edits if each.after != each.present),
        hooks=hooks,
        settings=tuple(sorted(wanted.items())),
        advice=(*site.remarks, *_advice(site, parts, wanted)),
        troubles=tuple(troubles),
    )


def _plugins(site: SiteConf, parts: frozenset[str]) -> Mapping[str, str]:
    """Lists of plugins with lua at their end, where it is not in them."""
    found = {}
    for part, (key, prefix, plugin) in _PLUGINS.items():
        if part in parts and not _has_plugin(site, key, prefix, plugin):
            name = plugin if part == SUBMIT_PART else prefix + plugin
            found[key] = ",".join((*site.words(key), name))
    return found


def _has_plugin(site: SiteConf, key: str, prefix: str, plugin: str) -> bool:
    return any(each.strip().lower().removeprefix(prefix) == plugin for each in site.words(key))


def _dormant(site: SiteConf, part: str, kind: Filter, text: str | None) -> list[str]:
    """A Lua file that is there and not in use would be turned on together with ours."""
    key, prefix, plugin = _PLUGINS[part]
    own = "" if text is None else restored(text, LUA, kind.name)
    if not own.strip() or _has_plugin(site, key, prefix, plugin):
        return []
    return [
        f"{site.folder}/{kind.name} is there, but {key} does not name lua: with Outrider it would come into "
        f"force. Move it away, or add lua to {key} if it should be in force"
    ]


def _conf_edits(site: SiteConf, wanted: Mapping[str, str]) -> list[FileEdit]:
    changes: dict[str, dict[tuple[int, int], list[tuple[Located, str]]]] = {}
    added = []
    for key, value in wanted.items():
        found = site.last(key)
        if found is None:
            added.append(f"{key}={value}")
        elif found.value != value:
            line = found.setting.line
            changes.setdefault(found.path, {}).setdefault((line.first, line.end), []).append((found, value))
    edits = {}
    for file in site.files:
        replacements = [
            Replacement(first=first, end=end, text=_line(group))
            for (first, end), group in sorted(changes.get(file.path, {}).items())
        ]
        more = added if file is site.main else []
        edits[file.path] = FileEdit(
            path=file.path,
            present=file.present,
            after=changed(file.own, SLURM, replacements, more),
            lines=(*(each.text.strip() for each in replacements), *more),
        )
    return list(edits.values())


def _line(group: list[tuple[Located, str]]) -> str:
    """One line with several of its values changed, the last first, so that places stay right."""
    text = group[0][0].setting.line.text
    for located, value in sorted(group, key=lambda each: -each[0].setting.start):
        setting = located.setting
        text = f"{text[: setting.start]}{setting.written(value)}{text[setting.end :]}"
    return text


def _lua_edit(site: SiteConf, kind: Filter, text: str | None) -> FileEdit:
    path = f"{site.folder}/{kind.name}"
    return FileEdit(
        path=path,
        present=text,
        after=with_ours(text or "", kind, path),
        lines=tuple(lines(kind)),
    )


def _plugstack_edit(site: SiteConf, text: str | None) -> FileEdit:
    path = f"{site.folder}/plugstack.conf"
    line = f"optional {SPANK_FILE}"
    return FileEdit(
        path=path,
        present=text,
        after=changed(restored(text or "", SLURM, path), SLURM, added=(line,)),
        lines=(line,),
    )


def _advice(site: SiteConf, parts: frozenset[str], wanted: Mapping[str, str]) -> list[str]:
    """What a site should know of its own settings; nothing of it is changed."""
    found = timeouts(lambda key: wanted.get(key) or site.value(key))
    flags = site.value("PrologFlags").lower()
    if "runinjob" in flags:
        found.append(
            "PrologFlags has RunInJob: the prolog then runs inside of the job's own limits, and its time and "
            "memory are the job's"
        )
    if site.value("JobRequeue", "1") == "0" and PROLOG.name in parts:
        found.append(
            "JobRequeue=0: what is submitted past the submit filter cannot go back to the queue when its "
            "image went missing at the last moment"
        )
    if "cred_expire" not in site.value("AuthInfo"):
        found.append(
            "AuthInfo has no cred_expire: a job that goes back to the queue starts again after 121 s at the "
            "earliest; AuthInfo=cred_expire=30 makes that 31 s"
        )
    return found
