"""The life of a reservation and of a transfer as tables: which state may follow which."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where a reservation is in its life."""

    ACCEPTED = "accepted"
    """Promised; nothing has been sent yet."""
    PREPARING = "preparing"
    READY = "ready"
    """The image is on all nodes."""
    ACTIVE = "active"
    """Its time has come, and it is met."""
    ENDANGERED = "endangered"
    """It may not be met as promised; somebody has been told."""
    ENDED = "ended"
    CANCELLED = "cancelled"
    FAILED = "failed"
    """It was not met."""

    @property
    def is_final(self) -> bool:
        return not STEPS[self]


# What is ready may be so no longer when a node is lost. What was endangered may be saved.
STEPS: dict[State, frozenset[State]] = {
    State.ACCEPTED: frozenset(
        {State.PREPARING, State.READY, State.ACTIVE, State.ENDANGERED, State.CANCELLED, State.FAILED}
    ),
    State.PREPARING: frozenset({State.READY, State.ACTIVE, State.ENDANGERED, State.CANCELLED, State.FAILED}),
    State.READY: frozenset({State.PREPARING, State.ACTIVE, State.ENDANGERED, State.CANCELLED, State.FAILED}),
    State.ACTIVE: frozenset({State.ENDANGERED, State.ENDED, State.CANCELLED, State.FAILED}),
    State.ENDANGERED: frozenset(
        {
            State.ACCEPTED,
            State.PREPARING,
            State.READY,
            State.ACTIVE,
            State.ENDED,
            State.CANCELLED,
            State.FAILED,
        }
    ),
    State.ENDED: frozenset(),
    State.CANCELLED: frozenset(),
    State.FAILED: frozenset(),
}


class TransferState(Enum):
    """How far a transfer has come, what became of those that are no more included."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    WITHDRAWN = "withdrawn"
    """Nobody needed it any more before it began."""
    FAILED = "failed"

    @property
    def is_final(self) -> bool:
        return not TRANSFER_STEPS[self]


# What failed is planned anew as another transfer; what ran when the service died may have to
# be sent again.
TRANSFER_STEPS: dict[TransferState, frozenset[TransferState]] = {
    TransferState.WAITING: frozenset(
        {TransferState.RUNNING, TransferState.DONE, TransferState.WITHDRAWN, TransferState.FAILED}
    ),
    TransferState.RUNNING: frozenset(
        {TransferState.WAITING, TransferState.DONE, TransferState.WITHDRAWN, TransferState.FAILED}
    ),
    TransferState.DONE: frozenset(),
    TransferState.WITHDRAWN: frozenset(),
    TransferState.FAILED: frozenset(),
}
