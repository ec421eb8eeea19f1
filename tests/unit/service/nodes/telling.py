"""What a node's daemon is told in these tests, and how its answers are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cachemgr.base.clock import SystemClock
from outrider.service.ports import Fetch, NodeReport
from tests.daemons.node.daemons import MIB, Inside, eventually, sha256

CLOCK = SystemClock()
A, B = "http://images/a", "http://images/b"
CONTENT = b"0123456789abcdef" * (3 * MIB // 16)
DIGEST = f"sha256:{sha256(CONTENT)}"
OWNER = "render-17"


def fetch(**changes: Any) -> Fetch:
    wanted = Fetch(
        digest=DIGEST,
        uri=A,
        size_bytes=len(CONTENT),
        sources=(A,),
        owner=OWNER,
        until_s=CLOCK.now_s() + 3600,
    )
    return replace(wanted, **changes)


Tell = Callable[..., NodeReport]


def arrived(tell: Tell, node: Inside) -> None:
    eventually("the image is there", lambda: tell().images, node.log)


def codes(report: NodeReport) -> list[str]:
    return [result.code for result in report.results]
