"""Contextualisation: what one instance is told of itself, checked, and attached as files or a seed.

A seed is the disk that cloud-init calls NoCloud: an image labelled `cidata` with the files
`meta-data`, `user-data` and perhaps `network-config`. Everything in it comes from a user,
for that user's own instance; what is checked here is that none of it becomes a path of the
node, and that it has an end.
"""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from cachemgr.base.errors import BadRequest, DiskFailed, NoRoom
from cachemgr.instances.acl import LIST, READ, grant
from cachemgr.instances.iso9660 import iso9660

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.base.disk import Disk

LABEL = "cidata"
SEED, FOLDER = "seed.iso", "context"
FILE_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,64}")
HOST_LABEL = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)")
HARDWARE_ADDRESS = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
KEYS = ("addresses", "files", "hostname", "meta", "user_data")
ADDRESS_KEYS = ("address", "gateway", "mac", "nameservers")
OWN_META = ("instance-id", "local-hostname")
MOST_FILES, MOST_ADDRESSES, MOST_NAMESERVERS = 64, 16, 4
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
MOST_BYTES, MOST_META_BYTES = 1 << 20, 64 << 10
NO_USER_DATA = "#cloud-config\n{}\n"


@dataclass(frozen=True)
class Address:
    """One address with the length of its network's prefix, and the interface that gets it."""

    address: str
    gateway: str | None = None
    mac: str | None = None
    nameservers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Context:
    """Checked contextualisation data of one instance."""

    hostname: str | None = None
    addresses: tuple[Address, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    user_data: str = NO_USER_DATA
    meta_json: str = "{}"


def checked_context(plain: object) -> Context:
    """The data as they come in a message; what is wrong is named by its key."""
    known = _object(plain, "the context", KEYS)
    hostname = known.get("hostname")
    if hostname is not None:
        hostname = _hostname(hostname)
    addresses = _list(known.get("addresses", []), "addresses", MOST_ADDRESSES)
    user_data = _text(known.get("user_data", NO_USER_DATA), "user_data")
    files = _files(known.get("files", {}))
    whole_bytes = len(user_data.encode()) + sum(len(text.encode()) for text in files.values())
    if whole_bytes > MOST_BYTES:
        raise BadRequest(f"files and user_data may have {MOST_BYTES} bytes together, not {whole_bytes}")
    return Context(
        hostname=hostname,
        addresses=tuple(_address(each) for each in addresses),
        files=files,
        user_data=user_data,
        meta_json=_meta(known.get("meta", {})),
    )


def _object(plain: object, what: str, keys: tuple[str, ...]) -> dict[str, object]:
    if not isinstance(plain, dict):
        raise BadRequest(f"{what} must be an object with some of the keys {', '.join(keys)}")
    unknown = sorted(repr(key)[:60] for key in plain if key not in keys)
    if unknown:
        raise BadRequest(f"{what} has no key {unknown[0]}: known are {', '.join(keys)}")
    return plain


def _list(plain: object, what: str, most: int) -> list[object]:
    if not isinstance(plain, list) or len(plain) > most:
        raise BadRequest(f"{what} must be a list of at most {most}")
    return plain


def _text(plain: object, what: str) -> str:
    if not isinstance(plain, str):
        raise BadRequest(f"{what} must be a text")
    try:
        plain.encode()
    except UnicodeEncodeError as error:
        raise BadRequest(f"{what} has a character that UTF-8 cannot write, at {error.start}") from error
    return plain


def _hostname(plain: object) -> str:
    name = _text(plain, "hostname")
    if len(name) > 253 or not all(HOST_LABEL.fullmatch(part) for part in name.split(".")):
        raise BadRequest(f"hostname {name[:80]!r} must be letters, digits and hyphens, with dots between")
    return name


def _files(plain: object) -> dict[str, str]:
    if not isinstance(plain, dict) or len(plain) > MOST_FILES:
        raise BadRequest(f"files must be an object of at most {MOST_FILES} names with their texts")
    for name in plain:
        if not isinstance(name, str) or not FILE_NAME.fullmatch(name):
            raise BadRequest(
                f"a file cannot be called {str(name)[:80]!r}: 1 to 64 of A-Z a-z 0-9 . _ - and no leading dot"
            )
    return {name: _text(plain[name], f"file {name}") for name in sorted(plain)}


def _address(plain: object) -> Address:
    import ipaddress  # takes milliseconds, and few instances have addresses

    known = _object({"address": plain} if isinstance(plain, str) else plain, "an address", ADDRESS_KEYS)
    gateway, mac = known.get("gateway"), known.get("mac")
    nameservers = _list(known.get("nameservers", []), "nameservers", MOST_NAMESERVERS)
    text = _text(known.get("address"), "an address")
    if mac is not None and not HARDWARE_ADDRESS.fullmatch(_text(mac, "mac").lower()):
        raise BadRequest(f"mac {mac!r} is not a hardware address like 52:54:00:12:34:56")
    try:
        if "/" not in text or "%" in text:
            raise ValueError("it lacks the length of the prefix")
        return Address(
            address=str(ipaddress.ip_interface(text)),
            gateway=None if gateway is None else str(ipaddress.ip_address(_text(gateway, "gateway"))),
            mac=None if mac is None else str(mac).lower(),
            nameservers=tuple(str(ipaddress.ip_address(_text(each, "a nameserver"))) for each in nameservers),
        )
    except ValueError as error:
        raise BadRequest(f"address {text[:80]!r} is not one like 10.0.0.5/24: {error}") from error


def _meta(plain: object) -> str:
    if not isinstance(plain, dict) or not all(isinstance(key, str) for key in plain):
        raise BadRequest("meta must be an object")
    for key in OWN_META:
        if key in plain:
            raise BadRequest(f"meta cannot set {key}: it is made from the instance")
    try:
        text = json.dumps(plain, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadRequest(f"meta must be JSON: {error}") from error
    if len(text) > MOST_META_BYTES:
        raise BadRequest(f"meta may have {MOST_META_BYTES} bytes, not {len(text)}")
    return text


def contents(context: Context, instance: str) -> dict[str, bytes]:
    """The files that cloud-init reads, without those of the user. JSON is YAML, and quotes safely."""
    meta = {**json.loads(context.meta_json), "instance-id": instance}
    if context.hostname is not None:
        meta["local-hostname"] = context.hostname
    found = {"meta-data": _json(meta), "user-data": context.user_data.encode()}
    if context.addresses:
        found["network-config"] = _json(_network(context.addresses))
    return found


def _json(plain: object) -> bytes:
    return json.dumps(plain, sort_keys=True, indent=1).encode() + b"\n"


def _network(addresses: tuple[Address, ...]) -> dict[str, object]:
    """Version 2 of cloud-init's network configuration. Addresses of one interface belong together."""
    grouped: dict[str, list[Address]] = {}
    for each in addresses:
        grouped.setdefault(each.mac or "", []).append(each)
    ethernets = {}
    for number, (mac, group) in enumerate(grouped.items()):
        gateways = list(dict.fromkeys(each.gateway for each in group if each.gateway))
        nameservers = list(dict.fromkeys(server for each in group for server in each.nameservers))
        card: dict[str, object] = {
            "match": {"macaddress": mac} if mac else {"name": "e*"},
            "addresses": [each.address for each in group],
            "dhcp4": False,
        }
        if gateways:
            card["routes"] = [{"to": "::/0" if ":" in via else "0.0.0.0/0", "via": via} for via in gateways]
        if nameservers:
            card["nameservers"] = {"addresses": nameservers}
        ethernets[f"net{number}"] = card
    return {"version": 2, "ethernets": ethernets}


def seed(context: Context, instance: str) -> bytes:
    """The seed image; the user's files lie in its folder `files`."""
    encoded = {name: text.encode() for name, text in context.files.items()}
    return iso9660(LABEL, contents(context, instance), {"files": encoded} if encoded else {})


def attach(disk: Disk, context: Context, *, instance: str, folder: str, uid: int, as_seed: bool) -> str:
    """Put the data beside an instance, readable by its user alone; the path. Once there, it stays."""
    path = f"{folder}/{SEED if as_seed else FOLDER}"
    new = f"{folder}/.{SEED if as_seed else FOLDER}.new"
    if disk.exists(path):
        return path
    try:
        if as_seed:
            _write(disk, new, seed(context, instance), uid)
        else:
            _write_folder(disk, new, context, instance, uid)
        disk.rename(new, path)
    except OSError as error:
        kind = NoRoom if error.errno in NO_SPACE else DiskFailed
        raise kind(f"{path} cannot be written: {error.strerror}") from error
    return path


def _write(disk: Disk, path: str, data: bytes, uid: int) -> None:
    with suppress(FileNotFoundError):
        disk.remove(path)
    handle = disk.create(path, 0o400)
    try:
        handle.write_at(0, data)
    finally:
        handle.close()
    grant(disk, path, mode=0o400, uids=[uid], permission=READ, may_change_owner=True)


def _write_folder(disk: Disk, path: str, context: Context, instance: str, uid: int) -> None:
    """What an attempt that died has left is not mixed with this one."""
    with suppress(FileNotFoundError):
        disk.remove_all(path)
    encoded = {name: text.encode() for name, text in context.files.items()}
    for folder, files in ((path, contents(context, instance)), (f"{path}/files", encoded)):
        disk.make_folder(folder, 0o700)
        for name, data in files.items():
            _write(disk, f"{folder}/{name}", data, uid)
        grant(disk, folder, mode=0o700, uids=[uid], permission=LIST, may_change_owner=True)
