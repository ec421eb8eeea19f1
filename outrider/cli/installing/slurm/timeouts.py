"""What Slurm's time limits for prologs mean together. Pure; for files and for what a controller says."""

from __future__ import annotations

import re
from collections.abc import Callable

UNSET = 65_534
DEFAULT_BATCH_START_S = 10
LONGEST_PROLOG_S = 60
"""What Outrider's own prolog takes at the very worst, when a daemon is there and does not answer."""
MARGIN_S = 60
_NUMBER = re.compile(r"\s*(\d+)")
_LIMITS = ("PrologTimeout", "PrologEpilogTimeout")
"""The first since 25.05, and it counts more."""


def batch_start_s(value: Callable[[str], str]) -> int:
    """What BatchStartTimeout should be where a site has none: above all that a prolog may take there."""
    return max(_limit_s(value) or 0, LONGEST_PROLOG_S) + MARGIN_S


def timeouts(value: Callable[[str], str]) -> list[str]:
    """What is wrong; `value` gives a setting's text, empty if it is not set."""
    limit_s = _limit_s(value)
    found = []
    if limit_s is not None and limit_s < LONGEST_PROLOG_S:
        found.append(
            f"a prolog may take {limit_s} s, but Outrider's {LONGEST_PROLOG_S} s at the very worst, and is "
            f"then killed, which drains the node: set PrologEpilogTimeout={LONGEST_PROLOG_S + MARGIN_S}"
        )
    batch_s = seconds(value("BatchStartTimeout"))
    batch_s = DEFAULT_BATCH_START_S if batch_s is None else batch_s
    # What the site's own prolog takes is known to the site, however long its limit is.
    if batch_s <= LONGEST_PROLOG_S:
        found.append(
            f"BatchStartTimeout ({batch_s} s) is not above the {LONGEST_PROLOG_S} s that Outrider's prolog "
            "may take at the very worst: a job whose prolog takes longer is taken for lost when its node "
            f"registers again, as at scontrol reconfigure; set BatchStartTimeout={batch_start_s(value)}"
        )
    return found


def _limit_s(value: Callable[[str], str]) -> int | None:
    return next((found for key in _LIMITS if (found := seconds(value(key))) is not None), None)


def seconds(text: str) -> int | None:
    """A number with or without a unit behind it; None if there is none or it means no limit."""
    found = _NUMBER.match(text)
    return None if found is None or int(found[1]) >= UNSET else int(found[1])
