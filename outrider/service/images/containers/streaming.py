"""What is left of an image's layers as one tar archive, for a program that makes a file system of it.

Folders and links come first; then each layer is read once more, and of it what is left is copied. The order,
owners and times follow from the layers alone, so that the same image gives the same bytes.
"""

from __future__ import annotations

import tarfile
from collections.abc import Callable, Iterable
from typing import Protocol

from outrider.service.images.containers.archive import Archive, LayerStream
from outrider.service.images.containers.tree import Content, Tree

COPY_BYTES = 1 << 20


class PackedOutput(Protocol):
    def write(self, data: bytes, /) -> object: ...


Opened = Callable[[int], LayerStream]
"""From a layer's number to what it holds, unpacked."""


def write_archive(tree: Tree, layers: int, opened: Opened, output: PackedOutput) -> None:
    """Write the tree, with contents from the layers, which are opened one after the other."""
    contents: dict[int, Content] = {}
    for path, node in tree.walk():
        if node.children is not None:
            output.write(_header(path, tarfile.DIRTYPE, node.mode, node.mtime_s))
        elif node.content is not None:
            node.content.paths.append(path)
            contents[id(node.content)] = node.content
        else:
            output.write(_header(path, tarfile.SYMTYPE, 0o777, node.mtime_s, target=node.target))
    wanted: dict[int, dict[int, Content]] = {}
    for content in contents.values():
        if content.data is not None:
            _write_file(content, output, [content.data])
        else:
            wanted.setdefault(content.layer, {})[content.number] = content
    for number in range(layers):
        if number in wanted:
            _copy(Archive(opened(number), f"layer {number + 1}"), wanted[number], output)
    output.write(bytes(2 * tarfile.BLOCKSIZE))


def unpacked_bytes(tree: Tree) -> int:
    """What the contents of all files add up to."""
    found = {id(node.content): node.content.size_bytes for _, node in tree.walk() if node.content is not None}
    return sum(found.values())


def newest_s(tree: Tree) -> int:
    """The latest time of change in it."""
    return max((node.mtime_s for _, node in tree.walk()), default=0)


def _copy(archive: Archive, wanted: dict[int, Content], output: PackedOutput) -> None:
    for entry in archive:
        content = wanted.get(entry.number)
        if content is not None:
            _write_file(content, output, iter(lambda: archive.read(COPY_BYTES), b""))


def _write_file(content: Content, output: PackedOutput, blocks: Iterable[bytes]) -> None:
    first, *others = content.paths
    output.write(
        _header(first, tarfile.REGTYPE, content.mode, content.mtime_s, size_bytes=content.size_bytes)
    )
    for block in blocks:
        output.write(block)
    output.write(bytes(-content.size_bytes % tarfile.BLOCKSIZE))
    for path in others:
        output.write(_header(path, tarfile.LNKTYPE, content.mode, content.mtime_s, target=first))


def _header(
    path: str, kind: bytes, mode: int, mtime_s: int, *, target: str = "", size_bytes: int = 0
) -> bytes:
    entry = tarfile.TarInfo(path)
    entry.type, entry.mode, entry.mtime = kind, mode, mtime_s
    entry.linkname, entry.size = target, size_bytes
    return entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
