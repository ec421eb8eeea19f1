"""Reservations, transfers and stores for the tests of the store."""

from __future__ import annotations

from pathlib import Path

from outrider.core.links.links import TransferStanding
from outrider.core.model import Image, KeptHold, Placement, Reservation, Resources, Transfer, Workspace
from outrider.core.restart.snapshot import KeptTransfer
from outrider.store.records import Effect, RecordedAnswer, RecordedDecision, ReservationOwner
from outrider.store.sql.reading import SqlStore
from outrider.store.sqlite.store import SqliteStore

IMAGE = Image(uri="registry/ubuntu", size_bytes=2_000_000_000, digest="sha256:" + "5" * 64)
ALICE = ReservationOwner(uid=1001, user="alice", account="physics")


def new_store(folder: Path, now_s: int = 0) -> SqliteStore:
    return SqliteStore.create(folder / "store.sqlite", now_s)


def reservation(name: str, *transfers: int, start_s: int = 5000, node: str = "n1") -> Reservation:
    """A reservation of one node whose copies are brought by these transfers."""
    workspace = Workspace(
        name=name,
        instances=2,
        resources=Resources.of(cpus=4, memory_mib=2048),
        duration_s=3600,
        image=IMAGE,
        start_s=start_s,
    )
    return Reservation(
        workspace=workspace,
        start_s=start_s,
        end_s=start_s + 3600,
        placements=(Placement(node=node, instances=2),),
        transfers=transfers,
        holds=tuple(KeptHold(image=IMAGE, copies=((node, number),), transfer=number) for number in transfers),
    )


def transfer(number: int, *, has_begun: bool = False, is_done: bool = False) -> KeptTransfer:
    value = Transfer(number=number, image=IMAGE, nodes=("n1",), duration_s=16, deadline_s=5000)
    end_s = 4000 if has_begun else None
    standing = None if is_done else TransferStanding(transfer=value, has_begun=has_begun, end_s=end_s)
    return KeptTransfer(transfer=value, on_disk_s=100, ready_s=5000, standing=standing)


def effect(identity: str, subject: str = "slurm", due_s: int = 0, kind: str = "reserve") -> Effect:
    return Effect(identity=identity, kind=kind, subject=subject, created_s=0, due_s=due_s)


def answer(key: str, request_hash: str = "aa", text: str = '{"version":1}') -> RecordedAnswer:
    return RecordedAnswer(uid=1001, key=key, request_hash=request_hash, text=text, at_s=7)


def decision(name: str, outcome: str = "accepted", at_s: int = 7) -> RecordedDecision:
    return RecordedDecision(at_s=at_s, uid=1001, kind="reserve", name=name, outcome=outcome, reason="it fits")


def promise_all(store: SqlStore, name: str, number: int, now_s: int = 10, *, answers: int = 1) -> None:
    """Everything that one accepted request writes, in one transaction; a second answer is refused."""
    with store.promise() as promise:
        promise.add_reservation(reservation(name, number), ALICE, now_s)
        promise.put_transfers([transfer(number)], now_s)
        promise.decide(decision(name))
        for _ in range(answers):
            promise.answer(answer(f"key of {name}"))
        promise.todo(effect(f"reserve {name}", subject=name))
