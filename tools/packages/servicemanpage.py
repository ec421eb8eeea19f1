"""Writes the manual page of `outriderd` from its parser and its exit codes."""

from __future__ import annotations

from outrider.service.daemon.errors import MEANINGS
from outrider.service.daemon.main import _parser as parser
from tools.manpage import escaped, option_entry
from tools.packages.tree import ROOT

PAGE = ROOT / "docs/man/outriderd.8"
HEAD = r""".\" Made by tools/packages/servicemanpage.py from the parser: change that and run `make man`.
.TH OUTRIDERD 8 "" "Outrider" "System Administration"
.SH NAME
outriderd \- promise nodes with their images, and keep it
.SH SYNOPSIS
.B outriderd
.RI [ options ]
.SH DESCRIPTION
.B outriderd
accepts or refuses reservations of a cluster's nodes, brings images there in time, and drives the batch
system. It is asked over a socket by
.BR outrider (1).
SIGHUP lets it read the policies again.
.SH OPTIONS
"""
FILES = r""".SH FILES
.TP
.I /etc/outrider/outriderd.yaml
the configuration, and
.I conf.d/*.yaml
beside it; every key with its meaning:
.B outriderd \-\-example
.TP
.I /var/lib/outrider
what was promised
.TP
.I /run/outrider/outriderd.sock
where it is asked
.SH SEE ALSO
.BR outrider (1),
.BR cachemgr (8)
"""


def page() -> str:
    options = "".join(
        option_entry(each) for each in parser()._actions if each.dest not in ("help", "version")
    )
    codes = "".join(f".TP\n.B {code}\n{escaped(words)}\n" for code, words in sorted(MEANINGS.items()))
    return f"{HEAD}{options}.SH EXIT STATUS\n{codes}{FILES}"


if __name__ == "__main__":
    PAGE.write_text(page())
