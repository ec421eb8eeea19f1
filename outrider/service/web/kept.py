"""The overview as it is sent, made once for everybody who asks within a few seconds."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from dataclasses import dataclass

from pydantic_core import to_json

from outrider.service.answers.site import Overview
from outrider.service.requests import Caller, ShowOverview
from outrider.service.web.asking import Asker

FRESH_S = 3.0
"""For so long it is not asked for again: it costs a large site a tenth of a second."""
PACKING = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class SentOverview:
    """The body, plain and packed, and the tag by which a client says that it has it."""

    tag: str
    plain: bytes
    packed: bytes
    made_s: float


class KeptOverview:
    """The last one. It says nothing that depends on who asks, so that it serves all."""

    def __init__(self, asker: Asker) -> None:
        self._asker = asker
        self._last: SentOverview | None = None
        self._turn: asyncio.Lock | None = None

    async def current(self, caller: Caller) -> SentOverview:
        if self._turn is None:
            self._turn = asyncio.Lock()
        async with self._turn:
            now_s = asyncio.get_running_loop().time()
            if self._last is None or now_s - self._last.made_s >= FRESH_S:
                found = await self._asker.ask(caller, ShowOverview(), Overview)
                self._last = await self._asker.read(caller, lambda: _sent(found, now_s))
            return self._last


def _sent(overview: Overview, now_s: float) -> SentOverview:
    plain = to_json(overview)
    tag = f'"{hashlib.sha256(plain).hexdigest()[:32]}"'
    return SentOverview(tag=tag, plain=plain, packed=gzip.compress(plain, PACKING, mtime=0), made_s=now_s)
