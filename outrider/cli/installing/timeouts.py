"""What Slurm's time limits for prologs mean together. Pure; for files and for what a controller says."""

from __future__ import annotations

import re
from collections.abc import Callable

UNSET = 65_534
DEFAULT_BATCH_START_S = 10
MARGIN_S = 60
_NUMBER = re.compile(r"\s*(\d+)")
_LIMITS = ("PrologTimeout", "PrologEpilogTimeout")
"""The first since 25.05, and it counts more."""


def timeouts(value: Callable[[str], str]) -> list[str]:
    """What is wrong; `value` gives a setting's text, empty if it is not set."""
    limits = [found for key in _LIMITS if (found := seconds(value(key))) is not None]
    batch_start_s = seconds(value("BatchStartTimeout"))
    batch_start_s = DEFAULT_BATCH_START_S if batch_start_s is None else batch_start_s
    if not limits:
        return [
            "PrologEpilogTimeout is not set: a prolog that hangs keeps its node for ever (Outrider's "
            f"does not hang); with PrologEpilogTimeout=N, set BatchStartTimeout to N+{MARGIN_S}"
        ]
    if batch_start_s <= limits[0]:
        return [
            f"BatchStartTimeout ({batch_start_s} s) is not above the {limits[0]} s that a prolog may take: "
            "a job whose prolog takes longer is taken for lost when its node registers anew, as at "
            f"scontrol reconfigure; set BatchStartTimeout={limits[0] + MARGIN_S}"
        ]
    return []


def seconds(text: str) -> int | None:
    """A number with or without a unit behind it; None if there is none or it means no limit."""
    found = _NUMBER.match(text)
    return None if found is None or int(found[1]) >= UNSET else int(found[1])
