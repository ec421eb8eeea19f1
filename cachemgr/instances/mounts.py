"""Mounts of instances: values that anybody may write, and root's part, which trusts none of them.

The service user cannot mount. It hands root a list of values; root walks to each path from
its own idea of where the pool lies, without following a symbolic link, and mounts what it
has in its hand rather than what a name may by then mean. What may be mounted where is a
closed set: an image of the pool below an instance of the same pool, never with device files
or set-user-id programs.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import ExitStack
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest, CacheError, DiskFailed, InUse, NotAllowed, Unsuitable
from cachemgr.instances import kernel
from cachemgr.instances.walk import entered, held, opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cachemgr.instances.kernel import Mounter, MountPoint

KINDS = ("bind", "overlay", "squashfs")
OPTIONS = {"ro": kernel.RDONLY, "nosuid": kernel.NOSUID, "nodev": kernel.NODEV, "noexec": kernel.NOEXEC}
# What every mount of the kind must have at least.
REQUIRED = {
    "bind": ("ro", "nosuid", "nodev"),
    "overlay": ("nosuid", "nodev"),
    "squashfs": ("ro", "nosuid", "nodev"),
}
# The file, or the top of the tree, that a job gets; and the squashfs below its overlay.
DISK, TREE, LOWER = "disk", "root", "lower"
TARGETS = {"bind": (DISK, TREE), "overlay": (TREE,), "squashfs": (LOWER, TREE)}
IMAGE = re.compile(r"images/[0-9a-f]{64}/data")
INSTANCE = re.compile(r"instances/[0-9a-f]{32}")
MOST_MOUNTS = 4


@dataclass(frozen=True)
class Mount:
    """One mount below an instance's folder. An overlay's source is its lower folder."""

    kind: str
    source: str
    target: str
    options: tuple[str, ...]

    def encode(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "source": self.source,
            "target": self.target,
            "options": list(self.options),
        }


def decode_mounts(plain: object) -> list[Mount]:
    """The mounts in a message: every field of the type it must have, and no other."""
    if not isinstance(plain, list) or len(plain) > MOST_MOUNTS:
        raise BadRequest(f"mounts are a list of at most {MOST_MOUNTS}")
    found = []
    for each in plain:
        if not isinstance(each, dict) or sorted(each) != ["kind", "options", "source", "target"]:
            raise BadRequest("a mount has kind, source, target and options, and nothing else")
        options = each["options"]
        texts = [
            each["kind"],
            each["source"],
            each["target"],
            *(options if isinstance(options, list) else [None]),
        ]
        if not all(isinstance(text, str) and len(text) <= 4096 for text in texts):
            raise BadRequest("a mount's kind, source and target are texts, its options a list of texts")
        found.append(Mount(texts[0], texts[1], texts[2], tuple(texts[3:])))
    return found


def carry_out(
    mounts: Sequence[Mount], *, pool: str, mounter: Mounter, allowed_kinds: Sequence[str] = KINDS
) -> None:
    """As root: mount all of them, or none. What is already mounted as asked stays as it is.

    `pool` and `allowed_kinds` come from root's own configuration. A site that does not want
    its kernel to read file systems which users wrote leaves `squashfs` out.
    """
    if len(mounts) > MOST_MOUNTS:
        raise BadRequest(f"an instance has at most {MOST_MOUNTS} mounts, not {len(mounts)}")
    checked = [_checked(mount, pool, allowed_kinds) for mount in mounts]
    done: list[_Checked] = []
    try:
        for each in checked:
            if _carry_out(each, pool, mounter):
                done.append(each)
    except BaseException:
        for each in reversed(done):
            with opened(f"{pool}/{each.parent}", is_folder=True) as parent_fd:
                mounter.unmount(f"/proc/self/fd/{parent_fd}/{each.name}", is_lazy=True)
        raise


@dataclass(frozen=True)
class _Checked:
    """A mount whose paths are relative to the pool and of the closed set."""

    kind: str
    source: str
    parent: str
    name: str
    flags: int


def _checked(mount: Mount, pool: str, allowed_kinds: Sequence[str]) -> _Checked:
    if mount.kind not in KINDS or mount.kind not in allowed_kinds:
        raise NotAllowed(
            f"a mount of kind {mount.kind!r} is not allowed here: allowed are {', '.join(allowed_kinds)}"
        )
    unknown = [option for option in mount.options if option not in OPTIONS]
    missing = [option for option in REQUIRED[mount.kind] if option not in mount.options]
    if unknown or missing:
        raise NotAllowed(
            f"a {mount.kind} mount needs {','.join(REQUIRED[mount.kind])} and may have {','.join(OPTIONS)}, "
            f"not {','.join(mount.options)}"
        )
    if mount.kind == "overlay" and "ro" in mount.options:
        raise NotAllowed("an overlay that nobody may write is a squashfs or bind mount: ask for that")
    target, source = _below(pool, mount.target), _below(pool, mount.source)
    parent, _, name = target.rpartition("/")
    if not INSTANCE.fullmatch(parent) or name not in TARGETS[mount.kind]:
        raise NotAllowed(
            f"{mount.target} is not a place for a {mount.kind} mount: only in an instance of {pool}"
        )
    is_own_lower = mount.kind == "overlay" and source == f"{parent}/{LOWER}"
    if not IMAGE.fullmatch(source) and not is_own_lower:
        raise NotAllowed(f"{mount.source} cannot be mounted: only images of {pool}")
    flags = 0
    for option in mount.options:
        flags |= OPTIONS[option]
    return _Checked(mount.kind, source, parent, name, flags)


def _below(pool: str, path: str) -> str:
    if not path.startswith(f"{pool}/"):
        raise NotAllowed(f"{path} does not lie in the pool {pool}")
    return path[len(pool) + 1 :]


def _carry_out(mount: _Checked, pool: str, mounter: Mounter) -> bool:
    """Mount it; False if it already was."""
    with ExitStack() as stack:
        is_folder = None if mount.kind == "bind" else mount.kind == "overlay"
        source_fd = stack.enter_context(opened(f"{pool}/{mount.source}", is_folder=is_folder))
        parent_fd = stack.enter_context(opened(f"{pool}/{mount.parent}", is_folder=True))
        is_folder = mount.kind != "bind" or stat.S_ISDIR(os.fstat(source_fd).st_mode)
        target_fd = stack.enter_context(entered(parent_fd, mount.name, is_folder=is_folder))
        here = _mount_of(target_fd, parent_fd, mounter)
        if here is not None:
            _check_same(mount, here, source_fd, target_fd)
        else:
            try:
                _mount(mount, source_fd, target_fd, stack, pool, mounter)
            except OSError as error:
                raise _explained(mount, error) from error
        if mount.kind == "bind":
            _restrict(mount, parent_fd, is_folder, mounter)
        return here is None


def _mount(
    mount: _Checked, source_fd: int, target_fd: int, stack: ExitStack, pool: str, mounter: Mounter
) -> None:
    target = held(target_fd)
    if mount.kind == "bind":
        mounter.mount(held(source_fd), target, "none", kernel.BIND, "")
        return
    if mount.kind == "squashfs":
        image_fd = os.open(held(source_fd), os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, image_fd)
        device, device_fd = mounter.attach_loop(image_fd)
        stack.callback(os.close, device_fd)
        mounter.mount(device, target, "squashfs", mount.flags, "")
        return
    if mount.source.startswith("instances/"):
        parent_fd = stack.enter_context(opened(f"{pool}/{mount.parent}", is_folder=True))
        if _mount_of(source_fd, parent_fd, mounter) is None:
            raise BadRequest(f"{pool}/{mount.source} is empty: mount the image there first")
    upper_fd = stack.enter_context(opened(f"{pool}/{mount.parent}/overlay/upper", is_folder=True))
    work_fd = stack.enter_context(opened(f"{pool}/{mount.parent}/overlay/work", is_folder=True))
    data = f"lowerdir={held(source_fd)},upperdir={held(upper_fd)},workdir={held(work_fd)}"
    _mount_overlay(target, mount.flags, data, mounter)


def _mount_overlay(target: str, flags: int, data: str, mounter: Mounter) -> None:
    """Without the promise to survive a power cut, which no instance gives.

    Otherwise unmounting writes out whatever the file system has, an arriving image included:
    a job's end would wait seconds for it. Kernels before 5.10 do not know the option.
    """
    try:
        mounter.mount("outrider", target, "overlay", flags, f"{data},volatile")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        mounter.mount("outrider", target, "overlay", flags, data)


def _restrict(mount: _Checked, parent_fd: int, is_folder: bool, mounter: Mounter) -> None:
    """A bind mount begins with the options of what it shows; the second step takes rights away.

    The name is opened anew, since what was held before lies under the mount now. If the
    process died between the steps, the next call comes here again.
    """
    with entered(parent_fd, mount.name, is_folder=is_folder) as mounted_fd:
        mounter.mount("none", held(mounted_fd), "none", kernel.REMOUNT | kernel.BIND | mount.flags, "")


def _check_same(mount: _Checked, here: MountPoint, source_fd: int, target_fd: int) -> None:
    if mount.kind == "bind":
        source, target = os.fstat(source_fd), os.fstat(target_fd)
        is_same = (source.st_dev, source.st_ino) == (target.st_dev, target.st_ino)
    else:
        wanted = {name for name, flag in OPTIONS.items() if mount.flags & flag}
        is_same = here.kind == mount.kind and wanted <= set(here.options)
    if not is_same:
        raise InUse(f"{here.path} already shows something else: remove the instance first")


def _mount_of(fd: int, parent_fd: int, mounter: Mounter) -> MountPoint | None:
    """The mount whose root this is; None if it is a plain part of the folder around it."""
    key = _mount_key(fd)
    if key == _mount_key(parent_fd):
        return None
    return next((each for each in mounter.table() if each.key == key), None)


def _mount_key(fd: int) -> int:
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        for line in file:
            name, _, value = line.partition(":")
            if name == "mnt_id":
                return int(value)
    raise Unsuitable("the kernel does not say which mount a file is in: Linux 3.15 or later is needed")


def _explained(mount: _Checked, error: OSError) -> CacheError:
    what = f"mounting {mount.source} ({mount.kind}) on {mount.parent}/{mount.name} failed"
    if error.errno in (errno.EPERM, errno.EACCES):
        return NotAllowed(f"{what}: only root may mount; let root's daemon or helper do it")
    if error.errno == errno.ENODEV:
        return Unsuitable(
            f"{what}: the kernel has no {mount.kind} file system; load its module or ask for a copy"
        )
    if error.errno == errno.EINVAL:
        return Unsuitable(
            f"{what}: the image is damaged, the pool's file system cannot carry it, or an earlier overlay "
            "there was lost; remove the instance and make it again, or look at the kernel's log"
        )
    return DiskFailed(f"{what}: {error.strerror}")
