"""Machines of one job that are unlike: each has its role's name, size and user data."""

from __future__ import annotations

from tests.daemons.machines.engine import Engine
from tests.daemons.machines.linux_guest import LinuxGuest
from tests.daemons.machines.several import SeveralMachines

FACTS = (
    """echo "$(uname -n) $(grep -c ^processor /proc/cpuinfo) $(awk '/MemTotal/ {print $2}' /proc/meminfo)" """
)
# Of each worker its name, its processors, its memory in KiB, and what its user data have left.
WORKER = f"""facts=$({FACTS}; cat /tmp/told)
until echo $facts | nc head "700$(uname -n | tr -d w)" 2>/dev/null; do sleep 0.2; done
sleep 100000
"""
HEAD = f"""#!machine run=vm,roles=2
#!role head hosts=head memory=96
#!role worker hosts=w1,w2 memory=160 cpus=2 user-data=worker.sh
#!/bin/sh
{FACTS}
cat "$OUTRIDER_HOSTS"
for port in 7001 7002; do nc -l -p $port; done
"""
USER_DATA = "#!/bin/sh\necho $(uname -n) in $(pwd) >/tmp/told\n"


class Roles(SeveralMachines):
    options = "run=vm,memory=160,boot=test,roles=2"

    def __init__(self, engine: Engine, linux: LinuxGuest) -> None:
        super().__init__(engine, linux, 3, 0)
        self.script.write_text(HEAD)
        (self.work / "other.sh").write_text(WORKER)
        (self.work / "worker.sh").write_text(USER_DATA)


def test_each_machine_has_its_roles_name_size_and_user_data(engine: Engine, linux: LinuxGuest) -> None:
    engine.machines.chmod(0o1777)
    job = Roles(engine, linux)
    status = job.over(job.start())
    lines = job.output.read_text().splitlines()

    assert status == 0, lines
    facts = [line.split() for line in lines if len(line.split()) > 1]
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
