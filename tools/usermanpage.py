"""Writes the manual page of `outrider` from its parsers, so that the two cannot disagree."""

from __future__ import annotations

import argparse
from pathlib import Path

from outrider.cli.asking.session import COMMON
from outrider.cli.completion import Verb, operands, options, verbs
from outrider.cli.errors import MEANINGS
from outrider.cli.main import parser
from tools.manpage import escaped, option_entry

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/man/outrider.1"
HEAD = r""".\" Made by tools/usermanpage.py from the parsers: change those and run `make man`.
.TH OUTRIDER 1 "" "Outrider" "User Commands"
.SH NAME
outrider \- have an image on its nodes before a job's clock starts
.SH SYNOPSIS
.B outrider
.I command
.RI [ options ]
.SH DESCRIPTION
.B outrider
asks outriderd, the reservation service, over its socket: for nodes that have an image when the time
comes, for what became of such a promise, and for what is on the nodes.
The commands below
.B sim
and
.B check
need no service.
.PP
Times are written as for Slurm (16:00, tomorrow 16:00, now+8hours) or ISO 8601 (2027-01-31T14:00), in
the zone that TZ names or else the machine's; lengths of time 90 (minutes), 2h30m, 1:30:00; sizes
600MB (SI) or 2GiB (IEC); nodes n[1-4,7]. A reservation is named by its whole name, render-17, or by
its workspace's, render, if only one of yours that is not over has it.
"""
TAIL = r""".SH ENVIRONMENT
.TP
.B OUTRIDER_SOCKET
the service's socket, if neither \-\-socket nor \-\-server is given
.TP
.B OUTRIDER_SERVER
host and port of the service on another machine, in place of its socket
.TP
.B TZ
the zone that times are read and shown in
.TP
.B NO_COLOR
no colours on terminals
.TP
.B COLUMNS
how wide a timeline is drawn
.SH FILES
.TP
.I /run/outrider/outriderd.sock
the service's socket, if nothing else is said
.TP
.I /etc/outrider/outriderd.yaml
the service's configuration
"""


def page() -> str:
    found = list(verbs(parser()))
    common = next(each for each in found if each.words == "status")
    parts = [HEAD, ".SH OPTIONS\n", *(option_entry(each) for each in options(found[0].parser))]
    parts += [".SH COMMON OPTIONS\nOf every command that asks the service.\n"]
    parts += [option_entry(each) for each in options(common.parser) if each.dest in COMMON]
    parts += [".SH COMMANDS\n", *(_verb(each) for each in found[1:] if not each.below)]
    parts += [TAIL, ".SH EXIT STATUS\n"]
    parts += [f".TP\n.B {code}\n{escaped(meaning)}\n" for code, meaning in MEANINGS.items()]
    parts.append(".TP\n.B 20\\-29\nof restore: what went wrong with the store\n")
    return "".join(parts)


def _verb(verb: Verb) -> str:
    asks = any(action.dest == "socket" for action in options(verb.parser))
    own = [
        action
        for action in options(verb.parser)
        if "--help" not in action.option_strings and not (asks and action.dest in COMMON)
    ]
    named = [_operand(action) for action in operands(verb.parser)]
    usage = " ".join(["outrider", verb.words, *(["[options]"] if own else []), *named])
    text = f'.SS "{escaped(usage)}"\n{escaped(verb.parser.description or "")}\n'
    return text + "".join(option_entry(action) for action in own)


def _operand(action: argparse.Action) -> str:
    name = str(action.metavar or action.dest.upper())
    return {
        "?": f"[{name}]",
        "*": f"[{name} ...]",
        "+": f"{name} ...",
        argparse.REMAINDER: f"[{name} ...]",
    }.get(str(action.nargs), name)


if __name__ == "__main__":
    PAGE.write_text(page())
