"""`outrider login`, `logout` and `logins`: a user's names and passwords at registries, kept by the "
"service."""

from __future__ import annotations

import argparse
import getpass
import os
import sys

from outrider.cli.arguments import Subparsers
from outrider.cli.asking.session import add_asking, session
from outrider.cli.errors import InputError
from outrider.cli.output import print_json
from outrider_client.transport import printable_line

MOST_PASSWORD = 8_192
_LOGIN = """The name and the password are taken from podman's or docker's files (auth.json, config.json) or
from ~/.netrc, or are asked for. They are never an argument. The service keeps them sealed and uses them for
your own images alone. It has to be on this machine.

examples:
  podman login registry.example.org; outrider login registry.example.org
  outrider login registry.example.org --username ada
  outrider login registry.example.org --username ada --password-stdin < token
"""
_LOGOUT = """What was accepted already keeps its image.

examples:
  outrider logout registry.example.org
"""
_LOGINS = """examples:
  outrider logins
"""


def add(commands: Subparsers) -> None:
    parser = add_asking(commands, "login", login, "let the service pull your private images", _LOGIN)
    parser.add_argument("host", metavar="HOST", help="the registry, as references name it: HOST or HOST:PORT")
    parser.add_argument("--username", metavar="NAME", help="your name there; the password is asked for")
    parser.add_argument("--password-stdin", action="store_true", help="read the password from stdin")
    parser = add_asking(commands, "logout", logout, "give a login up", _LOGOUT)
    parser.add_argument("host", metavar="HOST", help="the registry")
    add_asking(commands, "logins", logins, "list your logins, without passwords", _LOGINS)


def login(arguments: argparse.Namespace) -> None:
    user, password = _wanted(arguments)
    asking = session(arguments)
    answer = asking.client.post("/v1/logins", {"host": arguments.host, "user": user, "password": password})
    if asking.is_json:
        print_json(answer)
        return
    host = answer.get("host") if isinstance(answer, dict) else arguments.host
    print(f"logged in at {printable_line(str(host))} as {printable_line(user)}")


def logout(arguments: argparse.Namespace) -> None:
    from urllib.parse import quote

    asking = session(arguments)
    answer = asking.client.delete(f"/v1/logins?host={quote(arguments.host, safe='')}")
    if asking.is_json:
        print_json(answer)
        return
    print(f"logged out at {printable_line(arguments.host)}")


def logins(arguments: argparse.Namespace) -> None:
    from outrider.service.answers.logins import LoginList

    asking = session(arguments)
    found = asking.shown(LoginList, asking.client.get("/v1/logins"))
    if found is None:
        return
    for each in found.logins:
        name = printable_line(each.user) or "(cannot be read any more: log in again)"
        print(f"{printable_line(each.host)}  {name}")


def _wanted(arguments: argparse.Namespace) -> tuple[str, str]:
    from outrider.cli.registries.authfiles import find

    if arguments.username is None:
        if arguments.password_stdin:
            raise InputError("--password-stdin needs --username, too")
        found = find(arguments.host, os.environ)
        if found is not None:
            print(f"outrider: taken from {found[2]}", file=sys.stderr)
            return found[0], found[1]
        if not sys.stdin.isatty():
            raise InputError(
                f"there is no login for {arguments.host} in auth.json, config.json or ~/.netrc: "
                f"`podman login {arguments.host}` first, or use --username"
            )
        user = input(f"name at {arguments.host}: ")
    else:
        user = arguments.username
    if arguments.password_stdin:
        return user, sys.stdin.read(MOST_PASSWORD + 2).rstrip("\r\n")
    return user, getpass.getpass(f"password of {user} at {arguments.host}: ")
