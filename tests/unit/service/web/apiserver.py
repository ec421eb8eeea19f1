"""A real server on a unix socket with a scripted front behind it, and a client for it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cachemgr.base.shares import Share
from outrider.service.answers.decision import Decision
from outrider.service.answers.events import EventTaken
from outrider.service.answers.images import ImageList, ImageView
from outrider.service.answers.jobs import JobDetails, JobList, JobView, Verdict
from outrider.service.answers.leases import LeaseDetails, LeaseList, LeaseView, Report, ReportLine
from outrider.service.answers.nodes import NodeList, Reconciled
from outrider.service.answers.records import DecisionLine, DecisionList, Explanation
from outrider.service.answers.reply import Answer, Trouble
from outrider.service.answers.reservations import ReservationDetails, ReservationList, ReservationView
from outrider.service.answers.site import ShareList, Timeline
from outrider.service.answers.switch import SwitchStep, SwitchView
from outrider.service.answers.transfers import PlannedTransfer, TransferList
from outrider.service.front import (
    BackedUp,
    Busy,
    Configuration,
    Health,
    Reloaded,
    Submit,
    WantedShares,
)
from outrider.service.ports import FoundImage, ImageClaim, ImageTrouble, LoginBook, RegistryLogin
from outrider.service.requests import Caller, Recall, Request
from outrider.service.settings import Administrators
from outrider.service.web.app import make_app
from outrider.service.web.connections.munge import Munge
from outrider.service.web.connections.server import listen_tcp, listen_unix, make_server
from outrider.service.web.limits import Limits
from tests.unit.service.web.siteanswers import NOW_S, OVERVIEW, SHARES, STATUS

DIGEST = "sha256:" + "a" * 64
DEADLINE_S = 90
IMAGE = ImageView(uri="file:///images/a.qcow2", digest=DIGEST, size_bytes=1000, is_private=False)
DECISION = Decision(
    result="accepted",
    name="render-17",
    workspace="render",
    start_s=NOW_S + 3600,
    end_s=NOW_S + 7200,
    nodes="n[1-2]",
    node_count=2,
    image=IMAGE,
    transfers=(
        PlannedTransfer(
            number=3,
            nodes="n[1-2]",
            size_bytes=1000,
            duration_s=18,
            begin_s=NOW_S,
            latest_begin_s=NOW_S + 3582,
            deadline_s=NOW_S + 3600,
        ),
    ),
    ready_s=NOW_S + 18,
    latest_ready_s=NOW_S + 3600,
    slack_s=3582,
)
VIEW = ReservationView(
    name="render-17",
    number=17,
    state="accepted",
    user="mia",
    account="",
    nodes="n[1-2]",
    node_count=2,
    start_s=NOW_S + 3600,
    end_s=NOW_S + 7200,
    image=IMAGE,
    ready_s=None,
    is_confirmed=True,
    why="",
)
JOB = JobView(
    job="17",
    user="mia",
    state="staging",
    held=True,
    image=IMAGE,
    nodes_wanted=1,
    nodes="n1",
    node_count=1,
    submitted_s=NOW_S - 60,
    ready_s=NOW_S + 60,
    start_s=NOW_S + 60,
    is_overdue=False,
    words="image render.qcow2 is on its way, ready about 14:03",
)
DETAILS = ReservationDetails(
    reservation=VIEW,
    workspace="render",
    accepted_s=NOW_S,
    changed_s=NOW_S,
    ended_s=None,
    staging=(),
    transfers=(),
    odds_percent=None,
    receipt=None,
)
LINE = DecisionLine(number=5, at_s=NOW_S, kind="reserve", name="render-17", outcome="accepted", reason="")
LEASE = LeaseView(
    name="render-17",
    kind="reservation",
    state="ready",
    user="ada",
    account="",
    workspace="render",
    start_s=NOW_S,
    end_s=NOW_S + 3600,
    nodes="n1",
    node_count=1,
    left=1,
    last_end_s=NOW_S + 3600,
    price=None,
)
SWITCH = SwitchView(
    state="planned",
    number=1,
    by="root",
    begun_s=None,
    ended_s=None,
    cost_mib=5,
    bound_mib=5,
    steps=(
        SwitchStep(stage=1, kind="migrate", job="4711", source="n1", target="n2", pause_s=9, state="waits"),
    ),
    asleep=("4712",),
    kept=("job 4713: it was moved within the last hour",),
    explanation=("4711 leaves n1 for n2",),
    words="",
    is_consolidating=False,
    actions_left=60,
)
ANSWERS: Mapping[str, Answer] = {
    "Accept": DECISION,
    "Reserve": DECISION,
    "Modify": DECISION,
    "Cancel": DETAILS,
    "Trigger": DETAILS,
    "SignedCall": EventTaken(name="render-17", what="begin"),
    "Show": DETAILS,
    "DecideSwitch": SWITCH,
    "ShowSwitch": SWITCH,
    "ListReservations": ReservationList(reservations=(VIEW,), next_after=None),
    "ListImages": ImageList(images=(), is_complete=True),
    "ListNodes": NodeList(nodes=(), next_after=""),
    "ListJobs": JobList(jobs=(JOB,), next_after=""),
    "ShowJob": JobDetails(job=JOB, tasks=1, staging=(), released_to="n1", decisions=(LINE,)),
    "SuspendJob": JobDetails(job=JOB, tasks=1, staging=(), released_to="n1", decisions=(LINE,)),
    "ResumeJob": JobDetails(job=JOB, tasks=1, staging=(), released_to="n1", decisions=(LINE,)),
    "MigrateJob": JobDetails(job=JOB, tasks=1, staging=(), released_to="n1", decisions=(LINE,)),
    "AskStart": Verdict(verdict="go"),
    "ListTransfers": TransferList(transfers=(), is_complete=True),
    "ShowTimeline": Timeline(from_s=0, until_s=1, nodes=(), stretches=(), is_complete=True),
    "ShowOverview": OVERVIEW,
    "Explain": Explanation(name="render-17", sentences=("Because.",), decisions=(LINE,)),
    "ShowStatus": STATUS,
    "ListDecisions": DecisionList(decisions=(LINE,), last=5),
    "ListLeases": LeaseList(leases=(LEASE,), is_complete=True),
    "ShowLease": LeaseDetails(lease=LEASE, reservations=(VIEW,)),
    "ShowReport": Report(
        by="user",
        from_s=0,
        until_s=NOW_S,
        is_of_all=False,
        lines=(
            ReportLine(
                payer="ada",
                reservations=2,
                node_seconds=7200,
                charged=2000,
                booked_reservations=1,
                booked=500,
                refused=1,
                lost_to_refusals=900,
                too_dear=0,
                lost_to_price=0,
                machines=0,
                machine_node_seconds=0,
                machine_cpu_seconds=0,
            ),
        ),
    ),
    "Reconcile": Reconciled(findings=()),
}
WORKSPACE = f"""version: 1
metadata:
  name: render
  image:
    uri: file:///images/a.qcow2
    digest: {DIGEST}
deployment:
  nodes: 2
  duration: 1h
  start: now+1hour
"""
BEST_EFFORT = WORKSPACE.replace("  start: now+1hour\n", "")


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class KnownLogins:
    """A book of logins that takes whatever it is told."""

    def add(self, uid: int, host: str, user: str, password: str) -> RegistryLogin:
        return RegistryLogin(host=host, user=user, since_s=NOW_S)

    def drop(self, uid: int, host: str) -> bool:
        return True

    def of(self, uid: int) -> tuple[RegistryLogin, ...]:
        return (RegistryLogin(host="registry.example.org", user="ada", since_s=NOW_S),)


@dataclass(kw_only=True)
class ScriptedFront:
    """Answers from a table, and remembers what it was asked. An exception in the table is raised,
    a Future is handed out as it is."""

    answers: dict[str, Any] = field(default_factory=lambda: dict(ANSWERS))
    found: Any = field(default_factory=lambda: FoundImage(size_bytes=1000, digest=DIGEST))
    job: Any = "42"
    alive: Health = field(default_factory=lambda: Health(is_alive=True, is_ready=True))
    reloaded: Any = field(default_factory=lambda: Reloaded(rules=3))
    asked: list[tuple[Caller, Any]] = field(default_factory=list)
    resolved: list[ImageClaim] = field(default_factory=list)
    missing: str = ""
    """An address at which there is nothing."""
    recalled: Any = field(default_factory=lambda: Trouble(code="not-found", message="nothing was answered"))
    recalls: list[tuple[int, str, str]] = field(default_factory=list)
    drains: bool = False
    """Whether nodes are drained by it."""
    drained: list[tuple[tuple[str, ...], bool]] = field(default_factory=list)

    def reset(self) -> None:
        fresh = ScriptedFront()
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(fresh, name))

    def now_s(self) -> int:
        return NOW_S

    def ask(self, caller: Caller, request: Request) -> Future[Answer]:
        if isinstance(request, Recall):
            self.recalls.append((caller.uid, request.key, request.request_hash))
            return self._given(self.recalled)
        self.asked.append((caller, request))
        return self._given(self.answers[type(request).__name__])

    def resolve(self, claim: ImageClaim) -> Future[FoundImage]:
        self.resolved.append(claim)
        is_missing = claim.uri == self.missing
        return self._given(ImageTrouble(f"nothing is at {claim.uri}") if is_missing else self.found)

    def submit(self, caller: Caller, submission: Submit) -> Future[str]:
        self.asked.append((caller, submission))
        return self._given(self.job)

    def logins(self) -> LoginBook:
        return KnownLogins()

    def shares(self, caller: Caller, wanted: WantedShares) -> ShareList:
        self.asked.append((caller, wanted))
        return replace(SHARES, is_of_all=caller.is_admin)

    def health(self) -> Health:
        return self.alive

    def metrics_text(self) -> bytes:
        return b"outrider_up 1\n"

    def config(self) -> Configuration:
        return Configuration(settings={"site": "site"}, policies={"rules": []})

    def reload_policies(self) -> Reloaded:
        if isinstance(self.reloaded, Exception):
            raise self.reloaded
        assert isinstance(self.reloaded, Reloaded)
        return self.reloaded

    def drain(self, nodes: tuple[str, ...], *, is_ended: bool) -> Future[bool]:
        self.drained.append((nodes, is_ended))
        return done(self.drains)

    def back_up(self, path: str) -> BackedUp:
        return BackedUp(path=path, reservations=1)

    def _given(self, value: Any) -> Future[Any]:
        if isinstance(value, Busy):
            raise value
        return value if isinstance(value, Future) else done(value)

    @property
    def last(self) -> Any:
        return self.asked[-1][1]


class Tally:
    """A meter and a log that keep what they are told."""

    def __init__(self) -> None:
        self.counts: list[tuple[str, ...]] = []
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        self.counts.append((name, *labels))

    def set(self, name: str, value: float, *labels: str) -> None:
        self.counts.append((name, *labels))

    def observe(self, name: str, value: float, *labels: str) -> None:
        self.counts.append((name, *labels))

    def debug(self, event: str, **fields: object) -> None:
        self.lines.append(("debug", event, fields))

    def info(self, event: str, **fields: object) -> None:
        self.lines.append(("info", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append(("warning", event, fields))

    def error(self, event: str, **fields: object) -> None:
        self.lines.append(("error", event, fields))


@dataclass(frozen=True, kw_only=True)
class Reply:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=DEADLINE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Server:
    """The API on a socket in a folder, and with `munge` on a port of the loopback, too."""

    def __init__(self, folder: Path, *, limits: Limits | None = None, munge: Munge | None = None) -> None:
        self.front = ScriptedFront()
        self.tally = Tally()
        self.path = str(folder / "api.sock")
        app = make_app(
            self.front,
            administrators=Administrators(users=frozenset({"daemon"})),
            meter=self.tally,
            log=self.tally,
            munge=munge,
            limits=limits,
        )
        tcp = listen_tcp("127.0.0.1", 0)
        self.port = int(tcp.getsockname()[1])
        sockets = [listen_unix(self.path), tcp]
        self._app = app
        self._server = make_server(app, limits)
        self._thread = threading.Thread(target=self._server.run, args=(sockets,))
        self._thread.start()
        wait_until(lambda: self._server.started)

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    @property
    def open_connections(self) -> int:
        return len(self._server.server_state.connections)

    def shares(self) -> list[Share]:
        return self._app.shares()

    def connect_tcp(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=DEADLINE_S)

    def connect(self) -> socket.socket:
        """A bare connection, for what no HTTP client would send."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(DEADLINE_S)
        connection.connect(self.path)
        return connection

    def send(self, method: str, target: str, body: bytes | None = None, **headers: str) -> Reply:
        """One request over the unix socket; headers are named with underscores."""
        return sent(UnixConnection(self.path), method, target, body, headers)

    def send_tcp(self, method: str, target: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        return sent(connection, method, target, body, headers)

    def get(self, target: str, **headers: str) -> Reply:
        return self.send("GET", target, None, **headers)

    def post(self, target: str, body: object, **headers: str) -> Reply:
        return self.send("POST", target, json.dumps(body).encode(), **headers)


def sent(
    connection: http.client.HTTPConnection,
    method: str,
    target: str,
    body: bytes | None,
    headers: Mapping[str, str],
) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    if body is not None:
        named.setdefault("Content-Type", "application/json")
    try:
        # A server that refuses early closes before all is sent; its answer is there all the same.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.request(method, target, body, named)
        answer = connection.getresponse()
        lowered = {name.lower(): value for name, value in answer.getheaders()}
        return Reply(status=answer.status, headers=lowered, body=answer.read())
    finally:
        connection.close()


def wait_until(condition: Callable[[], bool]) -> None:
    until_s = time.perf_counter() + DEADLINE_S
    while not condition():
        assert time.perf_counter() < until_s, "it did not come about"
        threading.Event().wait(0.01)


def image_trouble(words: str) -> Future[Any]:
    return done(ImageTrouble(words))


def check_error(reply: Reply, status: int, code: str) -> Any:
    """The form of every error. Its content is returned."""
    assert (reply.status, reply.json["code"]) == (status, code), reply.body
    assert reply.headers["content-type"] == "application/json"
    assert set(reply.json) == {"code", "message", "problems"}
    assert reply.json["message"]
    assert "\n" not in reply.json["message"]
    assert "Traceback" not in reply.json["message"]
    for problem in reply.json["problems"]:
        assert set(problem) == {"line", "column", "key", "message"}
    return reply.json
