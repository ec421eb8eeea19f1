"""docs/tutorial/install-gridengine.md on three booted nodes with interactive queues: installed from a
wheel, used in batch, in sessions, in reservations and in parallel, brought to the next version, removed."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed import gridengine
from testbed.batchcluster import HEAD
from testbed.bootedcluster import BootedGridEngine
from testbed.gridengineconf import FOLDER, changed
from tests.daemons.installing.follow import Table
from tests.daemons.installing.grids import as_a_site_has_it, objects
from tests.daemons.installing.machines import let_in, need_sshd, shared_of, tree
from tests.daemons.walks.pages import (
    GRIDENGINE,
    SLURM,
    differences,
    give_archive,
    own_environment,
    table,
    walk,
)

WHERE = (
    "/etc",
    "/usr/lib/outrider",
    "/usr/lib/systemd/system",
    "/usr/sbin",
    "/usr/local/bin",
    "/opt/outrider",
)
LATER = "n3"
PATIENCE_S = 300
WORDS = {"nodes deploy n17": f"nodes deploy {LATER}", "hostlist n17": f"hostlist {LATER}"}
# The site's own, for programs on several nodes, which they have alone.
MPI = {"pe_name": "mpi", "slots": "999", "allocation_rule": "4", "control_slaves": "TRUE"}
READS = 'sha256sum <"$OUTRIDER_IMAGE"\n'
# As mpirun does: one program on each node of the job, begun by the first.
PROGRAM = """#!/bin/sh
for node in $(cut -d' ' -f1 "$PE_HOSTFILE"); do qrsh -inherit "$node" "$HOME/rank" </dev/null; done
"""
RANK = '#!/bin/sh\necho $(hostname) $(sha256sum <"$OUTRIDER_IMAGE")\n'
# A client that has waited in vain on a busy machine gives up, and says that one should try again.
TRIES = 3
# A session whose user does not hang up.
PRESENT = 'exec timeout --kill-after=1 250 qrsh "$@" < <(exec sleep 250 2>/dev/null)'


@pytest.fixture
def cluster(long: None) -> Iterator[BootedGridEngine]:
    lacking = gridengine.missing() or need_sshd()
    if lacking is not None:
        if os.environ.get("CI"):
            pytest.fail(lacking)
        pytest.skip(lacking)
    with BootedGridEngine(nodes=3, shared=shared_of(Path(sys.prefix))) as made:
        as_a_site_has_it(made)
        let_in(made)
        away(made)
        plain = made.run(HEAD, ["qconf", "-sp", "make"]).stdout
        made.write(HEAD, f"{FOLDER}/mpi", changed(plain, MPI))
        made.run(HEAD, ["qconf", "-Ap", f"{FOLDER}/mpi"])
        made.run(HEAD, ["qconf", "-aattr", "queue", "pe_list", "mpi", "all.q"])
        yield made


def test_site_is_installed_used_and_left_as_the_page_says(cluster: BootedGridEngine, wheel: Path) -> None:
    hosts = (HEAD, *cluster.nodes)
    archive = give_archive(cluster, wheel)
    before, had = {host: tree(cluster, host, *WHERE) for host in hosts}, objects(cluster)
    found = Table(words=table(archive, WORDS, own_environment()))
    page, beside = walk(GRIDENGINE, cluster, found), walk(SLURM, cluster, found)

    beside.go("Get it")
    page.go("See what it would change", "Prepare the head", "Prepare the nodes", "Let Grid Engine know")
    page.go("Start the service", "The first job")
    use(cluster, "one")
    cluster.run(HEAD, ["qconf", "-Ae", f"{FOLDER}/host-{LATER}"])
    cluster.start_execd(LATER)
    page.go("One more node")
    parallel(cluster, "all", 3)
    page.go("The next version", "The version before")
    use(cluster, "two")
    cluster.run(HEAD, ["outrider", "nodes", "deploy", LATER, "--remove"])
    away(cluster)
    page.go("Remove it")

    assert page.rest() == []
    assert objects(cluster) == had
    assert differences(before, {host: tree(cluster, host, *WHERE) for host in hosts}) == []
    cluster.wait_job(cluster.qsub("#!/bin/sh\ntrue\n"), timeout_s=PATIENCE_S)


def away(cluster: BootedGridEngine) -> None:
    """The site's last node is none of its nodes any more."""
    cluster.run(HEAD, ["qconf", "-dattr", "hostgroup", "hostlist", LATER, "@allhosts"])
    cluster.kill_execd(LATER, "TERM")
    cluster.run(HEAD, ["qconf", "-de", LATER])


def use(cluster: BootedGridEngine, name: str) -> None:
    """What users do, and what they see."""
    image, digest = published(cluster, name)
    job = cluster.qsub(f"#!/bin/sh\n{READS}", "-ac", f"OUTRIDER={image}", *output(f"batch-{name}"))
    sessions(cluster, image, digest)
    cluster.wait_job(job, timeout_s=PATIENCE_S)
    assert printed(cluster, f"batch-{name}") == [f"{digest} -"]
    parallel(cluster, name, 2)
    reserved(cluster, name, image, digest)
    doctor = cluster.run(HEAD, ["outrider", "doctor", "--quiet"], check=False)
    assert (doctor.returncode, doctor.stdout) == (0, ""), doctor.stdout
    # Fails if one is in error.
    assert cluster.queue_states()


def sessions(cluster: BootedGridEngine, image: str, digest: str) -> None:
    """Without an image, with one, and one that its user interrupts."""
    command = ["-now", "n", "sh", "-c", f"'{READS.strip()}'"]
    plain = cluster.run(HEAD, ["bash", "-c", PRESENT, "bash", "hostname"], user="ada", timeout_s=PATIENCE_S)
    argv = ["bash", "-c", PRESENT, "bash", "-ac", f"OUTRIDER={image}", *command]
    for _ in range(TRIES):
        led = cluster.run(HEAD, argv, user="ada", check=False, timeout_s=PATIENCE_S)
        if "could not be scheduled" not in led.stderr:
            break
    cut = ["timeout", "--signal=INT", "--kill-after=2", "3", "qrsh", "-now", "n", "sleep", "60"]
    cluster.run(HEAD, cut, user="ada", check=False, timeout_s=PATIENCE_S)
    assert plain.stdout.strip() in cluster.nodes
    assert led.stdout.split() == [digest, "-"], led.stderr


def parallel(cluster: BootedGridEngine, name: str, nodes: int) -> None:
    """A program on two or three nodes sees the image on each."""
    image, digest = published(cluster, f"mpi-{name}")
    cluster.write(HEAD, f"{cluster.people.of('ada').home}/rank", RANK, mode=0o755)
    options = ["-pe", "mpi", str(4 * nodes), "-ac", f"OUTRIDER={image}"]
    job = cluster.qsub(PROGRAM, *options, *output(f"mpi-{name}"))
    cluster.wait_job(job, timeout_s=PATIENCE_S)
    lines = [line.split() for line in printed(cluster, f"mpi-{name}")]
    assert len({node for node, *_ in lines}) == nodes, lines
    assert {each for _, each, *_ in lines} == {digest}, lines


def reserved(cluster: BootedGridEngine, name: str, image: str, digest: str) -> None:
    """Reserve, submit into it as the answer says, and find the image there."""
    options = ["--image", image, "--nodes", "1", "-t", "3m", "--start", "now+20s", "--json"]
    answer: dict[str, object] = {}

    def is_accepted() -> bool:
        nonlocal answer
        done = cluster.run(HEAD, ["outrider", "reserve", *options], user="ada", check=False)
        answer = json.loads(done.stdout)
        return answer["result"] == "accepted"

    # That jobs without a limit have ended the service learns at its next look.
    cluster.wait_for("jobs to end", lambda: not any(cluster.jobs_on().values()), PATIENCE_S, cluster.logs)
    cluster.wait_for("the reservation to be accepted", is_accepted, PATIENCE_S, lambda: str(answer))
    home = cluster.people.of("ada").home
    script = f"#!/bin/sh\nexec >reserved-{name} 2>&1\n{READS}"
    cluster.write(HEAD, f"{home}/reserved-{name}.sh", script, mode=0o755)
    words = ["submit", "--reservation", str(answer["name"]), "--nodes", "1", f"{home}/reserved-{name}.sh"]
    said = ""

    def is_taken() -> bool:
        nonlocal said
        done = cluster.run(HEAD, ["outrider", *words], user="ada", check=False)
        said = done.stdout
        return done.returncode == 0

    cluster.wait_for("the reservation to take a job", is_taken, PATIENCE_S)
    job = next(word for word in said.replace(",", " ").split() if word.isdigit())
    cluster.wait_job(job, timeout_s=PATIENCE_S)
    assert printed(cluster, f"reserved-{name}") == [f"{digest} -"]
    cluster.run(HEAD, ["outrider", "cancel", str(answer["name"])], user="ada")


def published(cluster: BootedGridEngine, name: str) -> tuple[str, str]:
    """An image with its digest beside it: its address, and the digest."""
    content = f"bytes of {name}\n".encode()
    digest = hashlib.sha256(content).hexdigest()
    cluster.publish(f"{name}.raw.sha256", f"{digest}\n".encode())
    return cluster.publish(f"{name}.raw", content), digest


def output(name: str) -> list[str]:
    return ["-cwd", "-j", "y", "-o", name]


def printed(cluster: BootedGridEngine, name: str) -> list[str]:
    text = cluster.read(HEAD, f"{cluster.people.of('ada').home}/{name}")
    return [" ".join(line.split()) for line in text.splitlines()]
