"""What counts of a node's words about jobs' machines."""

from __future__ import annotations

from cachemgr.protocol import ListedMachines
from outrider.service.nodes.listed_machines import times_of
from outrider.service.ports import MachineTime


def test_processor_times_are_read_and_what_is_none_is_left_out() -> None:
    listed = ListedMachines(
        owners=("job-1", "job-2", "job-3", "job-4"),
        used=("1000 52000000 310", "", "1000 -5 0", "1000 1" + "0" * 18 + " 0"),
        at_us=77,
    )

    assert times_of(listed) == (
        MachineTime(owner="job-1", uid=1000, used_us=52_000_000, waited_us=310, at_us=77),
    )


def test_older_daemon_tells_no_processor_times() -> None:
    assert times_of(ListedMachines(owners=("job-1",))) == ()
