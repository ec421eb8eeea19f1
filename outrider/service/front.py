"""What the API needs of the service behind it, as one Protocol, with the values that go over it.

Nothing here knows HTTP. Whoever implements `Front` knows no more of the API than this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

from outrider.metadata.workspace import WorkspaceFile
from outrider.service.answers.reply import Answer, Trouble
from outrider.service.answers.site import ShareList
from outrider.service.ports import FoundImage, ImageClaim, LoginBook
from outrider.service.requests import MOST_LISTED, Caller, Request


class Busy(Exception):
    """A queue is full: the request was not taken on. `retry_after_s` says when to ask again."""

    def __init__(self, words: str, *, retry_after_s: int = 1) -> None:
        super().__init__(words)
        self.retry_after_s = retry_after_s


class NotDone(Exception):
    """What was asked could not be done; the trouble is for whoever asked."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble


@dataclass(frozen=True, kw_only=True, slots=True)
class Health:
    """How the service is. `is_alive`: its loop turns. `is_ready`: it promises, or `troubles` says why
    it does not."""

    is_alive: bool
    is_ready: bool
    troubles: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Configuration:
    """What the service runs with, without secrets; plain data that JSON can hold."""

    settings: Mapping[str, object]
    policies: Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reloaded:
    """The policies that are in force now."""

    rules: int


@dataclass(frozen=True, kw_only=True, slots=True)
class BackedUp:
    """A copy of the store that was written and read again."""

    path: str
    reservations: int


QEMU_MIB = 256
"""What QEMU takes beside its guest's memory, and a job in a machine has beside what was asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Submit:
    """A job to be handed to the batch system in the caller's name.

    `reservation` is one to run in, or None. `duration_s` is None for the batch system's own
    limit. `workspace` is what the job runs on, with its image as found and the text as the user
    wrote it, or all three are None.
    """

    argv: tuple[str, ...]
    nodes: int = 1
    reservation: str | None = None
    duration_s: int | None = None
    account: str = ""
    workspace: WorkspaceFile | None = None
    image: FoundImage | None = None
    metadata: str | None = None
    machine: str = ""
    """What the program is told that runs it in a virtual machine, if it runs in one."""
    folder: str = ""
    key: str = ""
    request_hash: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedShares:
    """Which shares are to be shown: of this user, of this thing, on these nodes; empty: all."""

    user: str = ""
    thing: str = ""
    nodes: tuple[str, ...] = ()
    most: int = MOST_LISTED


class Front(Protocol):
    """The service, for as many callers at once as there are. Every method may be called by any
    thread. Those that return a Future do not block; the others may, but for `now_s`, `health`
    and `metrics_text`, which are quick."""

    def now_s(self) -> int: ...

    def ask(self, caller: Caller, request: Request) -> Future[Answer]:
        """The desk's answer, once it is on disk. Raises Busy if the desk has too much to do."""

    def resolve(self, claim: ImageClaim) -> Future[FoundImage]:
        """What is at an address; the Future raises ImageTrouble. Raises Busy."""

    def submit(self, caller: Caller, submission: Submit) -> Future[str]:
        """Hand a job over; its key. Raises Busy; the Future raises NotDone."""

    def drain(self, nodes: tuple[str, ...], *, is_ended: bool) -> Future[bool]:
        """Let nodes take no jobs any more, or take them again; no where administrators say that to the batch
        system itself. Raises Busy; the Future raises NotDone."""

    def logins(self) -> LoginBook:
        """Users' logins at registries. Raises NotDone if there can be none here."""

    def shares(self, caller: Caller, wanted: WantedShares) -> ShareList:
        """Who takes what of what users share; of others, for administrators only."""

    def health(self) -> Health: ...

    def metrics_text(self) -> bytes:
        """In the text format of Prometheus, version 0.0.4."""

    def config(self) -> Configuration: ...

    def reload_policies(self) -> Reloaded:
        """Read the policies again. Raises NotDone, and the old ones stay in force."""

    def back_up(self, path: str) -> BackedUp:
        """Write a copy of the store to a file that is not there yet. Raises NotDone."""
