"""A disk in memory that knows what a crash and a power cut would leave of it.

Every operation is a step. At a step that the test chooses the process dies, the disk
refuses, or somebody else gets a turn. What a power cut spares follows these rules:

- A file's content is safe when the file was synced. Otherwise it may be what was synced
  before, torn, all zeros of its new length, or what was written.
- A name is safe when its folder was synced, not when the file was. Changes of names that
  were not synced may be lost; of one folder they survive in order, as a prefix.
- A rename is one change of two folders: it survives as a whole or not at all, and syncing
  either folder makes it safe, together with all earlier changes of both.
- Modes and access lists are safe after any later sync.

This stands for journalling file systems as Linux mounts them by default (ext4 with
data=ordered, XFS, btrfs); each of them keeps more than that. It does not stand for ext2, nor
for ext4 without a journal, where a rename may survive in one of its folders only.

The process is a service user that owns every file and is not root: modes bind it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from random import Random

from cachemgr.base.errors import Unsuitable
from tests.simulation.crash.memorynodes import (
    CHANGE,
    GROW,
    READ,
    STRIKES,
    SYNC,
    Change,
    Crash,
    Fault,
    File,
    Folder,
    Node,
    WouldBlock,
    error,
    parts_of,
    put,
    remnant,
)

# A disk of this size is never full, and nobody counts what is on it.
AMPLE_BYTES = 1 << 30


class MemoryLock:
    """flock(2): it is of the inode and ends with its holder."""

    def __init__(self, disk: MemoryDisk, node: Node, *, is_shared: bool) -> None:
        self._disk = disk
        self._node = node
        self.is_shared = is_shared
        node.holders.append(self)

    def is_of(self, path: str) -> bool:
        return self._disk.node_at(path) is self._node

    def release(self) -> None:
        if self in self._node.holders:
            self._node.holders.remove(self)


class MemoryHandle:
    """An open file."""

    def __init__(self, disk: MemoryDisk, file: File, path: str, *, for_writing: bool) -> None:
        self._disk = disk
        self._file: File | None = file
        self._path = path
        self._for_writing = for_writing

    def read_at(self, offset: int, most: int) -> bytes:
        self._disk.step("read", self._path, READ)
        return bytes(self._open().content[offset : offset + most])

    def write_at(self, offset: int, data: bytes | memoryview) -> None:
        """In two steps, so that a process can die half-way through."""
        file = self._open()
        if not self._for_writing:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        half = len(data) // 2
        for start, stop in ((0, half), (half, len(data))):
            if start < stop or start == len(data) == 0:
                growth = max(0, offset + stop - len(file.content))
                self._disk.step("write", self._path, GROW, growth)
                end = offset + start
                file.content.extend(bytes(max(0, end - len(file.content))))
                file.content[end : offset + stop] = data[start:stop]
                file.is_dirty = True

    def allocate(self, size_bytes: int) -> None:
        file = self._open()
        growth = max(0, size_bytes - len(file.content))
        self._disk.step("allocate", self._path, GROW, growth)
        file.content.extend(bytes(growth))
        file.is_dirty = True

    def reserve(self, size_bytes: int) -> None:
        raise NotImplementedError("the pool reserves nothing, and machines are not tried on this disk")

    def size(self) -> int:
        return len(self._open().content)

    def set_mode(self, mode: int) -> None:
        self._disk.step("chmod", self._path, CHANGE)
        self._open().mode = mode
        self._disk.has_new_modes = True

    def sync(self) -> None:
        """A sync that fails leaves the cache clean and the disk as it was, as on Linux."""
        file = self._open()
        try:
            self._disk.step("sync", self._path, SYNC)
        except OSError:
            file.is_dirty = False
            raise
        if file.is_dirty:
            file.durable = bytes(file.content)
            file.is_dirty = False
        self._disk.keep_modes()

    def fileno(self) -> int:
        raise OSError(errno.EOPNOTSUPP, "a file in memory has no number")

    def close(self) -> None:
        self._file = None

    def _open(self) -> File:
        if self._file is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self._path)
        return self._file


class MemoryDisk:
    """`cachemgr.base.disk.Disk` in memory."""

    def __init__(self, capacity_bytes: int = AMPLE_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self.root = Folder(0o755)
        self.boot = 1
        self.can_reflink = True
        # The processes that others still find; whoever wrote a draft counts as dead.
        self.living: set[int] = set()
        self.fault: Fault | None = None
        # Called before every step with what is going to happen: somebody else's turn.
        self.before_step: Callable[[str, str], None] | None = None
        self.trace: list[tuple[str, str, str]] | None = None
        # What others store on this disk without names, such as the index: it is copied along.
        self.shelf: dict[str, object] = {}
        self.has_new_modes = False
        self._pending: list[Change] = []
        self._is_dead = False
        self._struck = 0

    # -- the interface ---------------------------------------------------------------------

    def create(self, path: str, mode: int) -> MemoryHandle:
        self.step("create", path, GROW)
        folder, name = self._parent(path)
        if name in folder.entries:
            raise error(errno.EEXIST, path)
        file = File(mode)
        self._change((folder, name, file))
        return MemoryHandle(self, file, path, for_writing=True)

    def open(self, path: str, *, for_writing: bool = False) -> MemoryHandle:
        self.step("open", path, READ)
        file = self._file(path)
        if not file.mode & (0o600 if for_writing else 0o400) == (0o600 if for_writing else 0o400):
            raise error(errno.EACCES, path)
        return MemoryHandle(self, file, path, for_writing=for_writing)

    def read(self, path: str, most: int) -> bytes:
        self.step("read", path, READ)
        return bytes(self._file(path).content[:most])

    def exists(self, path: str) -> bool:
        return self.node_at(path) is not None

    def size(self, path: str) -> int:
        self.step("stat", path, READ)
        node = self._node(path)
        return len(node.content) if isinstance(node, File) else 4096

    def names(self, path: str) -> list[str]:
        self.step("list", path, READ)
        return sorted(self._folder(path).entries)

    def make_folder(self, path: str, mode: int) -> None:
        self.step("mkdir", path, GROW)
        folder, name = self._parent(path)
        if name in folder.entries:
            raise error(errno.EEXIST, path)
        self._change((folder, name, Folder(mode)))

    def remove_folder(self, path: str) -> None:
        self.step("rmdir", path, CHANGE)
        folder, name = self._parent(path)
        if self._folder(path).entries:
            raise error(errno.ENOTEMPTY, path)
        self._change((folder, name, None))

    def rename(self, source: str, target: str) -> None:
        self.step("rename", f"{source} {target}", GROW)
        from_folder, old = self._parent(source)
        to_folder, new = self._parent(target)
        moved = self._node(source)
        replaced = to_folder.entries.get(new)
        if isinstance(replaced, Folder) and (replaced.entries or isinstance(moved, File)):
            raise error(errno.ENOTEMPTY if replaced.entries else errno.EISDIR, target)
        if isinstance(replaced, File) and isinstance(moved, Folder):
            raise error(errno.ENOTDIR, target)
        self._change((from_folder, old, None), (to_folder, new, moved))

    def remove(self, path: str) -> None:
        self.step("unlink", path, CHANGE)
        folder, name = self._parent(path)
        self._file(path)
        self._change((folder, name, None))

    def remove_all(self, path: str) -> None:
        """The largest first, which is the worst order if the rest comes back."""
        if isinstance(self._node(path), File):
            self.remove(path)
            return
        entries = self._folder(path).entries
        for name in sorted(entries, key=lambda name: (isinstance(entries[name], Folder), name)):
            inside = f"{path}/{name}"
            self.remove_all(inside) if isinstance(entries[name], Folder) else self.remove(inside)
        self.remove_folder(path)

    def sync_folder(self, path: str) -> None:
        folder = self._folder(path)
        self.step("sync folder", path, SYNC)
        self._keep_names_of(folder)
        self.keep_modes()

    def lock(self, path: str, *, is_shared: bool, waits: bool) -> MemoryLock | None:
        self.step("lock", path, READ)
        node = self._node(path)
        if any(not (is_shared and other.is_shared) for other in node.holders):
            if waits:
                raise WouldBlock(path)
            return None
        return MemoryLock(self, node, is_shared=is_shared)

    def reflink(self, source: str, target: str, mode: int) -> None:
        if not self.can_reflink:
            raise Unsuitable(f"{target} cannot share blocks with {source}")
        content = self._file(source).content
        self.step("reflink", target, GROW)
        folder, name = self._parent(target)
        if name in folder.entries:
            raise error(errno.EEXIST, target)
        file = File(mode)
        self._change((folder, name, file))
        self.step("reflink blocks", target, GROW)
        file.content[:] = content

    def set_acl(self, path: str, acl: bytes) -> None:
        self.step("set acl", path, CHANGE)
        self._file(path).acl = acl

    def free_bytes(self, path: str) -> int:
        self.step("statfs", path, READ)
        return self._free_bytes()

    def boot_id(self) -> str:
        return f"boot-{self.boot}"

    def is_process(self, pid: int) -> bool:
        return pid in self.living

    def run(self, argv: Sequence[str], timeout_s: int) -> bytes:
        raise Unsuitable(f"{argv[0]} is not installed on this node")

    # -- steps and faults ------------------------------------------------------------------

    def step(self, what: str, path: str, effect: str, growth_bytes: int = 0) -> None:
        """Something is about to happen; here it may not."""
        if self._is_dead:
            raise Crash
        if self.before_step is not None:
            self.before_step(what, path)
        if self.trace is not None:
            self.trace.append((what, path, effect))
        fault = self.fault
        if fault is not None and effect in STRIKES[fault.kind]:
            number, self._struck = self._struck, self._struck + 1
            if number == fault.at or (fault.is_lasting and number > fault.at):
                if fault.kind == "crash":
                    self._is_dead = True
                    raise Crash
                raise error(getattr(errno, fault.kind), path)
        if growth_bytes and growth_bytes > self._free_bytes():
            raise error(errno.ENOSPC, path)

    def arm(self, fault: Fault | None) -> None:
        """Count anew, towards this fault."""
        self.fault = fault
        self._struck = 0

    # -- aftermaths ------------------------------------------------------------------------

    def restart_process(self) -> None:
        """The process died: everything written is there, its locks are free."""
        self.arm(None)
        self._is_dead = False
        for node in self._every_node():
            node.holders.clear()

    def lose_power(self, names: str, contents: str, seed: int = 0) -> None:
        """The machine died. `names` is what becomes of changes of names that were not synced:
        none or all survive, or a prefix of each folder's; `contents` is what becomes of such
        contents: old, torn, zeros or new."""
        self.restart_process()
        random = Random(seed)
        for change in self._survivors(names, random):
            for folder, name, node in change:
                put(folder.durable, name, node)
        self._pending.clear()
        for node in self._every_node(is_durable=True):
            node.mode = node.durable_mode
            if isinstance(node, Folder):
                node.entries = dict(node.durable)
            else:
                node.content = bytearray(remnant(node, contents, random))
                node.durable, node.is_dirty = bytes(node.content), False
        self.boot += 1

    def copy(self) -> MemoryDisk:
        """The same disk again, with what is not synced, but without locks and faults."""
        twin = MemoryDisk(self.capacity_bytes)
        copies: dict[int, Node] = {}

        def copied(node: Node) -> Node:
            if id(node) in copies:
                return copies[id(node)]
            if isinstance(node, File):
                file = copies[id(node)] = File(node.mode)
                file.content, file.durable = bytearray(node.content), node.durable
                file.is_dirty, file.acl = node.is_dirty, node.acl
                file.durable_mode = node.durable_mode
                return file
            folder = copies[id(node)] = Folder(node.mode)
            folder.durable_mode = node.durable_mode
            folder.entries = {name: copied(inner) for name, inner in node.entries.items()}
            folder.durable = {name: copied(inner) for name, inner in node.durable.items()}
            return folder

        def copied_folder(folder: Folder) -> Folder:
            twin_folder = copied(folder)
            assert isinstance(twin_folder, Folder)
            return twin_folder

        twin.root = copied_folder(self.root)
        twin._pending = [
            tuple((copied_folder(folder), name, node and copied(node)) for folder, name, node in change)
            for change in self._pending
        ]
        twin.has_new_modes = self.has_new_modes
        twin.boot, twin.can_reflink, twin.shelf = self.boot, self.can_reflink, dict(self.shelf)
        return twin

    # -- looking without steps -------------------------------------------------------------

    def node_at(self, path: str) -> Node | None:
        node: Node = self.root
        for name in parts_of(path):
            if not isinstance(node, Folder) or name not in node.entries:
                return None
            node = node.entries[name]
        return node

    def files(self, path: str = "/") -> Iterator[tuple[str, File]]:
        """Every file below a folder, with its path."""
        node = self.node_at(path)
        if isinstance(node, File):
            yield path, node
        elif node is not None:
            for name in sorted(node.entries):
                yield from self.files(f"{path.rstrip('/')}/{name}")

    def keep_modes(self) -> None:
        if self.has_new_modes:
            self.has_new_modes = False
            for node in self._every_node():
                node.durable_mode = node.mode

    # -- inside ----------------------------------------------------------------------------

    def _free_bytes(self) -> int:
        if self.capacity_bytes >= AMPLE_BYTES:
            return self.capacity_bytes
        return self.capacity_bytes - sum(len(file.content) for _, file in self.files())

    def _change(self, *edits: tuple[Folder, str, Node | None]) -> None:
        for folder, name, node in edits:
            put(folder.entries, name, node)
        self._pending.append(edits)

    def _keep_names_of(self, folder: Folder) -> None:
        """Sync one folder: its changes, and what has to come before those."""
        touched = {id(folder)}
        kept: list[Change] = []
        rest: list[Change] = []
        for change in reversed(self._pending):
            if any(id(edited) in touched for edited, _, _ in change):
                touched.update(id(edited) for edited, _, _ in change)
                kept.append(change)
            else:
                rest.append(change)
        for change in reversed(kept):
            for edited, name, node in change:
                put(edited.durable, name, node)
        self._pending = rest[::-1]

    def _survivors(self, names: str, random: Random) -> list[Change]:
        if names in ("none", "all"):
            return self._pending if names == "all" else []
        cut: set[int] = set()
        survivors = []
        for change in self._pending:
            folders = {id(folder) for folder, _, _ in change}
            if cut & folders or random.randrange(3) == 0:
                cut |= folders
            else:
                survivors.append(change)
        return survivors

    def _every_node(self, *, is_durable: bool = False) -> list[Node]:
        found: dict[int, Node] = {}
        waiting: list[Node] = [self.root]
        while waiting:
            node = waiting.pop()
            if id(node) not in found:
                found[id(node)] = node
                if isinstance(node, Folder):
                    waiting.extend((node.durable if is_durable else node.entries).values())
        return list(found.values())

    def _parent(self, path: str) -> tuple[Folder, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder or "/"), name

    def _node(self, path: str) -> Node:
        above: Node = self.root
        for name in parts_of(path):
            if isinstance(above, File):
                raise error(errno.ENOTDIR, path)
            if name not in above.entries:
                raise error(errno.ENOENT, path)
            above = above.entries[name]
        return above

    def _folder(self, path: str) -> Folder:
        node = self._node(path)
        if isinstance(node, File):
            raise error(errno.ENOTDIR, path)
        return node

    def _file(self, path: str) -> File:
        node = self._node(path)
        if isinstance(node, Folder):
            raise error(errno.EISDIR, path)
        return node
