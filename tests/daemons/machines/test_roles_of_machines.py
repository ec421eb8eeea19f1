"""Machines of one job that are unlike: each has its role's name, size and user data; they reckon together."""

from __future__ import annotations

import os
import signal

import pytest

from testbed.linux_guest import LinuxGuest
from tests.daemons.machines.engine import Engine, wait_until
from tests.daemons.machines.several import SeveralMachines

FACTS = (
    """echo "$(uname -n) $(grep -c ^processor /proc/cpuinfo) $(awk '/MemTotal/ {print $2}' /proc/meminfo)" """
)
# What an MPI program learns of itself, from the host file alone; and the square of its rank, from 1 on.
RANK = """size=$(grep -c . "$OUTRIDER_HOSTS")
rank=$(($(grep -nx "$(uname -n)" "$OUTRIDER_HOSTS" | cut -d: -f1) - 1))
square=$(((rank + 1) * (rank + 1)))
"""
# Of each worker its name, its processors, its memory in KiB, and what its user data have left.
WORKER = f"""facts=$({FACTS}; cat /tmp/told)
until echo $facts | nc head "700$(uname -n | tr -d w)" 2>/dev/null; do sleep 0.2; done
{RANK}
until echo $square | nc head $((7010 + rank)) 2>/dev/null; do sleep 0.2; done
echo "rank $rank of $size: $(nc -l -p 7020)"
sleep 100000
"""
HEAD = f"""#!machine run=vm,roles=2
#!role head hosts=head memory=96
#!role worker hosts=w1,w2 memory=160 cpus=2 user-data=worker.sh
#!/bin/sh
{FACTS}
cat "$OUTRIDER_HOSTS"
for port in 7001 7002; do nc -l -p $port; done
{RANK}
sum=$square other=0
while [ $((other += 1)) -lt $size ]; do sum=$((sum + $(nc -l -p $((7010 + other))))); done
grep -vx head "$OUTRIDER_HOSTS" | while read -r name; do
    until echo $sum | nc "$name" 7020 2>/dev/null; do sleep 0.2; done
done
echo "rank $rank of $size: $sum"
trap 'exit 0' USR2
sleep 600 &
wait
"""
USER_DATA = "#!/bin/sh\necho $(uname -n) in $(pwd) >/tmp/told\n"


class Roles(SeveralMachines):
    options = "run=vm,memory=160,boot=test,roles=2"

    def __init__(self, engine: Engine, linux: LinuxGuest) -> None:
        super().__init__(engine, linux, 3, 0)
        self.script.write_text(HEAD)
        (self.work / "other.sh").write_text(WORKER)
        (self.work / "worker.sh").write_text(USER_DATA)


@pytest.mark.long
def test_each_machine_has_its_roles_name_size_user_data_and_place_among_the_others(
    engine: Engine, linux: LinuxGuest
) -> None:
    engine.machines.chmod(0o1777)
    job = Roles(engine, linux)
    process = job.start()
    wait_until(lambda: job.output.read_text().count("rank") == 3, job.output.read_text)
    told = [os.readlink(job.at(node) / "readiness") for node in job.nodes]
    process.send_signal(signal.SIGUSR2)
    status = job.over(process)
    lines = job.output.read_text().splitlines()

    assert status == 0, lines
    assert told == [
        "1 head 10.211.0.1 runs",
        "2 w1 10.211.0.2 runs",
        "3 w2 10.211.0.3 runs",
    ]
    facts = [line.split() for line in lines if len(line.split()) > 1 and not line.startswith("rank")]
    # 1, 4 and 9, at each of the three.
    assert sorted(line for line in lines if line.startswith("rank")) == [
        f"rank {each} of 3: 14" for each in range(3)
    ]
    assert lines[1:4] == ["head", "w1", "w2"]
    assert [(name, cpus) for name, cpus, *_ in facts] == [("head", "1"), ("w1", "2"), ("w2", "2")], lines
    # The kernel keeps some of it to itself.
    assert 48 << 10 < int(facts[0][2]) < 96 << 10
    assert all(96 << 10 < int(memory) < 160 << 10 for _, _, memory, *_ in facts[1:])
    assert [told for _, _, _, *told in facts[1:]] == [[each, "in", str(job.work)] for each in ("w1", "w2")]
    assert job.left() == []


def test_roles_that_do_not_fit_the_jobs_nodes_begin_nothing(engine: Engine, linux: LinuxGuest) -> None:
    engine.machines.chmod(0o1777)
    job = Roles(engine, linux)
    job.count = 2
    status = job.over(job.start())

    assert status not in (0, 98)
    assert "the roles have 3 machines, and the job has 2 nodes" in job.output.read_text()
    assert job.left() == []
