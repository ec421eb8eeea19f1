"""What may begin after the address of its image, or the key to it, has expired is refused."""

from __future__ import annotations

from datetime import UTC

import pytest

from outrider.service.ports import FoundImage
from outrider.service.web.errors import RefusedRequest
from outrider.service.web.requests.bodies import ReserveBody
from outrider.service.web.requests.understanding import (
    check_expiry,
    understand_reservation,
    understand_starts,
)

NOW_S = 1_800_000_000
HOUR_S = 3_600
TEXT = """version: 1
metadata:
  name: render
  image:
    uri: https://images.example.org/render.qcow2
deployment:
  nodes: 1
  duration: 1h
"""


def check(times: str, ends_s: int | None, **more: str) -> None:
    body = ReserveBody(workspace=TEXT + times, zone="UTC", **more)  # type: ignore[arg-type]
    workspace = understand_reservation(body, NOW_S)
    image = FoundImage(size_bytes=1, digest=f"sha256:{'0' * 64}", usable_until_s=ends_s)
    check_expiry(workspace, understand_starts(body, workspace, NOW_S), image, UTC)


@pytest.mark.parametrize(
    ("times", "more", "latest_s"),
    [
        ("  start: now+2h\n", {}, NOW_S + 2 * HOUR_S),
        ("  start: now+2h\n  finish_by: now+6h\n", {}, NOW_S + 5 * HOUR_S),
        (
            "  open_from: now+1h\n  open_until: now+4h\n  ready_within: 60s\n  when_call: true\n",
            {},
            NOW_S + 4 * HOUR_S,
        ),
    ],
)
def test_latest_start_has_to_come_before_the_end(times: str, more: dict[str, str], latest_s: int) -> None:
    check(times, None, **more)
    check(times, latest_s, **more)
    with pytest.raises(RefusedRequest, match="expires at"):
        check(times, latest_s - 1, **more)


def test_last_start_of_what_recurs_counts() -> None:
    recurs = {"every": "daily", "until": "now+3d"}

    check("  start: now+2h\n", NOW_S + 4 * 86_400, **recurs)
    with pytest.raises(RefusedRequest, match="expires at"):
        check("  start: now+2h\n", NOW_S + 86_400, **recurs)
