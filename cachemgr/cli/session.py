"""One run of a command: whom it asks, what it prints, and how loudly."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager

from cachemgr.base.errors import BadRequest, NotInPool
from cachemgr.cli import answers, progress
from cachemgr.cli.progress import NORMAL, QUIET, VERBOSE

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Union

    from cachemgr.base.clock import Clock
    from cachemgr.base.message import ProtocolMessage
    from cachemgr.cli.answers import Result
    from cachemgr.cli.askers import Asker
    from cachemgr.config import NodeConfig
    from cachemgr.protocol import (
        EvictRequest,
        InstanceRequest,
        NameRequest,
        PinRequest,
    )

    Named = Union[NameRequest, PinRequest, EvictRequest, InstanceRequest]


# A part of a digest must have so many digits to stand for it.
LEAST_DIGITS = 4
HEX = frozenset("0123456789abcdef")


class VerbSession:
    """What verbs get: the answers of the pool, and a way to print."""

    def __init__(self, arguments: argparse.Namespace, clock: Clock) -> None:
        self.clock = clock
        self.is_json = bool(arguments.json)
        self.volume = VERBOSE if arguments.verbose else QUIET if arguments.quiet else NORMAL
        self._arguments = arguments
        self._asker: Asker | None = None
        self._config: NodeConfig | None = None

    @property
    def config(self) -> NodeConfig:
        """The configuration, with what the command line says instead."""
        if self._config is None:
            from cachemgr import config

            self._config = config.config({**self.texts, **self.given})
        return self._config

    @property
    def texts(self) -> dict[str, str]:
        """What the configuration's file says, by option."""
        from cachemgr import config

        path = self._arguments.config
        return config.read_texts(path or config.PATH, is_required=path is not None)

    @property
    def given(self) -> dict[str, str]:
        """What the command line says in its place. The daemon may stand in another folder: whole paths."""
        said = {"pool": self._arguments.pool, "socket": self._arguments.socket}
        return {name: os.path.abspath(path) for name, path in said.items() if path is not None}

    @property
    def asker(self) -> Asker:
        if self._asker is None:
            from cachemgr.cli.askers import choose

            self._asker = choose(self._arguments, self.config, self.clock)
            self.detail(f"asking {self._asker.where}")
        return self._asker

    def close(self) -> None:
        if self._asker is not None:
            self._asker.close()

    # -- asking ----------------------------------------------------------------------------

    def ask(self, verb: str, asked: ProtocolMessage | None = None, doing: str = "") -> Result:
        """A verb's result. `doing` is shown with the seconds if it takes long."""
        from cachemgr.protocol import NoFields

        with self._ticking(doing or f"{verb}: waiting for an answer"):
            return self.asker.ask(verb, asked or NoFields())

    def ask_about(self, verb: str, asked: Named, doing: str = "") -> Result:
        """A verb on an image, named as people do: by address, digest, or an unmistakable part."""
        try:
            return self.ask(verb, asked, doing)
        except NotInPool:
            whole = self.whole_name(asked.name or "")
            if whole == asked.name:
                raise

            return self.ask(verb, asked.changed(name=whole), doing)

    def whole_name(self, part: str) -> str:
        """The one image that the part of a name can mean; what is none stays as it is."""
        from cachemgr.protocol import ListedImages

        found = [
            each.digest
            for each in answers.read(ListedImages, self.ask("ls")).images
            if _means(part, each.digest, each.uri)
        ]
        if not found:
            return part
        if len(found) > 1:
            raise BadRequest(
                f"{part!r} may mean {len(found)} images ({', '.join(map(answers.short_digest, found[:4]))}"
                f"{', …' if len(found) > 4 else ''}): write more of its digest"
            )
        return found[0]

    @contextmanager
    def _ticking(self, doing: str) -> Iterator[None]:
        if self.volume == QUIET:
            yield
            return
        with progress.ticking(doing, sys.stderr, self.clock):
            yield

    # -- printing --------------------------------------------------------------------------

    def show(self, result: Result, text: str) -> None:
        """The result: as one JSON document, or as text for people."""
        if self.is_json:
            print(json.dumps(result, indent=2, ensure_ascii=False))
        elif text:
            print(text)

    def say(self, text: str) -> None:
        """A remark on stderr, after the results where both go to one place."""
        if self.volume > QUIET:
            sys.stdout.flush()
            print(f"cachemgr: {text}", file=sys.stderr)

    def detail(self, text: str) -> None:
        if self.volume >= VERBOSE:
            self.say(text)


def _means(part: str, digest: str, uri: str) -> bool:
    digits = part.rpartition(":")[2]
    is_digest = len(digits) >= LEAST_DIGITS and HEX.issuperset(digits)
    if is_digest and digest.rpartition(":")[2].startswith(digits):
        return True
    return part != "" and uri.rpartition("/")[2] == part
