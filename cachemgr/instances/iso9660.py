"""Writing a small ISO 9660 image with Rock Ridge names: the same files give the same bytes.

What a guest's kernel, and cloud-init in it, reads of a seed: ECMA-119 with one level of
folders, and of IEEE P1282 the entries that carry names, modes and nothing else. A FAT image
would need the long-name scheme; Joliet would need every folder twice.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest

SECTOR = 2048
FIRST_SECTOR = 16
# Any date serves, as long as it is always the same: 1 January 2000, 00:00 in Greenwich.
RECORD_DATE = bytes((100, 1, 1, 0, 0, 0, 0))
VOLUME_DATE = b"2000010100000000\0"
NO_DATE = b"0" * 16 + b"\0"
FOLDER_FLAG = 2
FILE_MODE, FOLDER_MODE = 0o100444, 0o040555
MOST_NAME = 64
MOST_IMAGE_BYTES = 16 << 20
EXTENSION_NAME = b"RRIP_1991A"
EXTENSION_TEXT = b"THE ROCK RIDGE INTERCHANGE PROTOCOL PROVIDES SUPPORT FOR POSIX FILE SYSTEM SEMANTICS"
EXTENSION_SOURCE = b"PLEASE CONTACT THE DISC PUBLISHER FOR THE SPECIFICATION SOURCE"


@dataclass(frozen=True)
class Extent:
    """Where something lies."""

    sector: int
    size_bytes: int


def iso9660(label: str, files: Mapping[str, bytes], folders: Mapping[str, Mapping[str, bytes]]) -> bytes:
    """An image with files at its top and in folders that contain files.

    ::

        sectors 0-15   empty                      20 ...  the top folder
        sector 16, 17  descriptors of the volume   then   the other folders
        sector 18, 19  paths, in both byte orders  then   names' extension, then the files
    """
    _check(label, files, folders)
    every = {"": files, **{name: folders[name] for name in sorted(folders)}}
    lengths = {name: _folder_bytes(every, name) for name in every}
    at = FIRST_SECTOR + 4
    places: dict[str, Extent] = {}
    for name, length in lengths.items():
        places[name] = Extent(at, length)
        at += length // SECTOR
    extension_sector = at
    at += 1
    extents: dict[tuple[str, str], Extent] = {}
    for folder, content in every.items():
        for name in sorted(content):
            extents[folder, name] = Extent(at, len(content[name]))
            at += _sectors(len(content[name]))

    paths = [_path_table(places, "<"), _path_table(places, ">")]
    parts = [bytes(FIRST_SECTOR * SECTOR), _volume(label, at, places[""], len(paths[0])), _terminator()]
    parts += [_padded(paths[0]), _padded(paths[1])]
    parts += [_folder(every, name, places, extents, extension_sector) for name in every]
    parts.append(_padded(_extension()))
    parts += [_padded(content[name]) for content in every.values() for name in sorted(content)]
    return b"".join(parts)


def _check(label: str, files: Mapping[str, bytes], folders: Mapping[str, Mapping[str, bytes]]) -> None:
    names = [*files, *folders, *(name for content in folders.values() for name in content)]
    if len(set(files) | set(folders)) != len(files) + len(folders):
        raise BadRequest("a file and a folder of an image cannot have the same name")
    if not 1 <= len(label) <= 32 or not all(name.isascii() and 1 <= len(name) <= MOST_NAME for name in names):
        raise BadRequest(f"names in an image have 1 to {MOST_NAME} ASCII characters, its label at most 32")
    whole_bytes = sum(map(len, files.values())) + sum(
        len(data) for content in folders.values() for data in content.values()
    )
    if whole_bytes > MOST_IMAGE_BYTES:
        raise BadRequest(f"the files of an image may have {MOST_IMAGE_BYTES} bytes, not {whole_bytes}")


def _both(number: int) -> bytes:
    return struct.pack("<I", number) + struct.pack(">I", number)


def _both_short(number: int) -> bytes:
    return struct.pack("<H", number) + struct.pack(">H", number)


def _sectors(size_bytes: int) -> int:
    return -(-size_bytes // SECTOR)


def _padded(data: bytes) -> bytes:
    return data.ljust(_sectors(len(data)) * SECTOR, b"\0")


def _volume(label: str, sectors: int, top: Extent, path_bytes: int) -> bytes:
    """The primary volume descriptor."""
    blank = b" " * 128
    fields = [
        b"\x01CD001\x01\0", b" " * 32, label.encode("ascii").ljust(32), bytes(8),
        _both(sectors), bytes(32), _both_short(1), _both_short(1), _both_short(SECTOR), _both(path_bytes),
        struct.pack("<II", FIRST_SECTOR + 2, 0), struct.pack(">II", FIRST_SECTOR + 3, 0),
        _record(b"\0", top, FOLDER_FLAG, b""),
        blank, blank, blank, blank, b" " * 37, b" " * 37, b" " * 37,
        VOLUME_DATE, VOLUME_DATE, NO_DATE, VOLUME_DATE, b"\x01\0",
    ]  # fmt: skip
    return _padded(b"".join(fields))


def _terminator() -> bytes:
    return _padded(b"\xffCD001\x01")


def _path_table(places: Mapping[str, Extent], order: str) -> bytes:
    """Each folder with its parent, which is the first one: the top."""
    table = b""
    for number, (name, place) in enumerate(places.items()):
        short = _short_folder(number) if name else b"\0"
        table += struct.pack(f"{order}BBIH", len(short), 0, place.sector, 1)
        table += short + b"\0" * (len(short) % 2)
    return table


def _folder(
    every: Mapping[str, Mapping[str, bytes]],
    name: str,
    places: Mapping[str, Extent],
    extents: Mapping[tuple[str, str], Extent],
    extension_sector: int,
) -> bytes:
    """The records of one folder; none lies across two sectors."""
    top = _top_entries(extension_sector) if name == "" else b""
    inner = {each for each in every if each} if name == "" else set()
    records = [
        _record(b"\0", places[name], FOLDER_FLAG, top + _mode(FOLDER_MODE, 2 + len(inner))),
        _record(b"\x01", places[""], FOLDER_FLAG, _mode(FOLDER_MODE, 2 + len(every) - 1)),
    ]
    for number, each in enumerate(every):
        if each in inner:
            use = _mode(FOLDER_MODE, 2) + _name(each)
            records.append(_record(_short_folder(number), places[each], FOLDER_FLAG, use))
    for number, each in enumerate(sorted(every[name])):
        use = _mode(FILE_MODE, 1) + _name(each)
        records.append(_record(b"F%07d.;1" % number, extents[name, each], 0, use))
    return _laid_out(records)


def _folder_bytes(every: Mapping[str, Mapping[str, bytes]], name: str) -> int:
    """How long the records will be: that depends on names alone, not on where things lie."""
    nowhere = Extent(0, 0)
    places = dict.fromkeys(every, nowhere)
    extents = {(name, each): nowhere for each in every[name]}
    return len(_folder(every, name, places, extents, 0))


def _laid_out(records: list[bytes]) -> bytes:
    data = b""
    for record in records:
        if len(data) % SECTOR + len(record) > SECTOR:
            data = _padded(data)
        data += record
    return _padded(data)


def _short_folder(number: int) -> bytes:
    return b"D%07d" % number


def _record(short: bytes, extent: Extent, flags: int, use: bytes) -> bytes:
    body = (
        _both(extent.sector) + _both(extent.size_bytes) + RECORD_DATE + bytes((flags, 0, 0)) + _both_short(1)
    )
    body += bytes((len(short),)) + short + b"\0" * (1 - len(short) % 2) + use
    body += b"\0" * (len(body) % 2)
    return bytes((len(body) + 2, 0)) + body


def _top_entries(extension_sector: int) -> bytes:
    """The sign that names follow, and where it is said by which rules."""
    length = len(_extension())
    return b"SP\x07\x01\xbe\xef\0" + b"CE\x1c\x01" + _both(extension_sector) + _both(0) + _both(length)


def _extension() -> bytes:
    texts = (EXTENSION_NAME, EXTENSION_TEXT, EXTENSION_SOURCE)
    length = 8 + sum(map(len, texts))
    return b"ER" + bytes((length, 1, *map(len, texts), 1)) + b"".join(texts)


def _mode(mode: int, links: int) -> bytes:
    return b"PX\x24\x01" + _both(mode) + _both(links) + _both(0) + _both(0)


def _name(name: str) -> bytes:
    return b"NM" + bytes((5 + len(name), 1, 0)) + name.encode("ascii")
