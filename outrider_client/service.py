"""The service as an object: each method is one question, and its answer a frozen value.

    from outrider_client import Image, Outrider

    outrider = Outrider()
    image = Image("https://images.example.org/ubuntu.qcow2")
    decision = outrider.reserve(image, nodes=4, start="14:00", duration="2h")
    if decision.result == "accepted":
        outrider.submit(["./render.sh"], reservation=decision.name, nodes=4)

What the service refuses is an answer (`Decision.result`, with the reason and the earliest start); whatever
else goes wrong is an `OutriderError`, which is one sentence for people.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TypeVar, Union

from outrider_client import answers
from outrider_client.clock import Clock, SystemClock
from outrider_client.doors import door_of
from outrider_client.errors import BrokenError, InputError, LateError
from outrider_client.reading import read
from outrider_client.transport import TIMEOUT_S, Transport, in_path
from outrider_client.wishes import Image, Job, Wish, WorkspaceText, options_of, text_of_file

OVER = ("ended", "cancelled", "failed")
READY = ("ready", "active", *OVER)
GONE_JOB = ("refused", "over")
LOOK_EVERY_S = 2.0
Value = Union[str, int, None]
T = TypeVar("T")


class Outrider:
    """The service on this machine, behind a unix socket, or on another, by its address.

    Without `socket` and `server` the variables OUTRIDER_SOCKET and OUTRIDER_SERVER say where it is, and
    without these it is `/run/outrider/outriderd.sock`. `timeout_s` is how long one answer is waited for,
    restarts of the service included: a change that was sent twice is made once. `zone` is where times
    without a zone are meant, as `Europe/Berlin`; empty is the service's own.
    """

    def __init__(
        self,
        *,
        socket: str | None = None,
        server: str | None = None,
        timeout_s: int = TIMEOUT_S,
        zone: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._clock: Clock = clock or SystemClock()
        self._transport = Transport(door_of(socket, server, os.environ), self._clock, timeout_s=timeout_s)
        self._zone = zone

    def reserve(
        self, wanted: Image | WorkspaceText | str, *, account: str = "", **options: Value
    ) -> answers.Decision:
        """Ask for nodes that have the image when the time comes.

        `wanted` is an image, a workspace's text, or the path of a workspace's file; `options` are keys of
        its deployment (nodes, start, duration, finish_by, cpus, memory, gpus, instances_per_node) and
        replace what the file says.
        """
        body = self._wish(wanted, account, options).body()
        return read(answers.Decision, self._transport.post("/v1/reservations", body))

    def plan(
        self, wanted: Image | WorkspaceText | str, *, account: str = "", **options: Value
    ) -> answers.Decision:
        """What `reserve` would be answered now; nothing is reserved."""
        body = self._wish(wanted, account, options).body()
        return read(answers.Decision, self._transport.post("/v1/plans", body))

    def submit(
        self,
        argv: Sequence[str],
        *,
        reservation: str = "",
        workspace: Image | WorkspaceText | str | None = None,
        nodes: int | None = None,
        duration: str = "",
        account: str = "",
        folder: str = "",
    ) -> answers.Submitted:
        """Hand a job to the batch system, to run in a reservation, or best effort on a workspace's image."""
        text = None if workspace is None else _text_of(workspace)
        job = Job(argv, nodes, duration, account, reservation, text, self._zone, folder)
        return read(answers.Submitted, self._transport.post("/v1/submissions", job.body()))

    def wait(
        self, name: str, *, until: str = "ready", timeout_s: float | None = None
    ) -> answers.ReservationDetails:
        """Wait until a reservation is `ready` (its image is on all nodes) or `over`.

        Raises BrokenError if it has failed, and LateError after `timeout_s`.
        """
        if until not in ("ready", "over"):
            raise InputError(f"until={until!r}: wait until ready, or over")
        ends_with = READY if until == "ready" else OVER
        for late in self._looks(timeout_s):
            found = self.show(name)
            name, state = found.reservation.name, found.reservation.state
            if state == "failed":
                raise BrokenError(f"{name} has failed; see outrider explain {name}")
            if state in ends_with:
                return found
            if late:
                raise LateError(f"{name} is {state} and not {until} after {timeout_s:g} s")
        raise AssertionError("looks do not end by themselves")

    def wait_for_job(self, job: str, *, timeout_s: float | None = None) -> answers.JobDetails:
        """Wait until a best-effort job's image is there and the batch system may start it.

        Raises BrokenError if its image is refused, and LateError after `timeout_s`.
        """
        for late in self._looks(timeout_s):
            found = self.show_job(job)
            if found.job.state == "refused":
                raise BrokenError(f"job {job} waits for an image that it cannot have: {found.job.words}")
            if not found.job.held or found.job.state in GONE_JOB:
                return found
            if late:
                raise LateError(f"job {job} is {found.job.state} and still held after {timeout_s:g} s")
        raise AssertionError("looks do not end by themselves")

    def reservations(
        self, *, user: str | None = None, states: Sequence[str] = (), past: bool = False
    ) -> tuple[answers.ReservationView, ...]:
        """Reservations that are not over, or with `past` those that are, the youngest first."""
        query = {"past": "true" if past else None, "user": user, "state": ",".join(states) or None}
        found = self._transport.pages("/v1/reservations", query, "reservations")
        return read(answers.ReservationList, found).reservations

    def jobs(self, *, user: str | None = None, states: Sequence[str] = ()) -> tuple[answers.JobView, ...]:
        """Best-effort jobs that name an image, the first submitted first."""
        query = {"user": user, "state": ",".join(states) or None}
        return read(answers.JobList, self._transport.pages("/v1/jobs", query, "jobs")).jobs

    def show(self, name: str) -> answers.ReservationDetails:
        """A reservation, and how far its image is on each node."""
        return self._get(answers.ReservationDetails, f"/v1/reservations/{in_path(name)}")

    def show_job(self, job: str) -> answers.JobDetails:
        """A best-effort job, and how far its image is on each node."""
        return self._get(answers.JobDetails, f"/v1/jobs/{in_path(job)}")

    def cancel(self, name: str) -> answers.ReservationDetails:
        """Give a reservation back."""
        answer = self._transport.delete(f"/v1/reservations/{in_path(name)}")
        return read(answers.ReservationDetails, answer)

    def status(self) -> answers.Status:
        """The service at a glance."""
        return self._get(answers.Status, "/v1/status")

    def _get(self, kind: type[T], path: str) -> T:
        return read(kind, self._transport.get(path))

    def _wish(self, wanted: Image | WorkspaceText | str, account: str, options: dict[str, Value]) -> Wish:
        return Wish(_text_of(wanted), options_of(**options), self._zone, account)

    def _looks(self, timeout_s: float | None) -> Iterable[bool]:
        """One for each look, whether it is the last."""
        began_s = self._clock.monotonic_s()
        while True:
            left_s = LOOK_EVERY_S
            if timeout_s is not None:
                left_s = began_s + timeout_s - self._clock.monotonic_s()
            yield left_s <= 0
            self._clock.sleep(max(0.0, min(left_s, LOOK_EVERY_S)))


def _text_of(wanted: Image | WorkspaceText | str) -> WorkspaceText:
    if isinstance(wanted, WorkspaceText):
        return wanted
    if isinstance(wanted, Image):
        return WorkspaceText(wanted.document())
    return text_of_file(wanted)
