"""A desk with a small world around it that does what it is told at once, or not at all.

Nodes bring images at a rate; the batch system is the twin. A test lets time pass and looks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC
from pathlib import Path

from outrider.core.model import Resources
from outrider.metadata.policies import Policies, parse_policies
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import parse_workspace
from outrider.rms.base import RmsError, RmsJob, RmsNode, Submission, look
from outrider.rms.twin import Twin
from outrider.service.answers.decision import Decision
from outrider.service.answers.reply import Answer
from outrider.service.answers.reservations import ReservationDetails
from outrider.service.daemon.threads.planning import planned
from outrider.service.desk.batch.reservation_effects import carry_out
from outrider.service.desk.desk import Desk, Event, Outcome
from outrider.service.ports import (
    COPYING,
    Arriving,
    AskEvent,
    AskProgram,
    Call,
    Carry,
    Copy,
    DropLookup,
    EventAnswer,
    Fetch,
    Finished,
    FoundImage,
    HeldBytes,
    ImageTrouble,
    Look,
    NodeImage,
    NodeReport,
    NodeRoom,
    NodeTrouble,
    NotYet,
    OrderResult,
    Pin,
    Release,
    ResolveImage,
    TellNode,
    TellUser,
    Unpin,
)
from outrider.service.requests import Asked, Caller, Request, Reserve, Show, Ticked
from outrider.service.settings import Settings
from outrider.store.sqlite.store import SqliteStore

ALICE = Caller(uid=1001, user="alice", gids=(100,), groups=("physics",), group="physics")
BOB = Caller(uid=1002, user="bob", gids=(100,), groups=("physics",), group="physics")
ADMIN = Caller(uid=0, user="root", is_admin=True)
GIB = 1 << 30
RATE = 100_000_000
COPY_S = 40
MOST_TURNS = 100
"""How long nodes take for a full copy."""
FREE = b"version: 1\nrules:\n  - name: all\n"


def digest_of(name: str) -> str:
    return "sha256:" + (name.encode().hex() * 64)[:64]


class Silent:
    """A meter and a log that remember what was written."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.counts: dict[tuple[str, ...], int] = {}
        self.observed: dict[str, list[float]] = {}

    def count(self, name: str, *labels: str, by: int = 1) -> None:
        self.counts[name, *labels] = self.counts.get((name, *labels), 0) + by

    def set(self, name: str, value: float, *labels: str) -> None: ...

    def observe(self, name: str, value: float, *labels: str) -> None:
        self.observed.setdefault(name, []).append(value)

    def debug(self, event: str, **fields: object) -> None: ...

    def info(self, event: str, **fields: object) -> None:
        self.lines.append(event + "".join(f" {name}={value}" for name, value in fields.items()))

    def warning(self, event: str, **fields: object) -> None:
        self.info(f"WARNING {event}", **fields)

    def error(self, event: str, **fields: object) -> None:
        self.info(f"ERROR {event}", **fields)


class Clock:
    def __init__(self, now_s: int) -> None:
        self.at_s = now_s

    def now_s(self) -> int:
        return self.at_s

    def monotonic_s(self) -> float:
        return float(self.at_s)

    def sleep(self, seconds: float) -> None:
        self.at_s += round(seconds)


@dataclass
class Brought:
    """An image that is arriving on a node."""

    fetch: Fetch
    begun_s: int
    arrived_bytes: int = 0


@dataclass
class Pool:
    """A node's pool: what is there, what arrives, and the pins."""

    limit_bytes: int = 300 * GIB
    rate_bytes_per_s: int = 1 << 40
    images: dict[str, NodeImage] = field(default_factory=dict)
    arriving: dict[str, Brought] = field(default_factory=dict)
    pins: dict[tuple[str, str], int] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)
    """Owners of the instances here."""
    is_away: bool = False
    broken: str = ""
    """Why nothing can be brought here, if so."""
    broken_code: str = "source-failed"
    fetches: list[Fetch] = field(default_factory=list)
    held: dict[str, HeldBytes] = field(default_factory=dict)
    """What users hold, by a name of it."""
    promised: tuple[int, int] = (0, 0)
    """What the service has it keep, and until when."""
    disk_bytes: int | None = None
    """What its disk lets it hold, if that is less than its limit."""
    users_percent: int = 50
    """What it leaves to users at most, or says that it does."""
    is_old: bool = False
    """It knows of no promises."""
    copied_formats: tuple[str, ...] = ()
    """Its jobs get full copies of such images, and all images here are such."""
    copies: dict[tuple[str, str], int] = field(default_factory=dict)
    """By digest and owner, when the copy that was made before its job is ready."""
    copied: list[Copy] = field(default_factory=list)
    uncopied: str = ""
    """Why no copy can be made, if so."""

    @property
    def capacity_bytes(self) -> int:
        return self.limit_bytes if self.disk_bytes is None else min(self.disk_bytes, self.limit_bytes)

    def user_holds(self, name: str, size_bytes: int, until_s: int, now_s: int, digest: str = "") -> bool:
        """A user wants to hold bytes; whether the node lets it, as a real one would."""
        promised_bytes = self.promised[0] if self.promised[1] > now_s else 0
        taken = sum(each.size_bytes for key, each in self.held.items() if key != name)
        if not self.is_old and taken + size_bytes + promised_bytes > self.capacity_bytes:
            return False
        self.held[name] = HeldBytes(size_bytes=size_bytes, until_s=until_s, digest=digest)
        return True


class Sandbox:
    """A site with its service."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 4,
        cpus: int = 8,
        settings: Settings | None = None,
        policies: bytes = FREE,
        now_s: int = 1_000_000,
    ) -> None:
        self.clock = Clock(now_s)
        self.settings = settings or Settings(link_rate_bytes_per_s=RATE, reserve_s=60)
        self.policies: Policies = parse_policies(policies, file="policies.yaml")
        names = [f"n{number}" for number in range(1, nodes + 1)]
        self.pools = {name: Pool() for name in names}
        self.rms = Twin(
            [RmsNode(name=name, capacity=Resources.of(cpus=cpus, memory_mib=65_536)) for name in names],
            clock=self.clock,
        )
        self.path = folder / "store.sqlite"
        self.store = SqliteStore.create(self.path, now_s)
        self.log = Silent()
        self.sizes: dict[str, int] = {"https://images.example.org/ubuntu": 10 * RATE}
        """What is at which address."""
        self.unmade: dict[str, NotYet] = {}
        """What is only being converted."""
        self.resolved: list[ResolveImage] = []
        self.notes: dict[str, list[str]] = {}
        """By job, the lines that were shown at it."""
        self.expected: dict[str, int | None] = {}
        """By job, the start that was shown last."""
        self.dropped: list[ResolveImage] = []
        self.silent: set[str] = set()
        """Addresses and nodes at which nobody answers: such a call stays under way."""
        self.judge: Callable[[AskProgram], object] | None = None
        self.happened: set[str] = set()
        """Files and sources of which it is told that their event has come."""
        self.is_handed_back = False
        """Whether an administrator has given all queues back to the batch system."""
        self._tickets = 0
        self.may_begin: set[str] = set()
        self.answers: dict[int, Answer] = {}
        self.desk = self._desk()
        self.turn()

    @property
    def now_s(self) -> int:
        return self.clock.at_s

    def close(self) -> None:
        self.store.close()

    def restart(self) -> None:
        """The service dies and is started again."""
        self.store.close()
        self.store = SqliteStore.open(self.path, self.now_s)
        self.desk = self._desk()
        self.turn()

    def ask(self, request: Request, caller: Caller = ALICE) -> Answer:
        self._tickets += 1
        ticket = self._tickets
        self._handle(Asked(ticket=ticket, caller=caller, request=request))
        for turn in range(MOST_TURNS):
            if ticket in self.answers:
                break
            # Its nodes are asked first, which takes time; or offers are looked for, which takes turns.
            is_due = (self.desk.next_s() or self.now_s) <= self.now_s and turn < MOST_TURNS - 15
            self.turn() if is_due else self.sleep(1)
        return self.answers.pop(ticket)

    def turn(self) -> None:
        """Let the desk see what time it is."""
        self._handle(Ticked())

    def sleep(self, seconds: int) -> None:
        """Time passes; the desk is told whenever it wants to be."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            next_s = self.desk.next_s()
            step_s = until_s if next_s is None else min(max(next_s, self.now_s + 1), until_s)
            self.clock.at_s = step_s
            self.turn()

    def _desk(self) -> Desk:
        return Desk(
            self.store, self.settings, self.policies, self.now_s,
            log=self.log, meter=self.log, batch_system="twin",
        )  # fmt: skip

    def _handle(self, event: Event) -> None:
        outcome: Outcome = self.desk.handle(event, self.now_s)
        self._post(outcome)
        calls: list[Call] = list(outcome.calls)
        self.answers |= {reply.ticket: reply.answer for reply in outcome.replies}
        while calls:
            call = calls.pop(0)
            if isinstance(call, ResolveImage) and call.uri in self.silent:
                self.resolved.append(call)
                continue
            if isinstance(call, TellNode) and call.node in self.silent:
                continue
            outcome = self.desk.handle(Finished(call=call, result=self._carry_out(call)), self.now_s)  # type: ignore[arg-type]
            self.answers |= {reply.ticket: reply.answer for reply in outcome.replies}
            self._post(outcome)
            calls += outcome.calls

    def _post(self, outcome: Outcome) -> None:
        self.may_begin |= {name for name, may_begin in outcome.begins if may_begin}
        self.may_begin -= {name for name, may_begin in outcome.begins if not may_begin}

    def _carry_out(self, call: Call) -> object:
        try:
            if isinstance(call, Look):
                return replace(look(self.rms, call.watched), is_handed_back=self.is_handed_back)
            if isinstance(call, Carry):
                return carry_out(call.effect, self.rms, self.sign)
            if isinstance(call, TellUser):
                self.rms.note(call.job, call.text)
                self.notes.setdefault(call.job, []).append(call.text)
                self.expected[call.job] = call.start_s
                return None
            if isinstance(call, ResolveImage):
                return self.resolve(call)
            if isinstance(call, DropLookup):
                self.dropped.append(call.question)
                return None
            if isinstance(call, AskEvent):
                return EventAnswer(has_happened=call.event.text in self.happened)
            if isinstance(call, AskProgram):
                assert self.judge is not None
                return self.judge(call)
            return self.tell(call) if isinstance(call, TellNode) else planned(call)
        except (RmsError, NodeTrouble, ImageTrouble) as error:
            return error

    def resolve(self, call: ResolveImage) -> FoundImage:
        self.resolved.append(call)
        if call.uri in self.unmade:
            raise self.unmade[call.uri]
        if call.uri not in self.sizes:
            raise ImageTrouble(f"there is nothing at {call.uri}")
        return FoundImage(size_bytes=self.sizes[call.uri], digest=digest_of(call.uri.rpartition("/")[2]))

    def sign(self, job: str, uid: int, digest: str, expires_s: int) -> str:
        return f"ticket {job} {uid} {digest[:11]}"

    def submit(
        self,
        image: str | None = "ubuntu",
        *,
        caller: Caller = ALICE,
        nodes: int = 1,
        cpus: int = 8,
        memory_mib: int = 0,
        limit_s: int | None = 3600,
        argv: tuple[str, ...] = ("sleep", "60"),
        more: str = "",
        is_held: bool = True,
        reservation: str | None = None,
        eligible: tuple[str, ...] = (),
        queue: str = "",
    ) -> str:
        """A user's job, held as the submit filter does it; its key."""
        key = self.rms.outside.submit(
            Submission(
                user=caller.user,
                uid=caller.uid,
                argv=argv,
                nodes_wanted=nodes,
                resources=Resources.of(cpus=cpus, memory_mib=memory_mib),
                limit_s=limit_s,
                metadata=None if image is None else f"image: https://images.example.org/{image}\n{more}",
                reservation=reservation,
            ),
            eligible=eligible,
            queue=queue,
        )
        if is_held:
            self.rms.hold(key, "waits to be planned")
        return key

    def job(self, key: str) -> RmsJob | None:
        """A job as the batch system has it; None if it has ended."""
        return next((job for job in self.rms.look().jobs if job.key == key), None)

    def tell(self, call: TellNode) -> NodeReport:
        pool = self.pools[call.node]
        if pool.is_away:
            raise NodeTrouble(f"node {call.node} refuses ls: its pool is gone")
        self._progress(pool)
        pool.held = {name: each for name, each in pool.held.items() if each.until_s > self.now_s}
        if call.promised_bytes is not None and not pool.is_old:
            pool.promised = call.promised_bytes, call.promised_until_s
        results = tuple(self._order(pool, order) for order in call.orders)
        self._progress(pool)
        return NodeReport(
            node=call.node,
            at_s=self.now_s,
            limit_bytes=pool.limit_bytes,
            used_bytes=sum(image.size_bytes for image in pool.images.values()),
            arriving=tuple(
                Arriving(
                    digest=digest,
                    size_bytes=each.fetch.size_bytes,
                    arrived_bytes=each.arrived_bytes,
                    rate_bytes_per_s=self._rate(pool, each.fetch),
                    source=str(each.fetch.sources[0]),
                )
                for digest, each in pool.arriving.items()
            ),
            images=self._shown(pool) if call.wants_images else None,
            results=results,
            jobs=tuple(pool.jobs) if call.wants_images else (),
            room=None
            if pool.is_old
            else NodeRoom(
                capacity_bytes=pool.capacity_bytes,
                held=tuple(pool.held.values()),
                users_bytes=pool.limit_bytes * pool.users_percent // 100,
                copied_formats=pool.copied_formats,
            ),
        )

    def _shown(self, pool: Pool) -> tuple[NodeImage, ...]:
        owners: dict[str, list[str]] = {}
        for digest, owner in sorted(pool.pins):
            owners.setdefault(digest, []).append(owner)
        return tuple(
            replace(image, owners=tuple(owners.get(digest, ()))) for digest, image in pool.images.items()
        )

    def _order(self, pool: Pool, order: object) -> OrderResult:
        if isinstance(order, Fetch):
            pool.fetches.append(order)
            if pool.broken:
                return OrderResult(order=order, code=pool.broken_code, words=pool.broken)
            pool.pins[order.digest, order.owner] = order.until_s
            if order.digest not in pool.images:
                pool.arriving.setdefault(order.digest, Brought(fetch=order, begun_s=self.now_s)).fetch = order
            return OrderResult(order=order)
        if isinstance(order, Pin):
            if order.digest not in pool.images:
                return OrderResult(order=order, code="missing", words="it is not in the pool")
            pool.pins[order.digest, order.owner] = order.until_s
            return OrderResult(order=order)
        if isinstance(order, Copy):
            return self._copy(pool, order)
        if isinstance(order, Unpin):
            pool.copies.pop((order.digest, order.owner), None)
            pool.pins.pop((order.digest, order.owner), None)
            return OrderResult(order=order)
        if isinstance(order, Release):
            pool.jobs = [owner for owner in pool.jobs if owner != order.owner]
            return OrderResult(order=order)
        pool.arriving.pop(order.digest, None)  # type: ignore[attr-defined]
        return OrderResult(order=order)  # type: ignore[arg-type]

    def _copy(self, pool: Pool, order: Copy) -> OrderResult:
        pool.copied.append(order)
        if order.digest not in pool.images:
            return OrderResult(order=order, code="missing", words="it is not in the pool")
        if pool.uncopied:
            return OrderResult(order=order, code="no-room", words=pool.uncopied)
        ready_s = pool.copies.setdefault((order.digest, order.owner), self.now_s + COPY_S)
        return OrderResult(order=order, code=COPYING if ready_s > self.now_s else "")

    def _rate(self, pool: Pool, fetch: Fetch) -> int:
        return min(pool.rate_bytes_per_s, fetch.rate_bytes_per_s or 1 << 40)

    def _progress(self, pool: Pool) -> None:
        for digest, each in list(pool.arriving.items()):
            seconds = self.now_s - each.begun_s
            each.arrived_bytes = min(
                each.fetch.size_bytes, each.arrived_bytes + seconds * self._rate(pool, each.fetch)
            )
            each.begun_s = self.now_s
            if each.arrived_bytes == each.fetch.size_bytes:
                del pool.arriving[digest]
                pool.images[digest] = NodeImage(
                    digest=digest, size_bytes=each.fetch.size_bytes, uri=each.fetch.uri, added_s=self.now_s
                )


def wanted(
    sandbox: Sandbox,
    *,
    name: str = "render",
    image: str = "ubuntu",
    server: str = "images.example.org",
    size_bytes: int = 10 * RATE,
    nodes: int = 1,
    cpus: int = 8,
    start: str = "now+10minutes",
    duration: str = "1h",
    is_private: bool = False,
    account: str = "",
    when: str = "",
) -> Reserve:
    """What a user wants, as the API would have read it. `when`: in the place of its start."""
    text = f"""
version: 1
metadata:
  name: {name}
  image: {{uri: "https://{server}/{image}", private: {str(is_private).lower()}}}
deployment: {{nodes: {nodes}, cpus: {cpus}, duration: {duration}, {when or f"start: {start}"}}}
"""
    file = parse_workspace(text.encode(), Circumstances(now_s=sandbox.now_s, zone=UTC), file="ws.yaml")
    return Reserve(
        workspace=file, image=FoundImage(size_bytes=size_bytes, digest=digest_of(image)), account=account
    )


def reserve(sandbox: Sandbox, caller: Caller = ALICE, **values: object) -> Decision:
    """Ask for a reservation as `wanted` describes it."""
    answer = sandbox.ask(wanted(sandbox, **values), caller)  # type: ignore[arg-type]
    assert isinstance(answer, Decision), answer
    return answer


def show(sandbox: Sandbox, name: str, caller: Caller = ALICE) -> ReservationDetails:
    answer = sandbox.ask(Show(name=name), caller)
    assert isinstance(answer, ReservationDetails), answer
    return answer
