"""Writes the manual page of `cachemgr` from its parser, so that the two cannot disagree."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from cachemgr.cli.completion import options, verbs
from cachemgr.cli.exits import meanings
from cachemgr.cli.main import parser

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/man/cachemgr.8"
HEAD = r""".\" Made by tools/manpage.py from the parser: change that and run `make man`.
.TH CACHEMGR 8 "" "Outrider" "System Administration"
.SH NAME
cachemgr \- the pool of images on a node
.SH SYNOPSIS
.B cachemgr
.RI [ options ]
.I verb
.RI [ arguments ]
.SH DESCRIPTION
.B cachemgr
keeps images of virtual machines and containers in a folder of this node, the pool: within a limit,
whole, and where a job can have a copy of its own in milliseconds.
A verb is asked of the daemon on its socket. Where no daemon answers, root and the pool's user
have it carried out in the same process.
.PP
Sizes are written 4096, 600MB (SI) or 2GiB (IEC), rates 100Mbit or 12.5MB/s, lengths of time 90s,
10m, 2h30m, 7d or 2w, points in time 2026-01-31T14:00 (local), 2026-01-31T14:00Z or +2h (from now).
An image is named by its address, its sha256 digest, the first four or more digits of that, or the
last part of its address.
"""
TAIL = r""".SH FILES
.TP
.I /etc/outrider/cachemgr.conf
the configuration; every option with its meaning: \fBcachemgr config \-\-example\fR
.TP
.I /var/cache/outrider
the pool, if the configuration says nothing else
.TP
.I /run/outrider/cachemgr.sock
the daemon's socket, if the configuration says nothing else
"""


def page() -> str:
    top = parser()
    parts = [HEAD, ".SH OPTIONS\n", *(option_entry(each) for each in options(top)), ".SH VERBS\n"]
    parts += [_verb(verb, below) for verb, below in verbs(top).items()]
    parts += [TAIL, ".SH EXIT STATUS\n"]
    parts += [f".TP\n.B {code}\n{escaped(meaning)}\n" for code, meaning in meanings().items()]
    return "".join(parts)


def _verb(verb: str, below: argparse.ArgumentParser) -> str:
    actions = [each for each in options(below) if "--help" not in each.option_strings]
    named = [str(each.metavar) for each in below._actions if not each.option_strings]
    usage = " ".join([verb, *named, *(["[options]"] if actions else [])])
    text = f'.SS "cachemgr {escaped(usage)}"\n{escaped(below.description or "")}\n'
    return text + "".join(option_entry(each) for each in actions)


def option_entry(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else f" \\fI{escaped(_value(action))}\\fR"
    names = ", ".join(f"\\fB{escaped(name)}\\fR" for name in action.option_strings)
    return f".TP\n{names}{value}\n{escaped(_told(action))}\n"


def _told(action: argparse.Action) -> str:
    """Its help as argparse prints it, with the default in its place."""
    return (action.help or "").replace("%(default)s", str(action.default))


def _value(action: argparse.Action) -> str:
    if action.choices:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


def escaped(text: str) -> str:
    plain = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "").replace("%%", "%")
    plain = plain.replace("…", "...")
    return re.sub(r"^([.'])", r"\\&\1", plain, flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(page())
