"""Grid Engine in an experiment, through Outrider's adapter: jobs, reservations, and jobs' own words.

A job says when it starts, waits for a word of ours, lasts for so many seconds, and says that it ends.
Submissions are carried out by one thread and everything else by another, each in order, so that a
flurry of submissions does not keep those waiting that can start.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
from contextlib import suppress
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING

from bench.physical.events import ThreadFailure
from outrider.core.model import Resources
from outrider.rms.base import Refused, RmsReservation, Submission
from outrider.rms.commands import Account, Output
from outrider.rms.gridengine import GridEngine, GridEngineCommands, GridEngineSettings, context, submitting
from testbed import line_runner
from testbed.batchcluster import HEAD
from testbed.gridengineconf import ACCOUNT, DURATION_OFFSET_S, ENVIRONMENTS, RESERVATION_QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from bench.physical.events import Events
    from bench.physical.site import PhysicalSite

USER = "ada"
COMMAND_S = 60
JOB = """#!/bin/sh
cd "${0%/*}" || exit 1
echo "started $1" >events
read -r seconds <"go.$1"
sleep "$seconds"
echo "ended $1" >events
"""
RESERVED_JOB = """#!/bin/sh
cd "${0%/*}" || exit 1
echo "started $1" >events
read -r word <"go.$1"
echo "ready $1" >events
sleep 600
"""


class HeadRunner:
    """Runs commands on the cluster's head, as the service's account or as a user."""

    def __init__(self, site: PhysicalSite) -> None:
        cluster = site.cluster
        self._person_of = cluster.people.of
        words, variables = cluster.command(HEAD, line_runner.command())
        self._variables = {**variables, "TZ": "UTC"}
        pipe = subprocess.PIPE
        # It ends with its host, or when we do, since then nothing more is to be read.
        self._runner = subprocess.Popen(words, env=variables, stdin=pipe, stdout=pipe, text=True)

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        person = self._person_of(ACCOUNT if account is None else account.user)
        variables = {**self._variables, "USER": person.name, "LOGNAME": person.name, "HOME": person.home}
        told = {"argv": list(argv), "uid": person.uid, "variables": variables, "timeout_s": timeout_s}
        assert self._runner.stdin is not None
        assert self._runner.stdout is not None
        self._runner.stdin.write(json.dumps(told) + "\n")
        self._runner.stdin.flush()
        done = json.loads(self._runner.stdout.readline())
        if done["status"] is None:
            raise TimeoutError(f"{' '.join(argv)} takes longer than {timeout_s} s")
        return Output(done["status"], done["output"].encode(), done["error"])


class Engine:
    """Jobs and reservations by the number of their request."""

    def __init__(self, site: PhysicalSite, events: Events) -> None:
        self._site, self._events = site, events
        self._settings = GridEngineSettings(
            account=ACCOUNT,
            reservation_queue=RESERVATION_QUEUE,
            environments=tuple(ENVIRONMENTS.items()),
            duration_offset_s=DURATION_OFFSET_S,
        )
        self._person = site.cluster.people.of(USER)
        self._account = Account(user=USER, uid=self._person.uid, gid=self._person.gid, home=self._person.home)
        self._system = GridEngine(
            self._settings,
            GridEngineCommands(HeadRunner(site), variables={}, timeout_s=COMMAND_S),
            clock=site.scale,
            account_of=lambda user, uid: self._account,
        )
        self._submitter = GridEngineCommands(HeadRunner(site), variables={}, timeout_s=COMMAND_S)
        home = site.path(HEAD, self._person.home)
        self._folder = next(path for path in (home / f"run{each}" for each in count()) if not path.exists())
        self._keys: dict[int, str] = {}
        self._has_keys = threading.Condition()
        self._pipes: dict[int, int] = {}
        self._submissions: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._others: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._install()
        for asked in (self._submissions, self._others):
            threading.Thread(target=self._carry_out, args=(asked,), daemon=True).start()

    def submit_held(self, number: int, *, nodes: int, slots: int) -> None:
        """A user's job, which waits until it is released: as the submit filter leaves it."""
        # Open for reading, too: what is written stays there until the job reads.
        self._pipes[number] = os.open(self._new_pipe(f"go.{number}"), os.O_RDWR | os.O_CLOEXEC)
        submission = self._submission("job", number, nodes, slots)
        argv = submitting.arguments(submission, self._settings, None, [])
        argv[1:1] = ["-h", "-ac", f"{context.HELD}=1"]

        def submit() -> None:
            key = self._submitter.ask_as(self._account, *argv).decode().split()[-1]
            with self._has_keys:
                self._keys[number] = key
                self._has_keys.notify_all()

        self._submissions.put(submit)

    def release(self, number: int, nodes: Sequence[str]) -> None:
        def release() -> None:
            with self._has_keys:
                self._has_keys.wait_for(lambda: number in self._keys, COMMAND_S)
            self._system.release(self._keys[number], tuple(nodes))

        self._others.put(release)

    def reserve(self, number: int, nodes: Sequence[str], start_s: int, end_s: int, *, slots: int) -> None:
        """An advance reservation of whole nodes, in the daemons' time, and a user's job that waits in it."""
        # Open for reading, too: what is written stays there until the job reads.
        self._pipes[number] = os.open(self._new_pipe(f"go.{number}"), os.O_RDWR | os.O_CLOEXEC)
        wanted = RmsReservation(
            name=f"vw{number}", nodes=tuple(nodes), start_s=start_s, end_s=end_s, users=(USER,)
        )
        submission = self._submission("reserved", number, len(nodes), slots, wanted.name)

        def reserve() -> None:
            # On a machine that is too busy it may be over before it is made: then no job starts in it.
            with suppress(Refused):
                self._system.reserve(wanted)
                self._system.submit(submission)

        self._others.put(reserve)

    def tell(self, number: int, word: str) -> None:
        """Let a job go on, now or when it comes so far."""
        os.write(self._pipes[number], f"{word}\n".encode())

    def empty(self) -> None:
        """Take away what is left of reservations and their jobs, which would end by themselves, later."""
        while self._pipes:
            os.close(self._pipes.popitem()[1])
        sight = self._system.look()
        for job in sight.jobs:
            if job.reservation is not None:
                self._system.cancel(job.key, "the experiment is over")
        for reservation in sight.reservations:
            self._site.cluster.wait_for(
                f"the end of {reservation.name}", partial(self._is_unreserved, reservation.name), COMMAND_S
            )

    def _is_unreserved(self, name: str) -> bool:
        """Not while a job still ends there."""
        try:
            self._system.unreserve(name)
        except Refused:
            return False
        return True

    def _submission(
        self, script: str, number: int, nodes: int, slots: int, reservation: str | None = None
    ) -> Submission:
        return Submission(
            user=USER,
            uid=self._person.uid,
            argv=(f"{self._person.home}/{self._folder.name}/{script}", str(number)),
            nodes_wanted=nodes,
            resources=Resources.of(cpus=slots),
            limit_s=None,
            reservation=reservation,
        )

    def _install(self) -> None:
        self._folder.mkdir()
        for name, text in (("job", JOB), ("reserved", RESERVED_JOB)):
            (self._folder / name).write_text(text)
            (self._folder / name).chmod(0o755)
        os.chown(self._folder, self._person.uid, self._person.gid)
        self._events.hear(self._new_pipe("events"))

    def _new_pipe(self, name: str) -> Path:
        path = self._folder / name
        os.mkfifo(path)
        os.chown(path, self._person.uid, self._person.gid)
        return path

    def _carry_out(self, asked: SimpleQueue[Callable[[], None]]) -> None:
        while True:
            work = asked.get()
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the main thread raises it
                self._events.put(ThreadFailure(error))
