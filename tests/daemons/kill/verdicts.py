"""What has to hold after a kill, and when everything is over: each function lists what does not."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cachemgr.base.disk import RealDisk
from cachemgr.pool.layout import PoolLayout
from cachemgr.pool.pins import read_pins
from cachemgr.pool.records import digest_of
from cachemgr.protocol import RESERVATION_OWNER
from outrider.service.desk.reservations.alarms import FIRST_WORD_S
from tests.daemons.kill.callers import Promised, Told
from tests.daemons.kill.origin import Origin
from tests.daemons.kill.victim import CLOCK, Answered, Gone, Json, Trouble, Victim


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """A reservation as the service lists it."""

    name: str
    state: str
    start_s: int
    end_s: int
    nodes: tuple[str, ...]

    @property
    def workspace(self) -> str:
        return self.name.rpartition("-")[0]


def get(victim: Victim, path: str) -> Answered:
    """What is answered once the service is there."""
    found: list[Answered] = []

    def is_answered() -> bool:
        try:
            answered = victim.ask("GET", path)
        except Gone:
            return False
        found.append(answered)
        return answered.status != 503

    victim.eventually(f"an answer to {path}", is_answered)
    if found[-1].status != 200:
        raise Trouble(f"GET {path}: {found[-1]}")
    return found[-1]


def listed(victim: Victim) -> dict[str, Seen]:
    """All reservations that the service knows of. The past comes last, so that nothing slips through."""
    found: dict[str, Seen] = {}
    for past in ("false", "true"):
        after = ""
        while True:
            page = get(victim, f"/v1/reservations?past={past}{after}").content
            for each in _objects(page, "reservations"):
                found[str(each["name"])] = _seen(each, victim.nodes)
            if page["next_after"] is None:
                break
            after = f"&after={page['next_after']}"
    return found


def lost(victim: Victim, told: Told) -> list[str]:
    """What was promised and is not so; what was made twice."""
    before = told.certain()
    seen = listed(victim)
    now = told.certain()
    wrong: list[str] = []
    for name, promised in before.items():
        if now.get(name) == promised:
            wrong += _differences(promised, seen.get(name))
    made = Counter(each.workspace for each in seen.values())
    wrong += [f"{name} was made {count} times" for name, count in made.items() if count > 1]
    with told.guard:
        wrong += [f"{name} was never asked for" for name in made if name not in told.workspaces]
    return wrong


def unkept(victim: Victim, told: Told, seen: dict[str, Seen]) -> list[str]:
    """What was listed as ready or active, is neither over nor changed, and has no pinned image on a node.

    Looked up in the pools' files: whoever answers for them may be dead.
    """
    now_s, certain = CLOCK.now_s(), told.certain()
    wrong = []
    for each in seen.values():
        promised = certain.get(each.name)
        if each.state not in ("ready", "active") or promised is None or promised.is_cancelled:
            continue
        if each.end_s > now_s + 1:
            for node in each.nodes:
                if not _is_pinned(victim, node, promised.source.digest, each.name, now_s):
                    wrong.append(f"{each.name} is {each.state}, and its image is not kept on {node}")
    return wrong


def unsettled(victim: Victim) -> list[str]:
    """What the batch system has that is not live, and the other way round. Read from its own file."""
    seen = listed(victim)
    live = {each.name: each for each in seen.values() if each.state not in ("ended", "cancelled", "failed")}
    found = {
        str(each["name"]): each for each in _objects(_journal(victim), "reservations") if each["is_ours"]
    }
    wrong = [f"the batch system still has {name}" for name in sorted(found.keys() - live.keys())]
    wrong += [f"the batch system lacks {name}" for name in sorted(live.keys() - found.keys())]
    for name in sorted(live.keys() & found.keys()):
        ours, theirs = live[name], found[name]
        nodes = theirs["nodes"]
        assert isinstance(nodes, list)
        if theirs["end_s"] != ours.end_s or sorted(map(str, nodes)) != sorted(ours.nodes):
            wrong.append(f"the batch system has {name} otherwise: {theirs}, not {ours}")
    return wrong


@dataclass(frozen=True, kw_only=True, slots=True)
class Ends:
    """What became of all promises."""

    counts: Counter[str]
    reasons: Counter[str]
    """Why what was not met was not, by the first alarm; numbers left out."""
    wrong: tuple[str, ...]


def ends(victim: Victim) -> Ends:
    """Each one that is over was met, was cancelled, or had an alarm."""
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    wrong = []
    for name, seen in sorted(listed(victim).items()):
        if seen.state == "cancelled":
            counts["cancelled"] += 1
            continue
        if seen.state not in ("ended", "failed"):
            wrong.append(f"{name} is {seen.state} and not over")
            continue
        details = get(victim, f"/v1/reservations/{name}").content
        receipt, accepted_s = details["receipt"], details["accepted_s"]
        assert isinstance(receipt, dict)
        assert isinstance(accepted_s, int)
        # Whoever asks for the same moment cannot have the image sooner than the nodes can be asked.
        due_s = max(seen.start_s, accepted_s + FIRST_WORD_S)
        ready_s = receipt["ready_s"]
        if receipt["is_met"]:
            counts["met"] += 1
            if seen.state != "ended" or not isinstance(ready_s, int) or ready_s > due_s:
                wrong.append(f"{name} ({seen.state}, start {seen.start_s}) is not met: {receipt}")
            continue
        counts["late" if isinstance(ready_s, int) else "failed"] += 1
        decisions = _objects(get(victim, f"/v1/reservations/{name}/explanation").content, "decisions")
        alarms = [
            str(each["reason"])
            for each in decisions
            if (each["kind"], each["outcome"]) == ("alarm", "endangered")
        ]
        reasons.update(re.sub(r"[a-z]+:/+\S+|[0-9]+", "_", words) for words in alarms[-1:])
        if not alarms:
            wrong.append(f"{name} was not met, and nobody was told before: {receipt}, {decisions}")
    return Ends(counts=counts, reasons=reasons, wrong=tuple(wrong))


def pins_left(victim: Victim) -> list[str]:
    """Pins of reservations, when all of them are over."""
    now_s = CLOCK.now_s()
    return [
        f"{owner} still holds image {digest[:8]} on {node}"
        for node in victim.nodes
        for digest in _images(victim, node)
        for owner, until_s in _pins(victim, node, digest)
        if until_s > now_s
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class Traffic:
    """What the web server sent for what arrived from it."""

    sent_bytes: int
    needed_bytes: int
    resumed: int

    @property
    def ratio(self) -> float:
        return self.sent_bytes / self.needed_bytes if self.needed_bytes else 1.0


def traffic(origin: Origin) -> Traffic:
    """Over images for one node each that were sent to their end: what was sent, and what had to be."""
    sent = needed = resumed = 0
    for path in origin.solo:
        size_bytes = len(origin.images[path])
        answers = [each for each in origin.sent if each.path == path and each.count]
        if any(each.first + each.count == size_bytes for each in answers):
            sent += sum(each.count for each in answers)
            needed += size_bytes
            resumed += sum(each.first > 0 for each in answers)
    return Traffic(sent_bytes=sent, needed_bytes=needed, resumed=resumed)


def _differences(promised: Promised, seen: Seen | None) -> Iterator[str]:
    if seen is None:
        yield f"{promised.name} was accepted, and is lost"
        return
    if promised.is_cancelled != (seen.state == "cancelled"):
        yield f"{promised} is {seen.state}"
    if (seen.start_s, seen.end_s) != (promised.start_s, promised.end_s):
        yield f"{promised} is {seen}"


def _seen(each: Json, nodes: tuple[str, ...]) -> Seen:
    start_s, end_s, named = each["start_s"], each["end_s"], str(each["nodes"])
    assert isinstance(start_s, int)
    assert isinstance(end_s, int)
    folded = named.removeprefix("n").strip("[]")
    first, _, last = folded.partition("-")
    if "," in folded:
        names = tuple(f"n{number}" for number in folded.split(","))
    else:
        names = tuple(f"n{number}" for number in range(int(first), int(last or first) + 1))
    assert set(names) <= set(nodes), named
    return Seen(name=str(each["name"]), state=str(each["state"]), start_s=start_s, end_s=end_s, nodes=names)


def _is_pinned(victim: Victim, node: str, digest: str, owner: str, now_s: int) -> bool:
    key = digest_of(digest)
    assert key is not None
    folder = victim.node_folder / node / "pool" / "images" / key
    return (folder / "data").exists() and any(
        holder == owner and until_s > now_s for holder, until_s in _pins(victim, node, key)
    )


def _images(victim: Victim, node: str) -> list[str]:
    return sorted(each.name for each in (victim.node_folder / node / "pool" / "images").iterdir())


def _pins(victim: Victim, node: str, key: str) -> list[tuple[str, int]]:
    """Owners as the service names them, and until when they hold the image."""
    layout = PoolLayout(str(victim.node_folder / node / "pool"))
    found = read_pins(RealDisk(), layout.image(key))
    return [(pin.owner.removeprefix(RESERVATION_OWNER), pin.expires_s) for pin in found]


def _journal(victim: Victim) -> Json:
    content = json.loads((victim.backend / "jobs.json").read_text())
    assert isinstance(content, dict)
    return content


def _objects(content: Json, key: str) -> list[Json]:
    found = content[key]
    assert isinstance(found, list)
    return found
