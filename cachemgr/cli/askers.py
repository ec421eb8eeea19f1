"""Who carries a verb out: the daemon, if one answers for this pool, else the same code in this process."""

from __future__ import annotations

import os

from cachemgr.base.errors import NoDaemon
from cachemgr.base.message import plain
from cachemgr.cli import answers
from cachemgr.cli.identity import user_name
from cachemgr.network.client import DaemonClient
from cachemgr.protocol import PingAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from typing import Protocol

    from cachemgr.base.clock import Clock
    from cachemgr.base.message import ProtocolMessage
    from cachemgr.cli.answers import Result
    from cachemgr.config import NodeConfig

    class Asker(Protocol):
        """Who carries a verb out: the daemon, or the same code in this process."""

        @property
        def where(self) -> str:
            """For people: who it is."""

        @property
        def opens_files(self) -> bool:
            """Whether a local file has to be opened by the caller and passed on."""

        def ask(
            self,
            verb: str,
            request: ProtocolMessage,
            on_progress: Callable[[Result], None] | None = None,
            file: int | None = None,
        ) -> Result:
            """The result. The open file proves the right to read it."""

        def interrupted(self, last: Result) -> str:
            """Ctrl-C while a transfer was being waited for: what becomes of it, in a sentence."""

        def close(self) -> None: ...


# Who types a command can end it; this is for scripts, should a daemon hang.
ANSWER_S = 600.0
SLOW = {"check": 86_400.0, "evict": 3600.0, "instance": 3600.0}
# What only a daemon knows or does: it would be gone with this process.
OF_DAEMON = ("ping", "transfers", "transfer", "limits", "metrics")


def choose(arguments: argparse.Namespace, config: NodeConfig, clock: Clock) -> Asker:
    """The daemon; without one, this process, if it may."""
    reason = "--no-daemon was given"
    if not arguments.no_daemon:
        try:
            return _daemon(arguments, config)
        except NoDaemon as error:
            if arguments.socket is not None:
                raise
            reason = str(error)
    if arguments.verb in OF_DAEMON or getattr(arguments, "no_wait", False):
        what = f"`cachemgr {arguments.verb}{' --no-wait' if arguments.verb == 'add' else ''}`"
        raise NoDaemon(f"{what} needs a running daemon: {reason}")
    _check_right(config.pool, reason)
    from cachemgr.cli.local import LocalAsker

    return LocalAsker(config, clock, is_verbose=bool(arguments.verbose))


def daemon_of(config: NodeConfig) -> DaemonAsker | None:
    """The daemon of that pool, if one answers."""
    try:
        asker = DaemonAsker(config.socket)
        if _is_same(asker.pool, config.pool):
            return asker
    except NoDaemon:
        return None
    asker.close()
    return None


class DaemonAsker:
    """The daemon behind a socket."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._client = DaemonClient(path)
        self._pool: str | None = None

    @property
    def where(self) -> str:
        return f"the daemon at {self._path}"

    @property
    def pool(self) -> str:
        """Which pool it serves."""
        if self._pool is None:
            self._pool = answers.read(PingAnswer, self._client.ask("ping")).pool
        return self._pool

    @property
    def opens_files(self) -> bool:
        """Whoever is not privileged proves the right to a file by opening it."""
        return os.geteuid() != 0 and os.geteuid() != owner_of(self.pool)

    def ask(
        self,
        verb: str,
        request: ProtocolMessage,
        on_progress: Callable[[Result], None] | None = None,
        file: int | None = None,
    ) -> Result:
        return self._client.ask(
            verb,
            plain(request),
            on_progress=on_progress,
            descriptors=[] if file is None else [file],
            timeout_s=SLOW.get(verb, ANSWER_S),
        )

    def interrupted(self, last: Result) -> str:
        transfer = last.get("transfer")
        if not transfer:
            return "interrupted before the daemon answered: `cachemgr transfers` shows whether it has begun"
        return (
            f"interrupted; transfer {transfer} continues in the daemon: `cachemgr transfers` shows how far, "
            f"`cachemgr transfer {transfer} --cancel` ends it"
        )

    def close(self) -> None:
        self._client.close()


def _daemon(arguments: argparse.Namespace, config: NodeConfig) -> DaemonAsker:
    asker = DaemonAsker(config.socket)
    # A daemon of another pool is none, unless just that one was asked for.
    if arguments.pool is not None and arguments.socket is None and not _is_same(asker.pool, config.pool):
        pool = asker.pool
        asker.close()
        raise NoDaemon(f"the daemon at {config.socket} serves {pool}, and none serves {config.pool}")
    return asker


def _check_right(pool: str, reason: str) -> None:
    owner = owner_of(pool)
    if owner is not None and os.geteuid() not in (0, owner):
        who = f"{user_name(owner)} and root" if owner else "root"
        raise NoDaemon(f"{reason}; without a daemon the pool {pool} is for {who} alone")


def owner_of(pool: str) -> int | None:
    """The user whose pool it is; None if there is none."""
    try:
        return os.stat(f"{pool}/pool.json").st_uid
    except OSError:
        return None


def _is_same(pool: str, other: str) -> bool:
    return os.path.realpath(pool) == os.path.realpath(other)
