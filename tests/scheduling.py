"""Which worker gets which files: long ones first, and what shares daemons to one worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import PurePath

import pytest

# A minute's file that begins last keeps everybody waiting: the longest comes first.
LONGEST_FIRST = (
    "tests/daemons/slurm/service/test_best_effort.py",
    "tests/daemons/gridengine/service/test_best_effort.py",
    "tests/daemons/gridengine/service/test_failures_of_daemons.py",
    "tests/contract",
    "tests/daemons/slurm/service/test_containers_of_slurm.py",
    "tests/daemons/slurm/service/test_failures_of_people.py",
    "tests/daemons/slurm/service/test_failures_of_images.py",
    "tests/daemons/slurm/service/test_jobs_in_machines.py",
    "tests/daemons/slurm/service/test_machines_make_way.py",
    "tests/daemons/gridengine/service/test_jobs_in_machines.py",
    "tests/daemons/embedded/test_switches_of_embedded_jobs.py",
    "tests/daemons/embedded/test_machines_of_embedded_jobs.py",
    "tests/daemons/embedded/test_packed_by_use_on_embedded.py",
    "tests/daemons/embedded/test_live_moves_of_embedded_jobs.py",
    "tests/contract/test_contract_of_jobs.py",
    "tests/daemons/demo",
    "tests/contract/test_contract_of_time.py",
    "tests/daemons/bench/test_short_forms_with_slurm.py",
    "tests/daemons/bench/test_short_forms_with_grid_engine.py",
    "tests/daemons/slurm/service/test_open_and_moving.py",
    "tests/daemons/gridengine/service/test_mixed_load.py",
    "tests/daemons/slurm/service/test_mixed_load.py",
    "tests/daemons/slurm/service/test_kinds_of_lease.py",
    "tests/daemons/integrations/test_tools_on_slurm.py",
    "tests/daemons/bench/test_short_form_of_accuracy.py",
    "tests/daemons/installing/test_installed_grid.py",
    "tests/daemons/gridengine/service/test_nodes_that_die.py",
    "tests/simulation/dst/test_planted_service_faults.py",
    "tests/daemons/walks/test_upgrade.py",
    "tests/simulation/dst/test_simulated_service.py",
    "tests/daemons/gridengine/hooks/test_hooks_in_gridengine.py",
    "tests/daemons/kill/test_killed_services.py",
    "tests/daemons/bench/test_short_forms.py",
    "tests/daemons/service/test_jobs_handed_over_once.py",
    "tests/security/test_room_of_promises.py",
    "tests/security/growth/test_texts_grow.py",
    "tests/security/growth/test_regexes.py",
    "tests/security/growth/test_filters_grow.py",
    "tests/simulation/live/test_live_leases.py",
    "tests/simulation/crash/test_crash_points.py",
    "tests/daemons/kill/test_killed_processes.py",
    "tests/daemons/installing/test_page.py",
    "tests/daemons/slurm/hooks/test_hooks_in_slurm.py",
    "tests/daemons/slurm/service/test_parts_of_nodes.py",
    "tests/daemons/slurm/service/test_jobs_in_turn.py",
    "tests/daemons/machines/test_counting_machines.py",
    "tests/daemons/installing/test_bare_site.py",
    "tests/daemons/installing/test_installed_site.py",
    "tests/daemons/gridengine/hooks/test_interactive_jobs.py",
    "tests/daemons/gridengine/adapter/test_parts_of_nodes.py",
    "tests/daemons/machines/test_machines_together.py",
    "tests/daemons/machines/test_jobs_in_guests.py",
    "tests/daemons/kill/test_heads.py",
    "tests/daemons/testbed/test_gridengine_cluster.py",
    "tests/daemons/page/test_page_in_chromium.py",
    "tests/daemons/node/test_verbs_of_a_daemon.py",
    "tests/daemons/machines/test_machines_move.py",
    "tests/daemons/machines/test_batch_jobs.py",
    "tests/daemons/node/test_bytes_for_promises.py",
    "tests/daemons/service/test_jobs_of_a_whole_site.py",
    "tests/daemons/gridengine/service/test_tight_integration.py",
    "tests/daemons/slurm/hooks/test_guard_on_nodes.py",
    "tests/daemons/pyxis/test_importer.py",
)
# What waits for daemons, the longer the fewer tests a file has; others keep a processor busy.
WAITING = ("tests/contract", "tests/daemons", "tests/security/test_")
# Folders whose files have daemons in common, which another worker would start once more.
SHARING = ("tests/daemons/demo", "tests/contract")
# Files that follow each other on one site, which is made once; each group has the name of its first.
ON_ONE_SITE = {
    "tests/daemons/slurm/service": (
        "best_effort copies_before_jobs jobs_with_options noticed_images reservations roles_of_jobs",
        "containers_of_slurm failures_of_daemons failures_of_nodes",
        "failures_of_images failures_of_slurmctld",
        "failures_of_people users_share_the_link yielding_jobs",
        "machines_make_way machines_with_data several_machines",
    ),
    "tests/daemons/gridengine/service": (
        "best_effort jobs_with_options kinds_of_lease output_to_nowhere reservations sessions",
        "failures_of_daemons failures_of_images failures_of_people yielding_jobs",
        "jobs_in_machines live_moves machines_on_several_nodes switches",
    ),
}
FIRST_OF_ITS_SITE = {
    f"{folder}/test_{name}.py": f"{folder}/test_{group.split()[0]}.py"
    for folder, groups in ON_ONE_SITE.items()
    for group in groups
    for name in group.split()
}
# One worker of so many computes while the others wait: by themselves they leave a processor idle.
COMPUTING = 4


def next_unit(units: Iterable[str], *, computes: bool) -> str:
    """What a worker begins now: the first of its kind, or the first if there is none."""
    names = list(units)
    return next((name for name in names if waits(name) is not computes), names[0])


def waits(unit: str) -> bool:
    return unit.startswith(WAITING)


def unit_of(nodeid: str) -> str:
    """What one worker runs as a whole: a file, those on one site, or a folder but for its long files."""
    file = nodeid.partition("::")[0]
    if file in LONGEST_FIRST or file in FIRST_OF_ITS_SITE:
        return FIRST_OF_ITS_SITE.get(file, file)
    return next((folder for folder in SHARING if PurePath(file).is_relative_to(folder)), file)


def ordered(items: list[pytest.Item]) -> list[pytest.Item]:
    """The long units first, then those that wait, then those with many tests; a unit's order stays."""
    units = [unit_of(item.nodeid) for item in items]
    counts = Counter(units)
    ranks = {name: rank for rank, name in enumerate(LONGEST_FIRST)}
    first = {name: index for index, name in reversed(list(enumerate(units)))}

    def key(index: int) -> tuple[int, bool, int, int]:
        name = units[index]
        count = counts[name] if waits(name) else -counts[name]
        return (ranks.get(name, len(ranks)), not waits(name), count, first[name])

    return [items[index] for index in sorted(range(len(items)), key=key)]
