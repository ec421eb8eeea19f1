"""Scripts that complete command lines, made from the parser, so that they cannot disagree with it."""

from __future__ import annotations

import argparse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.cli.arguments import VerbParser

# What a verb's first argument is completed with: images by digest, or files.
IMAGES, FILES = "image", "file"
KINDS = {"IMAGE": IMAGES, "SOURCE": FILES}

BASH = r"""# bash completion for cachemgr
_cachemgr_images() {
    cachemgr ls --noheader --quiet 2>/dev/null </dev/null | awk '{print $1}'
}
_cachemgr() {
    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} verb= word
    COMPREPLY=()
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case $word in
            @VERBS@) verb=$word; break ;;
        esac
    done
    case $previous in
        --pool) COMPREPLY=($(compgen -d -- "$current")); return ;;
        --socket|--config|--context) COMPREPLY=($(compgen -f -- "$current")); return ;;
    esac
    case $verb:$previous in
@CHOICES@
    esac
    if [[ $current == -* ]]; then
        case $verb in
@OPTIONS@
        esac
        return
    fi
    case $verb in
        '') COMPREPLY=($(compgen -W '@NAMES@' -- "$current")) ;;
        @OF_IMAGES@) COMPREPLY=($(compgen -W "$(_cachemgr_images)" -- "$current")) ;;
        @OF_FILES@) COMPREPLY=($(compgen -f -- "$current")) ;;
        completion) COMPREPLY=($(compgen -W 'bash zsh fish' -- "$current")) ;;
    esac
}
complete -o filenames -F _cachemgr cachemgr
"""
ZSH = """#compdef cachemgr
autoload -U +X bashcompinit && bashcompinit
"""


def script(shell: str, parser: VerbParser) -> str:
    if shell == "fish":
        return _fish(parser)
    bash = _bash(parser)
    return ZSH + bash if shell == "zsh" else bash


def verbs(parser: VerbParser) -> dict[str, VerbParser]:
    """The verbs with their parsers, in the order of help."""
    below = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(below[0].choices) if below else {}


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """What begins with a dash and is shown in help."""
    return [each for each in parser._actions if each.option_strings and each.help != argparse.SUPPRESS]


def _bash(parser: VerbParser) -> str:
    found = verbs(parser)
    common = [name for action in options(parser) for name in action.option_strings]
    option_lines = [f"            '') {_words(common)} ;;"]
    choice_lines = []
    for verb, below in found.items():
        own = [name for action in options(below) for name in action.option_strings]
        option_lines.append(f"            {verb}) {_words(sorted({*own, *common}))} ;;")
        choice_lines += [
            f"        {verb}:{name}) {_words([str(choice) for choice in action.choices])}; return ;;"
            for action in options(below)
            if action.choices
            for name in action.option_strings
        ]
    filled = {
        "@VERBS@": "|".join(found),
        "@NAMES@": " ".join(found),
        "@CHOICES@": "\n".join(choice_lines),
        "@OPTIONS@": "\n".join(option_lines),
        "@OF_IMAGES@": "|".join(_of_kind(found, IMAGES)),
        "@OF_FILES@": "|".join(_of_kind(found, FILES)),
    }
    text = BASH
    for mark, value in filled.items():
        text = text.replace(mark, value)
    return text


def _words(words: list[str]) -> str:
    return f"COMPREPLY=($(compgen -W '{' '.join(words)}' -- \"$current\"))"


def _of_kind(found: dict[str, VerbParser], kind: str) -> list[str]:
    return [
        verb
        for verb, below in found.items()
        if any(
            KINDS.get(str(action.metavar)) == kind for action in below._actions if not action.option_strings
        )
    ]


def _fish(parser: VerbParser) -> str:
    found = verbs(parser)
    is_verb = f"__fish_seen_subcommand_from {' '.join(found)}"
    lines = ["# fish completion for cachemgr", "complete -c cachemgr -f"]
    lines += [_fish_option("", action) for action in options(parser)]
    for verb, below in found.items():
        summary = _quoted((below.description or "").rstrip("."))
        lines.append(f"complete -c cachemgr -n 'not {is_verb}' -a {verb} -d {summary}")
        seen = f" -n '__fish_seen_subcommand_from {verb}'"
        own = [action for action in options(below) if "--help" not in action.option_strings]
        lines += [_fish_option(seen, action) for action in own]
    images, files = " ".join(_of_kind(found, IMAGES)), " ".join(_of_kind(found, FILES))
    listed = r"(cachemgr ls --noheader --quiet 2>/dev/null | string replace -r '\s.*' '')"
    lines += [
        f'complete -c cachemgr -n "__fish_seen_subcommand_from {images}" -a "{listed}"',
        f'complete -c cachemgr -n "__fish_seen_subcommand_from {files}" -F',
        'complete -c cachemgr -n "__fish_seen_subcommand_from completion" -a "bash zsh fish"',
    ]
    return "\n".join([*lines, ""])


def _fish_option(condition: str, action: argparse.Action) -> str:
    names = " ".join(
        f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in action.option_strings
    )
    takes = "" if action.nargs == 0 else " -r"
    choices = f" -a {_quoted(' '.join(map(str, action.choices)))}" if action.choices else ""
    return f"complete -c cachemgr{condition} {names}{takes}{choices} -d {_quoted(action.help or '')}"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("%%", "%") + "'"
