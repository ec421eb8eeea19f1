"""What the demo plays on: a private Slurm with Outrider, images, and a user with her files."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.demo.ending import ended_in_order
from outrider.cli.demo.screen import Start
from outrider.cli.errors import CommandError
from outrider.service.answers.jobs import JobDetails
from outrider.service.answers.reservations import ReservationDetails
from outrider_client.reading import read
from testbed.demo import cleaning, measured
from testbed.demo.guest import NOT_SHOWN, give_guest, provided_guest
from testbed.records import TestbedError
from testbed.site import NODE_DAEMON, SERVICE, OutriderSite, site_cluster
from testbed.slurm import HEAD, IMAGES, IMAGES_FOLDER

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping

    from testbed.linux_guest import LinuxGuest
    from testbed.slurm import SlurmCluster

NODES = 4
RATE_BITS_PER_S = 100_000_000
# A job that was sent back waits so long at most.
SLURM_CONF = ("AuthInfo=cred_expire=10",)
JOBS = {"machines": True, "preemptible": True, "requeue_margin": "5s", "saving_rate": "200MB"}
LINK_BYTES_PER_S = 11_500_000
"""What the links carry of content, with headers and other talk beside it."""
USER = "ada"
LOG_LINES = 8
MOST_LOG_LINES = 100_000
TERMINAL = ("TERM", "COLUMNS", "NO_COLOR", "TZ")
CONTROLLER_LOG = "/var/log/slurm/slurmctld.log"


class NoStageError(Exception):
    """There can be no private Slurm on this machine; the message says why."""


@contextmanager
def staged(
    environment: Mapping[str, str], image_bytes: Mapping[str, int], *, is_kept: bool, has_machine: bool
) -> Iterator[DemoCluster]:
    """The stage, ready; whatever happens, nothing of it stays unless it is to be kept.

    Raises NoStageError; later CommandError or TestbedError, after the ends of the logs.
    """
    folder = Path(tempfile.mkdtemp(prefix="outrider-demo-"))
    # What modules of the testbed write for a moment has to go with the rest.
    tempfile.tempdir = str(folder)
    watcher = cleaning.begin(folder)
    cluster = site_cluster(NODES, rate_bits_per_s=RATE_BITS_PER_S, slurm_conf_lines=SLURM_CONF)
    stage = DemoCluster(cluster, environment)
    with ended_in_order(lambda: _end(cluster, watcher, folder, is_kept=is_kept)):
        try:
            stage.begin(image_bytes, provided_guest(folder) if has_machine else NOT_SHOWN)
        except TestbedError as error:
            raise NoStageError(str(error)) from error
        try:
            yield stage
        except (CommandError, TestbedError):
            sys.stderr.write(f"\nThe logs end so:\n{stage.last_words()}\n")
            raise


class DemoCluster:
    """A cluster on which everything runs, seen from the user's chair."""

    def __init__(self, cluster: SlurmCluster, environment: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.site = OutriderSite(cluster, link_bytes_per_s=LINK_BYTES_PER_S, settings={"jobs": JOBS})
        self.no_machine = ""
        """Why no job can run in a virtual machine here; empty if one can."""
        self._terminal = {name: environment[name] for name in TERMINAL if name in environment}

    def begin(self, image_bytes: Mapping[str, int], guest: LinuxGuest | str) -> None:
        self.cluster.up()
        self.site.install()
        if isinstance(guest, str):
            self.no_machine = guest
        else:
            give_guest(self.cluster, guest)
        for name, size_bytes in image_bytes.items():
            image = self.site.image(f"{name}.qcow2", size_bytes)
            digest = image.digest.partition(":")[2]
            self.cluster.write(IMAGES, f"{IMAGES_FOLDER}/{image.name}.sha256", f"{digest}  {image.name}\n")

    def launch(self, command: str, at: str) -> Start:
        """A line of the user's on the head, or of root's on some host."""
        argv, variables = self.cluster.command(
            at or HEAD, ["/bin/sh", "-c", command], user="root" if at else USER
        )
        return Start(argv=argv, environment={**variables, **self._terminal}, folder=Path("/"))

    def write(self, name: str, text: str) -> None:
        """A file in the user's home."""
        home = self.cluster.people.of(USER).home
        self.cluster.write(HEAD, f"{home}/{name}", text, mode=0o755, owner=f"{USER}:{USER}")

    def shell(self, command: str) -> str:
        """What a line of the user's prints, unseen."""
        start = self.launch(command, "")
        return self.cluster.run(HEAD, start.argv[-3:], user=USER, environment=self._terminal).stdout

    def state_of(self, job: str) -> str:
        return self.cluster.job_state(job)

    def wait_over(self, job: str) -> None:
        self.cluster.wait_job(job)

    def first_node_of(self, job: str) -> str:
        return self.shell(f"squeue --noheader --states=all --jobs={job} --format=%B").strip()

    def transfers(self) -> str:
        """Those that wait or run, a line each."""
        return self.shell("outrider transfers 2>/dev/null")

    def is_underway(self, job: str) -> bool:
        """Whether a good part of a job's image has arrived, or more: the job may have begun by now."""
        if self.state_of(job) != "PENDING":
            return True
        answer = self.shell(f"outrider show {job} --json 2>/dev/null || true")
        staging = read(JobDetails, json.loads(answer)).staging if answer else ()
        return sum(each.arrived_bytes for each in staging) > sum(each.size_bytes for each in staging) // 5

    def details(self, name: str) -> ReservationDetails:
        answer: object = json.loads(self.shell(f"outrider show {name} --json"))
        return read(ReservationDetails, answer)

    def output_of(self, job: str) -> str:
        """What a job has printed, in a file of the user's home."""
        return self.shell(f"cat slurm-{job}.out")

    def due_ms(self, name: str) -> int:
        """When a reservation starts, by the hosts' clocks: milliseconds since midnight."""
        start_s = self.details(name).reservation.start_s
        return measured.of_day_ms(self.cluster.run(HEAD, ["date", "-d", f"@{start_s}", "+%T.000"]).stdout)

    def sent_bytes(self, image: str) -> int:
        """How much of an image the server has sent."""
        return measured.sent_bytes(self.cluster.log(IMAGES, "images", MOST_LOG_LINES), image)

    def controller_log(self) -> str:
        return self.cluster.read(HEAD, CONTROLLER_LOG)

    def node_log(self) -> str:
        """Where a node's daemon writes what it does."""
        return f"/var/log/testbed/{NODE_DAEMON}.log"

    def last_words(self) -> str:
        """The ends of the logs, the most telling last."""
        told = []
        try:
            for path in ("/var/log/slurm/slurmd.log", self.node_log()):
                told += [self._end_of(node, path) for node in self.cluster.nodes]
            told += [
                self._end_of(HEAD, CONTROLLER_LOG),
                self._end_of(HEAD, f"/var/log/testbed/{SERVICE}.log"),
            ]
        except (TestbedError, OSError) as error:
            told.append(f"more cannot be read: {error}")
        return "\n".join(told)

    def _end_of(self, host: str, path: str) -> str:
        argv = ["tail", "-n", str(LOG_LINES), path]
        return f"--- {path} on {host}\n{self.cluster.run(host, argv, check=False).stdout.rstrip()}"


def _end(cluster: SlurmCluster, watcher: subprocess.Popen[bytes], folder: Path, *, is_kept: bool) -> None:
    if is_kept and cluster.record.folder.exists():
        cluster.keep()
    else:
        cluster.down()
    watcher.kill()
    watcher.wait()
    tempfile.tempdir = None
    shutil.rmtree(folder, ignore_errors=True)
