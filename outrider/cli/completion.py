"""`outrider completion`: scripts for shells, made from the parsers, so that the two cannot disagree."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from outrider.cli.arguments import Parser, Subparsers, add_command

SHELLS = ("bash", "zsh", "fish")
RESERVATIONS = "outrider list --noheader --timeout 1 2>/dev/null </dev/null"
"""What names of reservations are taken from: the first column."""
_OF_NAMES = ("NAME",)
_OF_FILES = ("FILE", "WORKSPACE", "SCRIPT", "PATH", "WORKLOAD", "IN", "OUT")
_FISH_NAMES = rf"({RESERVATIONS} | string replace -r '\s.*' '')"
_EPILOG = """examples:
  outrider completion bash > /etc/bash_completion.d/outrider
  outrider completion zsh > "${fpath[1]}/_outrider"
  outrider completion fish > ~/.config/fish/completions/outrider.fish
"""
_BASH = r"""# bash completion for outrider
_outrider() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} verb= word
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$verb $word" in
@STEPS@
        esac
    done
    case "$verb:$previous" in
@VALUES@
    esac
    if [[ $current == -* ]]; then
        case $verb in
@OPTIONS@
        esac
        return
    fi
    case $verb in
@OPERANDS@
    esac
}
complete -o filenames -F _outrider outrider
"""
_ZSH = """#compdef outrider
autoload -U +X bashcompinit && bashcompinit
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verb:
    """A command with the words that lead to it: `sim table`; the empty text is outrider itself."""

    words: str
    summary: str
    parser: argparse.ArgumentParser
    below: tuple[str, ...]


def add(commands: Subparsers, parser: Callable[[], Parser]) -> None:
    def completion(arguments: argparse.Namespace) -> None:
        print(script(arguments.shell, parser()), end="")

    below = add_command(commands, "completion", completion, "print a script that completes commands", _EPILOG)
    below.add_argument("shell", metavar="SHELL", choices=SHELLS, help="bash, zsh or fish")


def script(shell: str, parser: Parser) -> str:
    if shell == "fish":
        return _fish(list(verbs(parser)))
    bash = _bash(list(verbs(parser)))
    return _ZSH + bash if shell == "zsh" else bash


def verbs(parser: argparse.ArgumentParser, words: str = "", summary: str = "") -> Iterator[Verb]:
    """A parser and all below it, in the order of help."""
    groups = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    children = dict(groups[0].choices) if groups else {}
    yield Verb(words=words, summary=summary, parser=parser, below=tuple(children))
    helps = {each.dest: each.help or "" for each in groups[0]._choices_actions} if groups else {}
    for name, child in children.items():
        yield from verbs(child, f"{words} {name}".strip(), helps.get(name, ""))


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """What begins with a dash and is shown in help."""
    return [each for each in parser._actions if each.option_strings and each.help != argparse.SUPPRESS]


def operands(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """What stands without a dash, apart from commands."""
    return [
        each
        for each in parser._actions
        if not each.option_strings and not isinstance(each, argparse._SubParsersAction)
    ]


def _kind(action: argparse.Action) -> str:
    metavar = str(action.metavar or "")
    if metavar in _OF_NAMES:
        return "names"
    return "files" if metavar in _OF_FILES else ""


def _bash(found: list[Verb]) -> str:
    filled = {
        "@STEPS@": [_bash_step(each) for each in found if each.words],
        "@VALUES@": [line for each in found for line in _bash_values(each)],
        "@OPTIONS@": [f"        {_label(each)}) {_bash_words(_names(each))} ;;" for each in found],
        "@OPERANDS@": [line for each in found for line in _bash_operands(each)],
    }
    text = _BASH
    for mark, lines in filled.items():
        text = text.replace(mark, "\n".join(lines))
    return text


def _bash_step(verb: Verb) -> str:
    """From the words so far and one more to the command that they are."""
    before, _, word = verb.words.rpartition(" ")
    return f'            "{before} {word}") verb="{verb.words}" ;;'


def _label(verb: Verb) -> str:
    return f"'{verb.words}'"


def _names(verb: Verb) -> list[str]:
    return sorted(name for action in options(verb.parser) for name in action.option_strings)


def _bash_words(words: list[str]) -> str:
    return f"COMPREPLY=($(compgen -W '{' '.join(words)}' -- \"$current\"))"


def _bash_values(verb: Verb) -> Iterator[str]:
    """What follows an option that takes a value."""
    for action in options(verb.parser):
        if action.nargs == 0:
            continue
        patterns = "|".join(f"'{verb.words}:{name}'" for name in action.option_strings)
        yield f"        {patterns}) {_bash_of(action)} return ;;"


def _bash_operands(verb: Verb) -> Iterator[str]:
    if verb.below:
        yield f"        {_label(verb)}) {_bash_words(list(verb.below))} ;;"
        return
    for action in operands(verb.parser)[:1]:
        yield f"        {_label(verb)}) {_bash_of(action)} ;;"


def _bash_of(action: argparse.Action) -> str:
    if action.choices:
        return f"{_bash_words([str(choice) for choice in action.choices])};"
    if _kind(action) == "names":
        return f'COMPREPLY=($(compgen -W "$({RESERVATIONS} | awk \'{{print $1}}\')" -- "$current"));'
    return 'COMPREPLY=($(compgen -f -- "$current"));' if _kind(action) == "files" else ""


def _fish(found: list[Verb]) -> str:
    lines = ["# fish completion for outrider", "complete -c outrider -f"]
    for each in found:
        seen = _fish_condition(each)
        for name in each.below:
            child = next(other for other in found if other.words == f"{each.words} {name}".strip())
            lines.append(f"complete -c outrider -n {_quoted(seen)} -a {name} -d {_quoted(child.summary)}")
        own = [action for action in options(each.parser) if "--help" not in action.option_strings]
        lines += [_fish_option(seen, action) for action in own]
        lines += [
            f"complete -c outrider -n {_quoted(seen)}{_fish_of(action)}"
            for action in operands(each.parser)[:1]
            if _fish_of(action)
        ]
    return "\n".join([*lines, ""])


def _fish_condition(verb: Verb) -> str:
    """That exactly these words have been typed, and no command below."""
    seen = [f"__fish_seen_subcommand_from {word}" for word in verb.words.split()]
    seen += [f"not __fish_seen_subcommand_from {' '.join(verb.below)}"] if verb.below else []
    return "; and ".join(seen) or "true"


def _fish_option(seen: str, action: argparse.Action) -> str:
    names = " ".join(
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in action.option_strings
    )
    takes = "" if action.nargs == 0 else f" -r{_fish_of(action)}"
    return f"complete -c outrider -n {_quoted(seen)} {names}{takes} -d {_quoted(action.help or '')}"


def _fish_of(action: argparse.Action) -> str:
    if action.choices:
        return f" -a {_quoted(' '.join(map(str, action.choices)))}"
    if _kind(action) == "names":
        return f" -a {_quoted(_FISH_NAMES)}"
    return " -F" if _kind(action) == "files" else ""


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%") + "'"
