"""Tables of options, keys, requests and states for the site, from the parsers, schemas and the code.

`tools/site_tables.py` puts them in the place of marks such as `<!-- table: options of outrider reserve -->`.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from cachemgr import protocol
from cachemgr.cli.completion import options as verb_options
from cachemgr.cli.completion import verbs as node_verbs
from cachemgr.cli.main import parser as node_parser
from cachemgr.machines.states import STATES
from outrider.cli.asking.session import COMMON
from outrider.cli.completion import Verb, options, verbs
from outrider.cli.errors import MEANINGS
from outrider.cli.main import parser
from outrider.cli.simulate import figure, table
from outrider.service.daemon.main import _parser as service_parser
from outrider.sim.drawings.examples import drawing
from outrider.store.states import STEPS

ROOT = Path(__file__).resolve().parents[1]
METADATA = ROOT / "outrider/metadata"
API = ROOT / "outrider/service/web/openapi.json"
OPTIONS = "options of "
KEYS = "keys of "
MODULES = "modules of "
PROGRAMS = ("outrider", "cachemgr")


def made(name: str) -> str:
    """The table of that name; a name that means none is a KeyError."""
    if name.startswith(OPTIONS):
        return options_of(name.removeprefix(OPTIONS))
    if name.startswith(KEYS):
        return keys_of(name.removeprefix(KEYS))
    if name.startswith(MODULES):
        folder = ROOT / name.removeprefix(MODULES)
        return _opened(folder, [each for each in folder.rglob("*.py") if each.stem != "__init__"])
    return TABLES[name]()


def packages() -> str:
    """Every package of the programs, with the sentence that it opens with."""
    found = [path for program in PROGRAMS for path in (ROOT / program).rglob("__init__.py")]
    return _opened(ROOT, found)


def _opened(folder: Path, sources: list[Path]) -> str:
    rows = []
    for path in sorted(
        sources, key=lambda each: each.parent.as_posix() if each.stem == "__init__" else str(each)
    ):
        named = path.parent if path.stem == "__init__" else path.with_suffix("")
        sentence = (ast.get_docstring(ast.parse(path.read_text())) or "").partition("\n\n")[0]
        rows.append(
            [f"`{named.relative_to(folder).as_posix()}`", " ".join(sentence.split()).replace("|", "\\|")]
        )
    return _table(["where", "what is there"], rows)


def verbs_of_the_daemon() -> str:
    """What a node's daemon is asked, with the fields of each message."""
    rows = []
    for verb, (request, *answers) in protocol.VERBS.items():
        told = "; or ".join(_fields(each) for each in answers)
        rows.append([f"`{verb}`", _fields(request), told])
    return _table(["verb", "fields", "answer"], rows)


def _fields(message: type) -> str:
    """The names of a message's fields, with those of the messages within it."""
    told = []
    for name, kind in fields_of(message).items():
        within = next((each for each in re.findall(r"\w+", kind) if hasattr(protocol, each)), None)
        below = fields_of(getattr(protocol, within)) if within else {}
        told.append(f"`{name}`" + (f" ({', '.join(f'`{each}`' for each in below)})" if below else ""))
    return ", ".join(told)


def fields_of(message: type) -> dict[str, str]:
    """The fields of a message with their types, as `cachemgr.protocol` writes them."""
    found: dict[str, str] = getattr(message, "field_types", {})
    return found


def options_of(command: str) -> str:
    """The options of `outrider reserve`, `cachemgr add`, or of all commands of one of these programs."""
    head = ["option", "meaning"]
    return _table(head, [[f"`{_spelled(each)}`", _help(each)] for each in actions_of(command)])


def actions_of(command: str) -> list[argparse.Action]:
    """What the table of a command shows: not --help, and of a command not what all commands have."""
    program, _, words = command.partition(" ")
    if program == "outriderd":
        return [each for each in service_parser()._actions if each.dest != "help"]
    if program == "cachemgr":
        of = node_verbs(node_parser())[words] if words else node_parser()
        return [each for each in verb_options(of) if each.dest != "help"]
    found = verbs_by_words()
    if not words:
        return [each for each in options(found["status"].parser) if each.dest in COMMON]
    # Of a command with commands below it, such as `outrider sim generate`, what any of them has.
    below = [each for name, each in found.items() if name.startswith(f"{words} ")] or [found[words]]
    named = {each.option_strings[-1]: each for verb in below for each in options(verb.parser)}
    asks = "--socket" in named
    return [e for e in named.values() if e.dest != "help" and not (asks and e.dest in COMMON)]


@cache
def verbs_by_words() -> dict[str, Verb]:
    """Those of `outrider` by their words: to make its parser takes longer than to look at it."""
    return {each.words: each for each in verbs(parser())}


def _spelled(action: argparse.Action) -> str:
    """All spellings, each with what it takes: `-n N`, `--nodes N`."""
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    return "`, `".join(f"{spelling}{value}" for spelling in action.option_strings).replace("|", "\\|")


def _help(action: argparse.Action) -> str:
    text = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
    choices = [str(each) for each in action.choices or ()]
    if any(each not in text for each in choices):
        text += f": {', '.join(f'`{each}`' for each in choices)}"
    return text.replace("|", "\\|")


def keys_of(what: str) -> str:
    """The keys of a section of a workspace or of policies: `workspace DeploymentSection`."""
    form, _, section = what.partition(" ")
    schema = json.loads((METADATA / f"{form}.schema.json").read_text())
    part = schema["$defs"][section] if section else schema
    needed = part.get("required", [])
    rows = [
        [f"`{name}`", _meaning(each), "refused" if name in needed else _default(each)]
        for name, each in part["properties"].items()
    ]
    return _table(["key", "meaning", "when absent"], rows)


def _meaning(key: dict[str, object]) -> str:
    examples = key.get("examples")
    shown = f", such as `{examples[0]}`" if isinstance(examples, list) else ""
    return str(key["description"]).replace("|", "\\|") + shown


def _default(key: dict[str, object]) -> str:
    return "" if key.get("default") is None else f"`{json.dumps(key['default'])}`"


def requests() -> str:
    """Every request of the API, with the names in its query and what a success is."""
    rows = []
    for path, methods in json.loads(API.read_text())["paths"].items():
        for method, each in methods.items():
            query = ", ".join(
                f"`{one['name']}`" for one in each.get("parameters", []) if one["in"] == "query"
            )
            rows.append(
                [f"`{method.upper()} {path}`", each["description"].splitlines()[0], query, _success(each)]
            )
    return _table(["request", "what it does", "query", "success"], rows)


def _success(operation: dict[str, dict[str, dict[str, object]]]) -> str:
    found = [each for each in operation["responses"].items() if each[0].startswith("2")]
    return "; ".join(
        f"{code} {' or '.join(f'`{name}`' for name in _named(each))}".strip() for code, each in found
    )


def _named(answer: object) -> Iterator[str]:
    """The objects of the description that an answer refers to."""
    if isinstance(answer, dict):
        for key, value in answer.items():
            if key == "$ref":
                yield str(value).rpartition("/")[2]
            else:
                yield from _named(value)
    elif isinstance(answer, list):
        for value in answer:
            yield from _named(value)


def states_of_machines() -> str:
    """What a machine's states mean, and what the next call does about them."""
    rows = [
        [f"`{name}`", row.meaning, ", ".join(f"`{each}`" for each in row.follows) or "–", row.alive, row.dead]
        for name, row in STATES.items()
    ]
    return _table(["state", "meaning", "may follow", "alive", "dead"], rows)


def commands() -> str:
    """Every command of `outrider` that needs the service or installs it, with its summary."""
    rows = [
        [f"`outrider {each.words}`", each.summary.replace("|", "\\|")]
        for each in verbs(parser())
        if each.words and not each.below and not each.words.startswith(("sim ", "check"))
    ]
    return _table(["command", "what it does"], rows)


def comparisons() -> str:
    """Every table and figure that is compared with the thesis: its command, and the rows that it wrote."""
    rows = []
    for kind, names in (("table", table.TABLES), ("figure", figure.DRAWINGS | figure.FIGURES)):
        for name in names:
            found = sorted((ROOT / "docs/results").glob(f"{kind}-{name}*.csv"))
            links = ", ".join(f"[{each.stem}](../results/{each.name})" for each in found)
            rows.append([f"`outrider sim {kind} {name}`", links])
    return _table(["command", "rows"], rows)


def drawings() -> str:
    """The thesis' drawings: what it says of each, and where ours shows something else."""
    rows = [
        [f"[{number}](../figures/figure-{number}.svg)", what.says, what.differs or "the same"]
        for number, what in ((number, drawing(number)) for number in figure.DRAWINGS)
    ]
    rows += [[number, reason, "not drawn: no algorithm"] for number, reason in figure.NOT_DRAWN.items()]
    return _table(["drawing", "what the thesis says", "here"], rows)


def steps_of_leases() -> str:
    """From which state of a lease the store allows which others."""
    return _table(
        ["from", "to"],
        [
            [f"`{state.value}`", ", ".join(sorted(f"`{each.value}`" for each in to))]
            for state, to in STEPS.items()
        ],
    )


def exit_codes() -> str:
    """Exit codes of `outrider`."""
    return _table(["code", "meaning"], [[str(code), meaning] for code, meaning in MEANINGS.items()])


def _table(heads: list[str], rows: list[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


TABLES: dict[str, Callable[[], str]] = {
    "commands of outrider": commands,
    "comparisons": comparisons,
    "drawings": drawings,
    "packages": packages,
    "requests": requests,
    "verbs of the daemon": verbs_of_the_daemon,
    "states of machines": states_of_machines,
    "steps of leases": steps_of_leases,
    "exit codes of outrider": exit_codes,
}
