"""Leases on an image: one file each in the image's folder, so that they move and go with it.

Whoever pins takes a shared lock on the folder, so pinning never waits for a transfer or for
another image's eviction; whoever evicts takes it exclusively and does not wait.
"""

from __future__ import annotations

import dataclasses
from contextlib import suppress

from cachemgr.base.disk import replace_file
from cachemgr.base.errors import BadRequest, PoolDamaged
from cachemgr.pool.records import MOST_BYTES, PIN_KINDS, PoolPin, checked_name, decode_pin, encode, file_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.base.disk import Disk

# Nothing is leased forever: who needs it longer renews.
LONGEST_LEASE_S = 366 * 86_400
FOR_EVER_S = 1 << 62


def checked_pin(pin: PoolPin, now_s: int) -> PoolPin:
    checked_name(pin.owner, "a pin's owner")
    if pin.kind not in PIN_KINDS:
        raise BadRequest(f"there is no kind of pin {pin.kind!r}: choose one of {', '.join(PIN_KINDS)}")
    if not now_s < pin.expires_s <= now_s + LONGEST_LEASE_S:
        what = "an instance's lease" if pin.kind == "instance" else f"the pin of {pin.owner}"
        raise BadRequest(f"{what} must expire after now and within {LONGEST_LEASE_S // 86_400} days")
    return pin


def write_pin(disk: Disk, folder: str, pin: PoolPin, *, is_durable: bool) -> None:
    """Put a pin on what lies in that folder; the same owner's pin is replaced."""
    pins = f"{folder}/pins"
    try:
        disk.make_folder(pins, 0o700)
        if is_durable:
            disk.sync_folder(folder)
    except FileExistsError:
        pass
    replace_file(disk, pin_path(folder, pin.owner), encode(pin), is_durable=is_durable)


def renewed(disk: Disk, folder: str, pin: PoolPin) -> PoolPin:
    """The pin, with its owner's expiry there if that is later: an order that was under way for long does
    not shorten a lease that was renewed meanwhile. Whoever needs it for less time gives it back.

    Only what holds is kept so: `expect` prevents nothing, and says what is thought now.
    """
    if pin.kind != "hold":
        return pin
    path = pin_path(folder, pin.owner)
    try:
        there = decode_pin(disk.read(path, MOST_BYTES), path)
    except (FileNotFoundError, PoolDamaged):
        return pin
    if there.kind != pin.kind or there.expires_s <= pin.expires_s:
        return pin
    return dataclasses.replace(pin, expires_s=there.expires_s)


def remove_pin(disk: Disk, folder: str, owner: str) -> bool:
    """Whether there was such a pin. It does not come back after a power cut."""
    try:
        disk.remove(pin_path(folder, owner))
    except FileNotFoundError:
        return False
    with suppress(FileNotFoundError):
        # What it was on may have gone the moment it was free to go.
        disk.sync_folder(f"{folder}/pins")
    return True


def pin_path(folder: str, owner: str) -> str:
    return f"{folder}/pins/{file_name(owner)[:32]}.json"


def read_pins(disk: Disk, folder: str) -> list[PoolPin]:
    """Every pin there, expired ones too, by owner. A pin that vanishes meanwhile is none."""
    try:
        names = disk.names(f"{folder}/pins")
    except FileNotFoundError:
        return []
    found = []
    for name in names:
        if name.startswith("."):
            continue
        path = f"{folder}/pins/{name}"
        try:
            data = disk.read(path, MOST_BYTES)
        except FileNotFoundError:
            continue
        if is_torn(data):
            continue
        try:
            found.append(decode_pin(data, path))
        except PoolDamaged:
            # Somebody's lease, only we cannot tell whose: it holds until `check --fix`.
            found.append(
                PoolPin(owner=f"unreadable:{name}", kind="hold", uid=0, expires_s=FOR_EVER_S, from_s=0)
            )
    return sorted(found, key=lambda pin: pin.owner)


def is_torn(data: bytes) -> bool:
    """Whether a power cut left that of a pin. It can only have been one that was not durable,
    and those are of instances, which do not survive a power cut, either."""
    return not data.endswith(b"\n") or b"\0" in data


def holds(pin: PoolPin, now_s: int) -> bool:
    """Whether this pin keeps its image from being evicted now."""
    return pin.kind != "expect" and pin.expires_s > now_s


def next_use_s(pins: list[PoolPin], now_s: int) -> int | None:
    """When somebody is known to need the image next."""
    return min((max(now_s, pin.from_s) for pin in pins if pin.expires_s > now_s), default=None)


def longer(pin: PoolPin, other: PoolPin) -> PoolPin:
    """One lease in place of two of the same owner."""
    return dataclasses.replace(
        pin, expires_s=max(pin.expires_s, other.expires_s), from_s=min(pin.from_s, other.from_s)
    )
