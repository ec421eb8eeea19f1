"""What users of a walk's site have under way, on either batch system, and how it goes on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any, Protocol

from testbed.batchcluster import HEAD, IMAGES, IMAGES_FOLDER
from testbed.bootedcluster import BootedCluster, BootedGridEngine, BootedSlurm
from testbed.gridengine import FINISHED

USER = "ada"
PATIENCE_S = 300
# In qacct: rescheduled as a hook has ended with 99.
GIVEN_BACK = "30"
IMAGE_BYTES = 8_000_000
AHEAD_S = 45
READS = 'sha256sum <"$OUTRIDER_IMAGE"\n'
SCRIPT = "#!/bin/sh\nexec >{output} 2>&1\n"


class Queue(Protocol):
    """A batch system as its users have it."""

    @property
    def cluster(self) -> BootedCluster: ...
    def submit(self, script: str, image: str | None = None, *, is_held: bool = False) -> str: ...
    def release(self, job: str) -> None: ...
    def is_running(self, job: str) -> bool: ...
    def is_waiting(self, job: str) -> bool: ...
    def wait_good(self, job: str) -> None: ...


@dataclass(frozen=True)
class SlurmQueue:
    cluster: BootedSlurm

    def submit(self, script: str, image: str | None = None, *, is_held: bool = False) -> str:
        named = script if image is None else script.replace("\n", f"\n#OUTRIDER image: {image}\n", 1)
        return self.cluster.sbatch(named, *(["--hold"] if is_held else []), "--time=30")

    def release(self, job: str) -> None:
        self.cluster.run(HEAD, ["scontrol", "release", job], user=USER)

    def is_running(self, job: str) -> bool:
        return self.cluster.job_state(job) == "RUNNING"

    def is_waiting(self, job: str) -> bool:
        return self.cluster.job_state(job) == "PENDING"

    def wait_good(self, job: str) -> None:
        self.cluster.wait_job(job, "COMPLETED", PATIENCE_S)


@dataclass(frozen=True)
class GridQueue:
    cluster: BootedGridEngine

    def submit(self, script: str, image: str | None = None, *, is_held: bool = False) -> str:
        named = [] if image is None else ["-ac", f"OUTRIDER={image}"]
        return self.cluster.qsub(script, *named, *(["-h"] if is_held else []), "-l", "h_rt=1800")

    def release(self, job: str) -> None:
        self.cluster.run(HEAD, ["qrls", "-h", "u", job], user=USER)

    def is_running(self, job: str) -> bool:
        return self.cluster.job_state(job) == "r"

    def is_waiting(self, job: str) -> bool:
        return self.cluster.job_state(job) in ("qw", "hqw")

    def wait_good(self, job: str) -> None:
        self.cluster.wait_job(job, FINISHED, PATIENCE_S)
        ends = [(each["failed"].split()[0], each["exit_status"]) for each in self.cluster.accounts(job)]
        # A hook that found no daemon in time has given the job back, which was then begun again.
        assert ends[-1] == ("0", "0"), (job, ends)
        assert {failed for failed, _ in ends[:-1]} <= {GIVEN_BACK}, (job, ends)


@dataclass
class UnderWay:
    """Jobs of all kinds: one runs, one's image is coming, some are held, one is in a reservation."""

    queue: Queue
    name: str
    """Of these jobs' images and files; another one each time."""
    jobs: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    plain: list[str] = field(default_factory=list)
    reservation: str = ""
    start_s: int = 0

    def begin(self) -> None:
        """Returns when each is what its kind says."""
        self._submit("running", more=f"until [ -e go-{self.name} ]; do sleep 1; done\n{READS}")
        self._wait("running", self.queue.is_running)
        self._reserve()
        self._submit("staging", is_held_back=True)
        self.queue.cluster.wait_for("bytes to come", self._is_arriving, PATIENCE_S)
        self._submit("waiting", is_held_back=True)
        self._submit("held", is_held=True)

    def more(self) -> None:
        """While something is done to Outrider, users go on: the image is on a node already."""
        kind = f"more{len(self.jobs)}"
        self.jobs[kind] = self.queue.submit(self._script(kind), self._address("running"))
        self.digests[kind] = self.digests["running"]
        self.plain.append(self.queue.submit("#!/bin/sh\nexec >/dev/null 2>&1\ntrue\n"))

    def still_wait(self) -> bool:
        """Whether what cannot begin has not begun, nor been given up."""
        return all(self.queue.is_waiting(self.jobs[kind]) for kind in ("staging", "waiting", "held"))

    def go_on(self) -> None:
        """Let everything come to its end."""
        cluster = self.queue.cluster
        for kind in ("staging", "waiting"):
            cluster.run(IMAGES, ["rm", f"{IMAGES_FOLDER}/{self._image(kind)}.held"])
        self.queue.release(self.jobs["held"])
        cluster.run(HEAD, ["touch", f"go-{self.name}"], user=USER)

    def otherwise(self) -> dict[str, list[str]]:
        """Each has ended well, and the promise is kept; what jobs printed that have not seen their image."""
        for job in (*self.plain, *self.jobs.values()):
            self.queue.wait_good(job)
        found = {}
        for kind in self.jobs:
            printed = self.queue.cluster.read(HEAD, f"{self._home()}/{kind}-{self.name}")
            lines = [line.split()[0] for line in printed.splitlines()]
            wanted = [self.digests[kind]] * (2 if kind == "running" else 1)
            if lines != wanted:
                found[kind] = lines
        self._check_reservation()
        return found

    def _submit(
        self, kind: str, *, is_held: bool = False, is_held_back: bool = False, more: str = ""
    ) -> None:
        address = self._publish(kind, is_held_back=is_held_back)
        self.jobs[kind] = self.queue.submit(self._script(kind, more), address, is_held=is_held)

    def _script(self, kind: str, more: str = "") -> str:
        return SCRIPT.format(output=f"{kind}-{self.name}") + READS + more

    def _reserve(self) -> None:
        cluster = self.queue.cluster
        options = ["--nodes", "1", "-t", "3m", "--start", f"now+{AHEAD_S}s"]
        answer = self._asked("reserve", "--image", self._publish("reserved"), *options)
        assert answer["result"] == "accepted", answer
        self.reservation, self.start_s = answer["name"], answer["start_s"]
        script = self._script("reserved", f"date +%s >began-{self.name}\n")
        path = f"{self._home()}/reserved-{self.name}.sh"
        cluster.write(HEAD, path, script, mode=0o755)
        said = ""

        def is_taken() -> bool:
            nonlocal said
            words = ["submit", "--reservation", self.reservation, "--nodes", "1", path]
            done = cluster.run(HEAD, ["outrider", *words], user=USER, check=False)
            said = done.stdout
            return done.returncode == 0

        # The batch system has it a moment later.
        cluster.wait_for("the reservation to take a job", is_taken, PATIENCE_S)
        self.jobs["reserved"] = next(word for word in said.replace(",", " ").split() if word.isdigit())

    def _check_reservation(self) -> None:
        began_s = int(self.queue.cluster.read(HEAD, f"{self._home()}/began-{self.name}"))
        assert began_s >= self.start_s
        shown = self._asked("show", self.reservation)
        state = shown["reservation"]["state"]
        assert state not in ("endangered", "failed", "broken"), shown
        self.queue.cluster.run(HEAD, ["outrider", "cancel", self.reservation], user=USER, check=False)

    def _asked(self, *words: str) -> Any:
        done = self.queue.cluster.run(HEAD, ["outrider", *words, "--json"], user=USER, check=False)
        assert done.stdout, done.stderr
        return json.loads(done.stdout)

    def _publish(self, kind: str, *, is_held_back: bool = False) -> str:
        content = hashlib.sha256(f"{kind} {self.name}".encode()).digest() * (IMAGE_BYTES // 32)
        self.digests[kind] = hashlib.sha256(content).hexdigest()
        cluster = self.queue.cluster
        if is_held_back:
            cluster.publish(f"{self._image(kind)}.held", b"")
        cluster.publish(f"{self._image(kind)}.sha256", f"{self.digests[kind]}\n".encode())
        return cluster.publish(self._image(kind), content)

    def _is_arriving(self) -> bool:
        cluster = self.queue.cluster
        listed = [cluster.run(node, ["cachemgr", "ls", "--json"]).stdout for node in cluster.nodes]
        return any(
            each["digest"].endswith(self.digests["staging"]) and int(each["arrived_bytes"])
            for text in listed
            for each in json.loads(text)["arriving"]
        )

    def _wait(self, kind: str, condition: Any) -> None:
        self.queue.cluster.wait_for(
            f"the job {kind}", lambda: condition(self.jobs[kind]), PATIENCE_S, self.queue.cluster.logs
        )

    def _image(self, kind: str) -> str:
        return f"{kind}-{self.name}.raw"

    def _address(self, kind: str) -> str:
        return f"http://images:8000/{self._image(kind)}"

    def _home(self) -> str:
        return self.queue.cluster.people.of(USER).home
