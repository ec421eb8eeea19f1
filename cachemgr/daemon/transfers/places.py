"""Places for transfers and their users' open files: taken before any bytes are, given back at the end."""

from __future__ import annotations

import os
from dataclasses import dataclass

from cachemgr.base.errors import CacheError, InUse, NotAllowed
from cachemgr.base.shares import Shares

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cachemgr.base.shares import Share
    from cachemgr.daemon.transfers.bounds import Bounds
    from cachemgr.fetch.bring import Origin

# A user holds at most a quarter of what is left for others.
PORTION = 4
ENOUGH = "wait for one of them to end, or cancel one"


@dataclass(frozen=True)
class Admission:
    """What `TransferPlaces.admit` has set aside for a user's transfer: to be used, or given back."""

    uid: int
    is_ordinary: bool
    has_place: bool = False
    files: int = 0


class TransferPlaces:
    """Who has which place and which files. Any thread may call."""

    def __init__(self, most: int, bounds: Bounds) -> None:
        self.transfers = Shares(
            "transfers",
            most=most,
            most_of_one=bounds.places_of_user,
            kept=min(bounds.kept, most - 1),
            portion=PORTION,
        )
        self.files = Shares(
            "open files of transfers", most=bounds.files, most_of_one=bounds.files_of_user, portion=PORTION
        )
        self._owner_of_file: dict[int, int] = {}

    def admit(self, uid: int, *, needs_place: bool, is_ordinary: bool, files: int) -> Admission:
        if needs_place:
            self._take(uid, is_ordinary=is_ordinary)
        if files and not self.files.take(uid, files, is_privileged=not is_ordinary):
            if needs_place:
                self.transfers.give(uid)
            raise refusal(self.files, uid, option="user_files", remedy=ENOUGH)
        return Admission(uid, is_ordinary, needs_place, files)

    def turn_back(self, admission: Admission) -> None:
        """Nothing came of it."""
        if admission.has_place:
            self.transfers.give(admission.uid)
        if admission.files:
            self.files.give(admission.uid, admission.files)

    def use(
        self,
        admission: Admission | None,
        uid: int,
        origins: Sequence[Origin],
        *,
        needs_place: bool,
        is_ordinary: bool,
    ) -> None:
        """Have for a transfer what was set aside for it; what is needed otherwise by now, too."""
        files = [origin.descriptor for origin in origins if origin.descriptor is not None]
        if admission is None:
            self.admit(uid, needs_place=needs_place, is_ordinary=is_ordinary, files=len(files))
        elif needs_place and not admission.has_place:
            # What was to be joined has ended meanwhile.
            try:
                self._take(uid, is_ordinary=is_ordinary)
            except CacheError:
                self.turn_back(admission)
                raise
        elif admission.has_place and not needs_place:
            self.transfers.give(uid)
        for descriptor in files:
            self._owner_of_file[descriptor] = uid

    def taken_over(self, holder: int, uid: int) -> int:
        """The service wants what a user began: whose place it is now."""
        self.transfers.give(holder)
        self.transfers.take(uid, is_privileged=True)
        return uid

    def handed_on(self, holder: int, others: Sequence[int], *, is_ordinary: bool) -> int:
        """Its holder does not want it any more: whose place it is, if one of the others may have it."""
        for other in others:
            if self.transfers.take(other, is_privileged=not is_ordinary):
                self.transfers.give(holder)
                return other
        return holder

    def close(self, origins: Iterable[Origin]) -> None:
        """Close the files of a transfer. A file system of a user's own may make this last."""
        for origin in origins:
            if origin.descriptor is not None:
                # Before its number is somebody else's.
                owner = self._owner_of_file.pop(origin.descriptor, None)
                os.close(origin.descriptor)
                if owner is not None:
                    self.files.give(owner)

    def shares(self) -> list[Share]:
        return [*self.transfers.shares(), *self.files.shares()]

    def refused(self) -> dict[str, int]:
        return {**self.transfers.refused(), **self.files.refused()}

    def _take(self, uid: int, *, is_ordinary: bool) -> None:
        if self.transfers.take(uid, is_privileged=not is_ordinary):
            return
        if is_ordinary:
            raise refusal(self.transfers, uid, option="user_transfers_waiting", remedy=ENOUGH)
        raise InUse(f"all {self.transfers.most} places for transfers are taken already: try again later")


def refusal(shares: Shares, user: int, *, option: str, remedy: str) -> CacheError:
    """What to say to a user for whom there was no place: whose fault it is, the limit, the remedy."""
    held = shares.held_by(user)
    mine = f"you have {held} {shares.thing} and may have {shares.most_of_one}"
    if held >= shares.most_of_one:
        return NotAllowed(f"{mine}: {remedy}, or ask the administrator for {option}")
    return InUse(
        f"{mine}, but all users together have {shares.in_all} of {shares.most}, and what is left is for "
        f"those with fewer and for root: {remedy}, or try again later"
    )


def close_files(origins: Iterable[Origin]) -> None:
    """Close the files that users had opened for their transfer."""
    for origin in origins:
        if origin.descriptor is not None:
            os.close(origin.descriptor)
