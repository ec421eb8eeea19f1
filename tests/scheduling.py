"""Which worker of pytest-xdist gets which files: long ones first, and what shares daemons to one worker."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath

import pytest
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

# A minute's file that begins last keeps everybody waiting, and xdist by itself begins with those that have
# many tests, which are the short ones. The longest comes first.
LONGEST_FIRST = (
    "tests/contract/test_contract_of_jobs.py",
    "tests/daemons/demo",
    "tests/contract/test_contract_of_time.py",
    "tests/daemons/bench/test_short_forms_with_slurm.py",
    "tests/daemons/bench/test_short_forms_with_grid_engine.py",
    "tests/daemons/slurm/service/test_failures_of_people.py",
    "tests/daemons/bench/test_short_form_of_accuracy.py",
    "tests/daemons/installing/test_installed_grid.py",
    "tests/daemons/gridengine/service/test_failures_of_images.py",
    "tests/daemons/gridengine/service/test_nodes_that_die.py",
    "tests/simulation/dst/test_planted_service_faults.py",
    "tests/daemons/walks/test_upgrade.py",
    "tests/daemons/slurm/service/test_failures_of_images.py",
    "tests/daemons/gridengine/service/test_failures_of_daemons.py",
    "tests/simulation/dst/test_simulated_service.py",
    "tests/daemons/gridengine/hooks/test_hooks_in_gridengine.py",
    "tests/daemons/kill/test_killed_services.py",
    "tests/daemons/slurm/service/test_users_share_the_link.py",
    "tests/daemons/gridengine/service/test_reservations.py",
    "tests/daemons/bench/test_short_forms.py",
    "tests/daemons/service/test_jobs_handed_over_once.py",
    "tests/security/test_room_of_promises.py",
    "tests/security/growth/test_texts_grow.py",
    "tests/daemons/kill/test_killed_processes.py",
    "tests/daemons/installing/test_page.py",
    "tests/daemons/slurm/hooks/test_hooks_in_slurm.py",
)
# What waits for daemons, the longer the fewer tests a file has; others keep a processor busy, and come last.
WAITING = ("tests/contract", "tests/daemons")
# Folders whose files have daemons in common, which another worker would start once more.
SHARING = ("tests/daemons/demo",)


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """Files, or folders that share daemons, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


def unit_of(nodeid: str) -> str:
    """What one worker runs as a whole: a file, or a folder."""
    file = nodeid.partition("::")[0]
    return next((folder for folder in SHARING if PurePath(file).is_relative_to(folder)), file)


def ordered(items: list[pytest.Item]) -> list[pytest.Item]:
    """The long units first, then those that wait, then those with many tests; a unit's order stays."""
    units = [unit_of(item.nodeid) for item in items]
    counts = Counter(units)
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    first = {name: index for index, name in reversed(list(enumerate(units)))}

    def key(index: int) -> tuple[int, bool, int, int]:
        name = units[index]
        waits = name.startswith(WAITING)
        return (ranks.get(name, len(ranks)), not waits, counts[name] * (1 if waits else -1), first[name])

    return [items[index] for index in sorted(range(len(items)), key=key)]
