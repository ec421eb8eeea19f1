"""The verb `mirror`: a login for the node's mirror, in the file where container runtimes look for logins."""

from __future__ import annotations

import base64
import json
import os
import tempfile

from cachemgr.base.errors import BadRequest
from cachemgr.cli import arguments as args
from cachemgr.cli.answers import read

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession

LOGIN_S = 86_400
MOST_BYTES = 1 << 20


def add(commands: VerbParsers) -> None:
    mirror = commands.add(
        "mirror",
        _mirror,
        "let podman, skopeo, buildah and containerd fetch images of layers from this node's pool",
        "mirror $TMPDIR/auth.json",
    )
    mirror.add_argument(
        "file", metavar="FILE", help="where the login is written: give it to them as REGISTRY_AUTH_FILE"
    )
    args.add_until(mirror, what="the login counts")


def _mirror(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import MirrorLogin, MirrorRequest

    until_s = args.until_s(arguments, session.clock.now_s(), LOGIN_S) or 0
    login = read(MirrorLogin, session.ask("mirror", MirrorRequest(until_s)))
    try:
        write_login(arguments.file, login.address, login.user, login.password)
    except OSError as error:
        raise BadRequest(f"{arguments.file} cannot be written: {error.strerror}") from error
    session.show({"address": login.address, "until_s": login.until_s}, login.address)


def write_login(path: str, address: str, user: str, password: str) -> None:
    """Put a login into a file of logins, beside those that are there; it is its owner's alone."""
    found: dict[str, object] = {}
    try:
        with open(path, encoding="utf-8") as file:
            found = json.loads(file.read(MOST_BYTES))
    except FileNotFoundError:
        """A new one is made."""
    except ValueError as error:
        raise BadRequest(f"{path} is not a file of logins: name another") from error
    auths = found.get("auths", {}) if isinstance(found, dict) else None
    if not isinstance(auths, dict):
        raise BadRequest(f"{path} is not a file of logins: name another")
    login = {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}
    text = json.dumps({**found, "auths": {**auths, address: login}}, indent=1)
    # Made with the mode 0600, beside it, so that nobody reads half of it, or reads it at all.
    handle, beside = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)))
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(beside, path)
