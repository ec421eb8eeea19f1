"""Writes the manual pages of files, from what checks those files: the configuration's models, the schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from outrider.service.daemon.configuration.table import keys as configuration_keys
from tools.manpage import escaped
from tools.packages.tree import NODE_UNITS, ROOT

FOLDER = ROOT / "docs/man"
METADATA = ROOT / "outrider/metadata"
_HEAD = r""".\" Made by tools/packages/filemanpages.py: change what checks the file and run `make man`.
.TH {title} 5 "" "Outrider" "File Formats"
.SH NAME
{name} \- {summary}
.SH DESCRIPTION
{words}
"""
_FORMS = """Sizes are written 600MB (SI) or 2GiB (IEC), lengths of time 90s or 2h30m; a bare number
counts minutes. Unknown keys are errors, and all faults of a file are reported at once.
"""
_CONFIGURATION = f"""The configuration of outriderd, in YAML: /etc/outrider/outriderd.yaml comes first, then
conf.d/*.yaml beside it in the order of their names. Later files override earlier ones: mappings are
merged, lists are replaced. A variable of the environment overrides any file.
{_FORMS}outriderd \\-\\-check reads it and ends; outriderd \\-\\-example prints every key as a comment."""
_POLICIES = f"""Who may reserve what, how much of it, and how leases are decided: the file that the key
policies of outriderd.yaml (5) names. SIGHUP lets outriderd read it again; with a fault in it the old one
stays in force.
{_FORMS}outrider check \\-\\-policies FILE reads it and ends."""
_WORKSPACE = f"""What a user wants of the cluster, for outrider reserve \\-f FILE and outrider plan \\-f FILE.
{_FORMS}outrider check FILE reads it and ends."""
_NODE = """The configuration of cachemgr on a node, /etc/outrider/cachemgr.conf, with one section
[cachemgr]. cachemgr config \\-\\-example prints it; cachemgr config shows what is in force."""


def configuration() -> str:
    """Of the service."""
    parts = [_head("outriderd.yaml", "configuration of outriderd", _CONFIGURATION), ".SH KEYS\n"]
    for key, variable, default, meaning in configuration_keys():
        told = [meaning, *([f"Variable: {variable}."] if variable else [])]
        parts.append(_entry(key, default.strip("`"), ". ".join(each.rstrip(".") for each in told)))
    return "".join([*parts, _also("outriderd (8)", "outrider\\-policies (5)")])


def policies() -> str:
    head = _head("outrider-policies", "policies of a site for reservations", _POLICIES)
    return head + _sections("policies") + _also("outriderd.yaml (5)", "outrider (1)")


def workspace() -> str:
    head = _head("outrider-workspace", "a reservation's image, nodes and times", _WORKSPACE)
    return head + _sections("workspace") + _also("outrider (1)")


def node() -> str:
    """Of the image pool, from its example: pairs of comments and options."""
    parts, meaning = (
        [_head("cachemgr.conf", "configuration of a node's image pool", _NODE), ".SH OPTIONS\n"],
        "",
    )
    for line in (NODE_UNITS / "cachemgr.conf").read_text().splitlines():
        option, is_option, default = line.removeprefix("# ").partition(" =")
        if line.startswith("#") and is_option and " " not in option:
            parts.append(_entry(option, default.strip(), meaning))
        meaning = line.removeprefix("# ")
    return "".join([*parts, _also("cachemgr (8)")])


PAGES = {
    "outriderd.yaml.5": configuration,
    "outrider-policies.5": policies,
    "outrider-workspace.5": workspace,
    "cachemgr.conf.5": node,
}


def _head(name: str, summary: str, words: str) -> str:
    return _HEAD.format(
        title=name.upper().replace("-", "\\-"), name=name.replace("-", "\\-"), summary=summary, words=words
    )


def _sections(form: str) -> str:
    """The keys at the top of a schema, then those of each section in the order in which they are named."""
    schema = json.loads((METADATA / f"{form}.schema.json").read_text())
    parts, known = [".SH KEYS\n"], {""}
    waiting: list[tuple[str, Mapping[str, Any]]] = [("", schema)]
    while waiting:
        path, section = waiting.pop(0)
        if path:
            parts.append(f'.SS "{escaped(path)}"\n{escaped(str(section.get("description", "")))}\n')
        needed = section.get("required", ())
        for name, each in section["properties"].items():
            default = "has to be written" if name in needed else _plain(each.get("default"))
            parts.append(_entry(name, default, str(each["description"]), is_needed=name in needed))
            for title, is_list in _named(each):
                if title not in known:
                    known.add(title)
                    below = ".".join([*([path] if path else []), name + ("[]" if is_list else "")])
                    waiting.append((below, schema["$defs"][title]))
    return "".join(parts)


def _named(part: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """The sections that a key's value is, or is a list of."""
    for place, is_list in (
        (part, False),
        (part.get("items", {}), True),
        (part.get("additionalProperties", {}), False),
    ):
        if isinstance(place, Mapping):
            for each in (place, *place.get("anyOf", ())):
                if "$ref" in each:
                    yield str(each["$ref"]).rpartition("/")[2], is_list


def _plain(value: object) -> str:
    return "" if value is None else json.dumps(value)


def _entry(name: str, default: str, meaning: str, *, is_needed: bool = False) -> str:
    told = default if is_needed else f"default: {default}" if default else ""
    return f".TP\n.B {escaped(name)}\n{escaped(meaning)}{f' ({escaped(told)})' if told else ''}\n"


def _also(*names: str) -> str:
    listed = ",\n".join(f".BR {each}" for each in names)
    return f".SH SEE ALSO\n{listed.replace(',', ' ,')}\n"


def main() -> None:
    for name, made in PAGES.items():
        Path(FOLDER / name).write_text(made())


if __name__ == "__main__":
    main()
