"""Layers laid over one another: what is left of all of them, as a tree in memory, without any content.

The rules are those of the OCI image specification: a whiteout hides what lies below its own layer, a
folder over a folder joins it, everything else replaces. Links are followed inside of the image, as
if it were mounted; nothing is looked up in this machine's own folders.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from outrider.service.images.containers.archive import MOST_DEPTH, Entry, parts_of
from outrider.service.images.containers.faults import ConversionFault

MOST_NODES = 1_000_000
"""Files, folders and links of an image; each takes half a kilobyte of memory."""
MOST_FOLLOWED = 40
WHITEOUT = ".wh."
OPAQUE = ".wh..wh..opq"
OWN = 1 << 30
"""The layer of what the converter adds itself, above all others."""


@dataclass(slots=True, eq=False)
class Content:
    """A file's content: where it is, or itself; and, once all layers are there, where it appears."""

    layer: int
    number: int
    size_bytes: int
    mode: int
    mtime_s: int
    data: bytes | None = None
    paths: list[str] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class TreeNode:
    """A folder with `children`, a file with a `content`, or a link with a `target`."""

    layer: int
    mode: int = 0o755
    mtime_s: int = 0
    children: dict[str, TreeNode] | None = None
    content: Content | None = None
    target: str = ""


class Tree:
    """What is left of the layers so far. Rights that a file would give its user are taken off."""

    def __init__(self, most_nodes: int = MOST_NODES) -> None:
        self.root = TreeNode(0, children={})
        self._most_nodes = most_nodes
        self._nodes = 0
        self.devices = 0
        """Devices and pipes that were left out."""
        self.stripped = 0
        """Files that were setuid or setgid."""

    def lay(self, number: int, entries: Iterable[Entry]) -> None:
        """Put a layer on top."""
        name = f"layer {number + 1}"
        for entry in entries:
            if entry.parts:
                self._put(number, entry, name)
            elif entry.kind == "folder":
                self.root.mode, self.root.mtime_s = entry.mode & 0o1777, entry.mtime_s

    def add(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """A file of the converter's own, in the place of whatever is there."""
        *folders, base = path.split("/")
        parent = self._folder(tuple(folders), OWN, "the converter", is_forced=True)
        content = Content(OWN, 0, len(data), mode, 0, data)
        self._set(parent, base, TreeNode(OWN, mode, 0, content=content))

    def add_missing(self, path: str, *, is_folder: bool) -> None:
        """An empty file or folder, unless there is something of that name."""
        *folders, base = path.split("/")
        parent = self._folder(tuple(folders), OWN, "the converter", is_forced=True)
        assert parent.children is not None
        if base in parent.children:
            return
        content = None if is_folder else Content(OWN, 0, 0, 0o644, 0, b"")
        self._set(parent, base, TreeNode(OWN, 0o755, 0, children={} if is_folder else None, content=content))

    def add_link(self, path: str, target: str) -> None:
        *folders, base = path.split("/")
        parent = self._folder(tuple(folders), OWN, "the converter", is_forced=True)
        self._set(parent, base, TreeNode(OWN, 0o777, 0, target=target))

    def enclose(self, name: str) -> None:
        """Let everything so far be in a folder of that name."""
        self.root = TreeNode(OWN, children={name: self.root})

    def walk(self) -> Iterator[tuple[str, TreeNode]]:
        """Everything but the root with its path, folders before what is in them, in order of names."""
        waiting = [("", self.root)]
        while waiting:
            path, node = waiting.pop()
            if path:
                yield path, node
            if node.children is not None:
                inner = sorted(node.children.items(), reverse=True)
                waiting += [(f"{path}/{name}" if path else name, child) for name, child in inner]

    def _put(self, layer: int, entry: Entry, name: str) -> None:
        *folders, base = entry.parts
        if base.startswith(WHITEOUT):
            self._white_out(layer, tuple(folders), base, name)
            return
        parent = self._folder(tuple(folders), layer, name)
        assert parent.children is not None
        there = parent.children.get(base)
        match entry.kind:
            case "folder":
                mode = entry.mode & 0o1777
                if there is not None and there.children is not None:
                    there.layer, there.mode, there.mtime_s = layer, mode, entry.mtime_s
                else:
                    self._set(parent, base, TreeNode(layer, mode, entry.mtime_s, children={}))
            case "file":
                self.stripped += bool(entry.mode & 0o6000)
                mode = entry.mode & 0o777
                content = Content(layer, entry.number, entry.size_bytes, mode, entry.mtime_s)
                self._set(parent, base, TreeNode(layer, mode, entry.mtime_s, content=content))
            case "symlink":
                if not entry.target:
                    raise ConversionFault(f"{name} has a symbolic link to nothing: {_shown(entry.parts)}")
                self._set(parent, base, TreeNode(layer, 0o777, entry.mtime_s, target=entry.target))
            case "link":
                self._set(parent, base, self._linked(layer, entry, name))
            case "device":
                self.devices += 1
                parent.children.pop(base, None)

    def _linked(self, layer: int, entry: Entry, name: str) -> TreeNode:
        """The node for a hard link: the same content, or the same symbolic link, under a further name."""
        parts = parts_of(entry.target, name)
        found = None
        if parts:
            parent = self._descend(parts[:-1], layer, name)
            found = None if parent is None or parent.children is None else parent.children.get(parts[-1])
        if found is None or found.children is not None:
            what = "which is not there" if found is None else "which is a folder"
            raise ConversionFault(f"{name} has a hard link to {entry.target[:100]!r}, {what}")
        return TreeNode(layer, found.mode, found.mtime_s, content=found.content, target=found.target)

    def _white_out(self, layer: int, folders: tuple[str, ...], base: str, name: str) -> None:
        parent = self._descend(folders, layer, name)
        if parent is None or parent.children is None:
            return
        if base == OPAQUE:
            _prune(parent, layer)
        elif not base.startswith(f"{WHITEOUT}{WHITEOUT}"):
            hidden = base[len(WHITEOUT) :]
            if hidden in ("", ".", ".."):
                raise ConversionFault(f"{name} has a whiteout of nothing: {'/'.join(folders)}/{base}")
            found = parent.children.get(hidden)
            if found is not None and _is_hidden(found, layer):
                del parent.children[hidden]

    def _folder(self, parts: tuple[str, ...], layer: int, name: str, *, is_forced: bool = False) -> TreeNode:
        """The folder of that path, symbolic links followed; made where there is none."""
        found = self._descend(parts, layer, name, is_made=True, is_forced=is_forced)
        assert found is not None
        return found

    def _descend(
        self,
        parts: tuple[str, ...],
        layer: int,
        name: str,
        *,
        is_made: bool = False,
        is_forced: bool = False,
    ) -> TreeNode | None:
        way = [self.root]
        rest = list(reversed(parts))
        followed = 0
        while rest:
            part = rest.pop()
            if part == "..":
                way = way[:-1] or [self.root]
                continue
            here = way[-1]
            assert here.children is not None
            there = here.children.get(part)
            if there is not None and there.target:
                followed += 1
                if followed > MOST_FOLLOWED:
                    raise ConversionFault(f"{name} has a path with a loop of links: {_shown(parts)}")
                if there.target.startswith("/"):
                    way = [self.root]
                rest += reversed([each for each in there.target.split("/") if each not in ("", ".")])
                continue
            if there is None or there.children is None:
                if not is_made:
                    return None
                if there is not None and not is_forced:
                    raise ConversionFault(
                        f"{name} has {_shown(parts)} for a folder, in which {part!r} is none"
                    )
                there = TreeNode(layer, children={})
                self._set(here, part, there)
            way.append(there)
            if len(way) > MOST_DEPTH:
                raise ConversionFault(f"{name} has folders more than {MOST_DEPTH} deep: {_shown(parts)}")
        return way[-1]

    def _set(self, parent: TreeNode, name: str, node: TreeNode) -> None:
        assert parent.children is not None
        self._nodes += 1
        if self._nodes > self._most_nodes:
            raise ConversionFault(f"the image has more than {self._most_nodes} files: make it smaller")
        parent.children[name] = node


def _shown(parts: tuple[str, ...]) -> str:
    return repr("/".join(parts)[:100])


def _is_hidden(node: TreeNode, layer: int) -> bool:
    """Whether nothing is left of it when what lies below the layer is hidden."""
    if node.children is not None:
        _prune(node, layer)
        return node.layer < layer and not node.children
    return node.layer < layer


def _prune(folder: TreeNode, layer: int) -> None:
    """Take what lies below the layer out of a folder."""
    assert folder.children is not None
    for name in [each for each, node in folder.children.items() if _is_hidden(node, layer)]:
        del folder.children[name]
