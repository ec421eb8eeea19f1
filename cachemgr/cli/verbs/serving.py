"""`cachemgr serve`: the daemon in this process, in the foreground."""

from __future__ import annotations

import os
import sys

from cachemgr import config
from cachemgr.cli.askers import owner_of
from cachemgr.cli.identity import user_name
from cachemgr.daemon.main import run

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.session import VerbSession


def serve(session: VerbSession, arguments: argparse.Namespace) -> None:
    """Until SIGTERM or Ctrl-C. The file, then the environment, then the command line count."""
    texts = session.texts
    texts.update(config.environment_texts(os.environ))
    texts.update(session.given)
    found = config.config(texts)
    owner = owner_of(found.pool)
    if os.geteuid() == 0 and owner and not found.user:
        # What root makes in another's pool its owner could not read.
        texts["user"] = user_name(owner)
        session.say(f"the pool {found.pool} is for {texts['user']}, so the daemon becomes that user")
    code = run(config.config(texts), os.environ, sys.stderr)
    if code:
        # What went wrong is in the log already, which is the daemon's stderr.
        raise SystemExit(code)
