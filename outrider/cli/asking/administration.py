"""`outrider policies`, `reconcile`, `backup` and `restore`: for administrators."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from outrider.cli.arguments import Parser, Subparsers, add_command
from outrider.cli.asking.session import add_asking, session
from outrider.cli.errors import InputError, MissingPartError, StoreFailedError
from outrider.cli.output import print_json
from outrider_client.transport import printable_line

STORE = "/var/lib/outrider/outriderd.sqlite"
_POLICIES = """examples:
  outrider policies reload
"""
_RECONCILE = """What differs is mended where that can be done without harm, and told line by line.

examples:
  outrider reconcile
"""
_BACKUP = """The copy is made while the service runs, read through, and only then gets its name. A file that
is there already is not overwritten.

examples:
  outrider backup /var/backups/outrider-2027-01-31.db
"""
_MIGRATE = """From SQLite to PostgreSQL or back. The service has to be stopped on every head. The old store
stays as it is.

examples:
  outrider store migrate /var/lib/outrider/outriderd.sqlite postgresql://outrider@db/outrider
"""
_RESTORE = """The service has to be stopped. What was there before is kept beside it under another name: it
may hold later promises. Exit codes from 20 to 30 are the store's.

examples:
  systemctl stop outriderd && outrider restore /var/backups/outrider-2027-01-31.db
"""


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "policies", help="have the service read its policies again",
        description="have the service read its policies again.", epilog=_POLICIES,
    )  # fmt: skip
    parser.set_defaults(command=_no_command)
    below = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    add_asking(
        below,
        "reload",
        reload,
        "read the policies' file again; if it has faults, the old ones stay",
        _POLICIES,
    )
    add_asking(commands, "reconcile", reconcile, "compare store, batch system and nodes now", _RECONCILE)
    parser = add_asking(commands, "backup", backup, "copy the service's store while it runs", _BACKUP)
    parser.add_argument("path", metavar="FILE", help="where the copy goes, on the service's machine")
    parser = commands.add_parser(
        "store", help="copy a store into another database",
        description="copy a store into another database.", epilog=_MIGRATE,
    )  # fmt: skip
    parser.set_defaults(command=_no_store_command)
    below = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    parser = add_command(below, "migrate", migrate, "copy a store and compare every row", _MIGRATE)
    parser.add_argument("source", metavar="FROM", help="a file, or postgresql://...")
    parser.add_argument("target", metavar="TO", help="the same; nothing may be there yet")
    parser = add_command(commands, "restore", restore, "put a copy of the store back", _RESTORE)
    parser.add_argument("backup", metavar="FILE", help="the copy")
    parser.add_argument("--store", metavar="PATH", default=STORE, help=f"the store ({STORE})")


def reload(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.words import plural

    asking = session(arguments)
    answer = asking.client.post("/v1/policies/reload", None)
    if asking.is_json:
        print_json(answer)
        return
    found = answer.get("rules") if isinstance(answer, dict) else None
    print(f"policies are in force: {plural(found, 'rule') if isinstance(found, int) else found}")


def reconcile(arguments: argparse.Namespace) -> None:
    from outrider.service.answers.nodes import Reconciled

    asking = session(arguments)
    found = asking.shown(Reconciled, asking.client.post("/v1/reconcile", None))
    if found is not None:
        print("\n".join(map(printable_line, found.findings)) or "nothing differs")


def backup(arguments: argparse.Namespace) -> None:
    from outrider.cli.asking.display.words import plural

    asking = session(arguments)
    answer = asking.client.post("/v1/backups", {"path": os.path.abspath(arguments.path)})
    if asking.is_json:
        print_json(answer)
        return
    fields = answer if isinstance(answer, dict) else {}
    path, count = printable_line(str(fields.get("path"))), fields.get("reservations")
    told = plural(count, "reservation") if isinstance(count, int) else "reservations"
    print(f"{path}: {told}, read again and whole")


def restore(arguments: argparse.Namespace) -> None:
    from cachemgr.base.clock import SystemClock
    from outrider.store.errors import StoreError
    from outrider.store.sqlite.backup import put_back

    try:
        moved = put_back(Path(arguments.backup), Path(arguments.store), SystemClock().now_s())
    except StoreError as error:
        raise StoreFailedError(str(error), error.exit_code) from error
    print(f"{arguments.store} is what {arguments.backup} was")
    for path in moved:
        print(f"what was there before: {path}")


def migrate(arguments: argparse.Namespace) -> None:
    from cachemgr.base.clock import SystemClock
    from outrider.store.errors import StoreError
    from outrider.store.migration import migrate_store

    try:
        found = migrate_store(arguments.source, arguments.target, SystemClock().now_s())
    except StoreError as error:
        raise StoreFailedError(str(error), error.exit_code) from error
    except ImportError as error:
        if error.name != "psycopg":
            raise
        raise MissingPartError("a store in PostgreSQL needs psycopg: install outrider[postgresql]") from error
    for table, count in found.rows.items():
        print(f"{table}: {count:,} rows, the same in both")
    print(f"now name {arguments.target} as store in outriderd.yaml")


def _no_store_command(arguments: object) -> None:
    raise InputError("no command given after store; try outrider store migrate")


def _no_command(arguments: object) -> None:
    raise InputError("no command given after policies; try outrider policies reload")
