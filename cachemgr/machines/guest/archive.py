"""A working folder on its way into a guest and back: a tar archive that no guest is trusted with.

Whoever owns the guest can put any name into the archive that comes out. It is unpacked with the
user's rights, but into the working folder alone: no name leads out of it, and no link is followed.
"""

from __future__ import annotations

import os
import stat
import tarfile
from contextlib import closing, suppress

from cachemgr.base.errors import Unsuitable, WrongBytes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from cachemgr.base.disk import Disk, Handle

CHUNK_BYTES = 1 << 20
MOST_MEMBERS = 1_000_000
MOST_WORK_BYTES = 4 << 30
MOST_NAME = 4096
BESIDE = ".outrider-new"
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def pack(disk: Disk, source: str, path: str, *, but: str, left_out: Collection[str] = ()) -> None:
    """What is in a folder, as one archive; synced. What no archive can hold is refused by its name."""
    if os.path.commonpath([os.path.realpath(source), os.path.realpath(but)]) == os.path.realpath(source):
        raise Unsuitable(f"the machine's folder {but} is in the working folder {source}: name another one")
    with suppress(FileNotFoundError):
        disk.remove(path)
    with closing(disk.create(path, 0o600)) as handle:
        # GNU's form, which every tar reads, busybox' too.
        with tarfile.open(fileobj=_Written(handle), mode="w|", format=tarfile.GNU_FORMAT) as archive:  # type: ignore[call-overload]
            archive.add(source, arcname=".", filter=_Chosen(left_out))
        handle.sync()


class _Chosen:
    """Which files go into a guest, and that they can."""

    def __init__(self, left_out: Collection[str]) -> None:
        self._left_out = frozenset(left_out)
        self._left_bytes = MOST_WORK_BYTES

    def __call__(self, member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if "/".join(part for part in member.name.split("/") if part != ".") in self._left_out:
            return None
        self._left_bytes -= member.size
        if self._left_bytes < 0:
            raise Unsuitable(
                f"the working folder has more than {MOST_WORK_BYTES >> 30} GiB, and all of it is copied "
                "into the guest: submit from a folder with what the job needs"
            )
        return _checked(member)


def _checked(member: tarfile.TarInfo) -> tarfile.TarInfo:
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise Unsuitable(
            f"{member.name} in the working folder is neither a file nor a folder nor a link: it cannot "
            "be copied into a guest"
        )
    return member


class _Written:
    """A file of the seam as `tarfile` wants one."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._at = 0

    def write(self, data: bytes) -> int:
        self._handle.write_at(self._at, data)
        self._at += len(data)
        return len(data)


def unpack(path: str, target: str, left_out: Collection[str] = (), given: str = "") -> int:
    """Put what came out of a guest into a folder that is there; how many files. Nothing there is deleted."""
    before = _members(given) if given else {}
    root_fd = os.open(target, FOLDER_FLAGS)
    modes: list[tuple[list[str], int]] = []
    count = 0
    try:
        with tarfile.open(path, mode="r|") as archive:
            for member in archive:
                count += 1
                if count > MOST_MEMBERS:
                    raise Unsuitable(
                        f"{path} has more than {MOST_MEMBERS} files: copy out an archive of them"
                    )
                parts = _parts(member.name)
                if member.isdir():
                    os.close(_folder(root_fd, parts))
                    modes.append((parts, member.mode))
                elif parts and "/".join(parts) not in left_out and _kind(member) != before.get(tuple(parts)):
                    _place(archive, member, root_fd, parts)
        for parts, mode in reversed(modes):
            # At last, since a folder may have been read-only in the guest.
            folder_fd = _folder(root_fd, parts)
            with closing(_Closing(folder_fd)):
                os.fchmod(folder_fd, (mode & 0o777) | 0o700)
    except (tarfile.TarError, EOFError) as error:
        raise WrongBytes(f"what came out of the guest, {path}, is not a whole archive: {error}") from error
    finally:
        os.close(root_fd)
    return count


def _members(path: str) -> dict[tuple[str, ...], tuple[object, ...]]:
    """What went into the guest: what comes out just so is not put over what others have made of it since."""
    with tarfile.open(path, mode="r|") as archive:
        return {tuple(_parts(member.name)): _kind(member) for member in archive if not member.isdir()}


def _kind(member: tarfile.TarInfo) -> tuple[object, ...]:
    return (member.type, member.size, int(member.mtime), member.mode & 0o777, member.linkname)


class _Closing:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def close(self) -> None:
        os.close(self._fd)


def _parts(name: str) -> list[str]:
    if name.startswith("/") or "\0" in name or len(name) > MOST_NAME:
        raise Unsuitable(f"the guest's archive names {name[:80]!r}, which is not in the working folder")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise Unsuitable(f"the guest's archive names {name[:80]!r}, which leads out of the working folder")
    return parts


def _folder(root_fd: int, parts: list[str]) -> int:
    """A descriptor of a folder below, made if it is missing, with no link on the way."""
    found = os.dup(root_fd)
    for part in parts:
        with suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=found)
        try:
            below = os.open(part, FOLDER_FLAGS, dir_fd=found)
        except OSError as error:
            raise Unsuitable(
                f"{'/'.join(parts)[:200]!r} cannot be copied out: {part[:80]!r} is a link or a file there"
            ) from error
        finally:
            os.close(found)
        found = below
    return found


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, root_fd: int, parts: list[str]) -> None:
    """A file or link beside its name, then in its place: what is there is never written to."""
    name, beside = parts[-1], f".{parts[-1][:200]}{BESIDE}"
    folder_fd = _folder(root_fd, parts[:-1])
    with closing(_Closing(folder_fd)):
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder_fd)
        if member.issym():
            os.symlink(member.linkname, beside, dir_fd=folder_fd)
        elif member.islnk():
            _link(member, root_fd, folder_fd, beside)
        elif member.isreg() and not member.issparse():
            _write(archive, member, folder_fd, beside)
        else:
            raise Unsuitable(
                f"{member.name[:200]!r} cannot be copied out: it is neither a plain file nor a link"
            )
        try:
            os.rename(beside, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
        except IsADirectoryError as error:
            os.unlink(beside, dir_fd=folder_fd)
            raise Unsuitable(
                f"{member.name[:200]!r} cannot be copied out: a folder has that name there"
            ) from error


def _link(member: tarfile.TarInfo, root_fd: int, folder_fd: int, beside: str) -> None:
    parts = _parts(member.linkname)
    source_fd = _folder(root_fd, parts[:-1])
    with closing(_Closing(source_fd)):
        found = os.stat(parts[-1], dir_fd=source_fd, follow_symlinks=False)
        if not stat.S_ISREG(found.st_mode):
            raise Unsuitable(
                f"{member.name[:200]!r} cannot be copied out: it is another name of what is not a file"
            )
        os.link(parts[-1], beside, src_dir_fd=source_fd, dst_dir_fd=folder_fd, follow_symlinks=False)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, folder_fd: int, beside: str) -> None:
    source = archive.extractfile(member)
    assert source is not None
    fd = os.open(
        beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder_fd
    )
    with open(fd, "wb") as target:
        while True:
            data = source.read(CHUNK_BYTES)
            if not data:
                break
            target.write(data)
        target.flush()
        if os.fstat(fd).st_size != member.size:
            raise WrongBytes(f"{member.name[:200]!r} came out of the guest with an end missing")
        # No set-user-ID: the mode is a guest's word.
        os.fchmod(fd, member.mode & 0o777)
        os.utime(fd, (member.mtime, member.mtime))
