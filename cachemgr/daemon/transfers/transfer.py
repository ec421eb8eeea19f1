"""One transfer of the daemon: an image on its way here, for everybody who wants it."""

from __future__ import annotations

from dataclasses import dataclass, field

from cachemgr.daemon.transfers.schedule import ENDED, WAITING
from cachemgr.fetch.control import Control

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cachemgr.base.errors import CacheError
    from cachemgr.base.rate import RateLimit
    from cachemgr.fetch.bring import Origin, TransferTerms
    from cachemgr.fetch.report import FetchProgress
    from cachemgr.pool.ingest import Writer
    from cachemgr.pool.records import PoolImage

    Work = Callable[["PoolTransfer", TransferTerms], PoolImage]


PATIENCE_S = 5
# So much of its own rate is enough for who waits for a blob that another transfer brings.
SLOW = 0.8


class BlobTurn(Control):
    """The terms on which a transfer brings one of its blobs: its own, until a more urgent one does that."""

    def __init__(self, whole: Control, digest: str) -> None:
        super().__init__()
        self.digest = digest
        self.is_over = False
        self._whole = whole
        # Since when, and from which byte on, somebody else has been watched who brings it.
        self._since_s: float | None = None
        self._from_bytes = 0

    def is_let_down(
        self, arrived_bytes: int, rate_bytes_per_s: int | None, now_s: float, patience_s: int
    ) -> bool:
        """Whether, for as long as its patience, the blob has come much slower than at this rate; at no rate,
        not at all."""
        since_s = self._since_s
        if since_s is not None and now_s - since_s < patience_s:
            return False
        wanted_bytes = 0.0 if since_s is None else SLOW * (rate_bytes_per_s or 0) * (now_s - since_s)
        came_bytes = arrived_bytes - self._from_bytes
        self._since_s, self._from_bytes = now_s, arrived_bytes
        return since_s is not None and (came_bytes <= 0 or came_bytes < wanted_bytes)

    @property
    def deadline_s(self) -> int | None:
        return self._whole.deadline_s

    @property
    def is_paused(self) -> bool:
        return self._whole.is_paused and not self.is_over

    @property
    def cancelled(self) -> str | None:
        return self._whole.cancelled or ("a more urgent transfer brings it" if self.is_over else None)


@dataclass
class PoolTransfer:
    """Changed with the table's lock only."""

    number: int
    key: str
    uri: str
    size_bytes: int
    work: Work
    limit: RateLimit
    created_s: int
    begun_by: int
    # On the monotonic clock.
    begun_s: float
    control: Control = field(default_factory=Control)
    state: str = WAITING
    # The earliest that anybody named, and the earliest of root's and the service's.
    deadline_s: int | None = None
    promised_s: int | None = None
    is_held: bool = False
    # Wanted by ordinary users alone.
    is_ordinary: bool = False
    # Whose place it takes; None if it has ended.
    place_of: int | None = None
    # Root has set the rate: others do not change it by joining.
    is_rate_roots: bool = False
    is_held_by_waiting: bool = False
    wanted_by: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    # Of an image that is only read, what lets those use it for whom it is.
    opens: list[Callable[[PoolImage], PoolImage]] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    expected_rate_bytes_per_s: int | None = None
    progress: FetchProgress | None = None
    sink: Writer | None = None
    # Of an image in layers, the blob that it brings now.
    turn: BlobTurn | None = None
    # The blob that another brought in its place, since it came too slowly, and how soon it may do the same.
    slow_at: str = ""
    patience_s: int = PATIENCE_S
    image: PoolImage | None = None
    error: CacheError | None = None
    ended_s: int | None = None
    has_thread: bool = False
    changes: int = 0

    @property
    def name(self) -> str:
        return f"t{self.number}"

    @property
    def arrived_bytes(self) -> int:
        told = self.progress.offset_bytes if self.progress else 0
        return max(told, self.sink.offset if self.sink else 0)

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    def right_to_its_blob(self, now_s: int) -> tuple[bool, bool, bool, int]:
        """Of what the service and root want: the earliest deadline first, then those that have passed, then
        all that has none. Whoever was too slow for another comes behind that one."""
        promised_s = self.promised_s
        is_slow = self.turn is not None and self.slow_at == self.turn.digest
        return promised_s is None, is_slow, promised_s is not None and promised_s <= now_s, promised_s or 0
