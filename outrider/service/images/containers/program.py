"""The program that makes one file of an image's layers: without rights, without a network, within limits.

It begins as the service, so that it can be read at all, and becomes the converting user before it looks
at a byte of the image. Layers come as open files, so that it has no path to anything but its own folder.
Its stdin has one line of JSON that says what to do; on stdout go lines of JSON: how far it has come, and
the end of it. When stdin ends it ends, with all that it has started: so it outlives no service.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from cachemgr.base.clock import SystemClock
from outrider.service.images.containers import sif
from outrider.service.images.containers.archive import Archive
from outrider.service.images.containers.bundle import enclose
from outrider.service.images.containers.faults import ConversionFault
from outrider.service.images.containers.settings import add_settings, read_settings
from outrider.service.images.containers.streaming import newest_s, unpacked_bytes, write_archive
from outrider.service.images.containers.tree import Tree

BLOCK = 1 << 20
PIECE = 1 << 18
TELL_S = 0.5
CLOCK = SystemClock()
MOST_WORDS = 500
CLONE_NEWNET, CLONE_NEWIPC = 0x40000000, 0x08000000
PR_SET_NO_NEW_PRIVS = 38
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConversionOrder:
    """What is to be made. `layers` are open files of the layers from below to above."""

    layers: Sequence[int]
    config: str
    format: str
    output: str
    identifier: str
    command: Sequence[str]
    most_bytes: int
    """Of all contents together, unpacked."""
    largest_bytes: int
    seconds: int
    ids: Sequence[int]


class Unpacked:
    """What a layer holds, unpacked as it is read, with its digest, and no more than a bounded amount."""

    def __init__(self, file: int, name: str, most_bytes: int, total: ConversionProgress) -> None:
        self._file = os.fdopen(os.dup(file), "rb", buffering=0)
        self._file.seek(0)
        self._name = name
        self._left = most_bytes
        self._total = total
        self._hash = hashlib.sha256()
        self._ready = bytearray()
        self._has_ended = False
        head = self._file.read(4)
        self._file.seek(0)
        self._zlib = zlib.decompressobj(31) if head.startswith(GZIP) else None
        self._program: subprocess.Popen[bytes] | None = None
        if head == ZSTD:
            self._program = self._zstd()

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def read(self, count: int, /) -> bytes:
        while len(self._ready) < count and not self._has_ended:
            data = self._more()
            if not data:
                self._has_ended = True
                break
            self._left -= len(data)
            if self._left < 0:
                raise ConversionFault(
                    f"{self._name} holds more than the image may ({self._total.most_bytes} bytes "
                    "unpacked): make "
                    "it smaller, or ask the administrators for conversions.largest"
                )
            self._hash.update(data)
            self._ready += data
            self._total.note(len(data))
        found = bytes(self._ready[:count])
        del self._ready[:count]
        return found

    def close(self) -> None:
        self._file.close()
        if self._program is not None:
            self._program.kill()
            self._program.wait()

    def _more(self) -> bytes:
        if self._program is not None:
            assert self._program.stdout is not None
            data = self._program.stdout.read(BLOCK)
            if not data and self._program.wait() != 0:
                raise ConversionFault(f"{self._name} is damaged: zstd cannot unpack it")
            return data
        if self._zlib is None:
            return self._file.read(BLOCK)
        try:
            return self._inflated()
        except zlib.error as error:
            raise ConversionFault(f"{self._name} is damaged: it cannot be unpacked ({error})") from error

    def _inflated(self) -> bytes:
        while True:
            assert self._zlib is not None
            given = self._zlib.unconsumed_tail or self._file.read(PIECE)
            if self._zlib.eof:
                given = self._zlib.unused_data or given
                if not given:
                    return b""
                self._zlib = zlib.decompressobj(31)
            elif not given:
                raise ConversionFault(f"{self._name} is damaged: it ends too early")
            # A few bytes may stand for gigabytes: no more than a block is unpacked at once.
            data = self._zlib.decompress(given, BLOCK)
            if data:
                return data

    def _zstd(self) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                ["zstd", "-dcq", "--memory=256MB"],
                stdin=self._file.fileno(),
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError as error:
            raise ConversionFault(
                f"{self._name} is packed with zstd, which is not installed on the head: ask the "
                "administrators "
                "for it, or push the image with gzip"
            ) from error


class ConversionProgress:
    """How far it has come, told now and then."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.step = "reading"
        self.read_bytes = 0
        self._told_s = 0.0

    def begin(self, step: str) -> None:
        self.step, self.read_bytes, self._told_s = step, 0, 0.0

    def note(self, count: int) -> None:
        self.read_bytes += count
        now_s = CLOCK.monotonic_s()
        if now_s - self._told_s >= TELL_S:
            self._told_s = now_s
            tell({"step": self.step, "bytes": self.read_bytes})


def main() -> int:
    order = ConversionOrder(**json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_holder, daemon=True).start()
    try:
        step_down(order)
        found = convert(order)
    except ConversionFault as fault:
        tell({"error": str(fault)})
        return 1
    except MemoryError:
        tell({"error": "the image takes more memory than its conversion may: make it smaller"})
        return 1
    tell({"done": found})
    return 0


def _end_with_holder() -> None:
    while os.read(0, 1):
        """Nobody writes any more; whoever could has not died."""
    os.killpg(0, signal.SIGKILL)


def step_down(order: ConversionOrder) -> None:
    """Become the converting user, without a network, and within limits."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.nice(5)
    if order.ids:
        # Where the kernel has no such names the user's own rights have to do.
        libc.unshare(CLONE_NEWNET | CLONE_NEWIPC)
        uid, gid = order.ids
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (order.largest_bytes, order.largest_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (order.seconds, order.seconds))


def convert(order: ConversionOrder) -> dict[str, object]:
    """Make the file. Raises ConversionFault; what is half made is for the caller to remove."""
    progress = ConversionProgress(order.most_bytes)
    settings = read_settings(order.config.encode())
    diffs = settings.diffs
    if len(diffs) != len(order.layers):
        raise ConversionFault(
            f"the image has {len(order.layers)} layers, and its configuration names {len(diffs)}: push it "
            "again"
        )
    tree = Tree()
    left = order.most_bytes
    for number, file in enumerate(order.layers):
        name = f"layer {number + 1}"
        layer = Unpacked(file, name, left, progress)
        try:
            before = progress.read_bytes
            tree.lay(number, Archive(layer, name))
            left -= progress.read_bytes - before
            if layer.digest != diffs[number]:
                raise ConversionFault(
                    f"{name} unpacks to {layer.digest}, and the image says {diffs[number]}: push it again"
                )
        finally:
            layer.close()
    add_settings(tree, settings, order.format)
    if order.format == "bundle":
        enclose(tree, settings)
    progress.begin("writing")
    _write(order, tree, progress)
    if order.format == "sif":
        _frame(order, settings.platform)
    return {"devices": tree.devices, "stripped": tree.stripped, "unpacked_bytes": unpacked_bytes(tree)}


def _write(order: ConversionOrder, tree: Tree, progress: ConversionProgress) -> None:
    """Give what is left to the program that makes a squashfs file."""
    offset = ["-offset", str(sif.IMAGE_AT)] if order.format == "sif" else []
    argv = [*order.command, *offset, order.output]
    opened: list[Unpacked] = []

    def layer(number: int) -> Unpacked:
        for each in opened:
            each.close()
        opened[:] = [Unpacked(order.layers[number], f"layer {number + 1}", order.most_bytes, progress)]
        return opened[0]

    complaints = f"{order.output}.log"
    # Later times become this one, the root's too, which the program would take from the clock.
    epoch_s = newest_s(tree)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s if epoch_s <= CLOCK.now_s() else 0)}
    with open(complaints, "wb") as log:
        try:
            maker = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment)
        except OSError as error:
            raise ConversionFault(f"{argv[0]} cannot be run on the head: {error.strerror}") from error
    assert maker.stdin is not None
    has_broken = False
    try:
        try:
            write_archive(tree, len(order.layers), layer, maker.stdin)
            maker.stdin.close()
        except BrokenPipeError:
            has_broken = True
        status = maker.wait()
    finally:
        maker.kill()
        maker.wait()
        for each in opened:
            each.close()
    if status != 0 or has_broken:
        with open(complaints, "rb") as said:
            words = " ".join(said.read(1 << 16).decode("utf-8", "replace").split())
        raise ConversionFault(
            f"{os.path.basename(argv[0])} made no image (status {status}): {words[-MOST_WORDS:]}"
        )


def _frame(order: ConversionOrder, platform: str) -> None:
    size_bytes = os.stat(order.output).st_size - sif.IMAGE_AT
    with open(order.output, "r+b") as file:
        file.write(sif.frame(size_bytes, platform.rpartition("/")[2], bytes.fromhex(order.identifier)))


def tell(words: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    # A thread still waits for stdin to end: Python would wait for it, or complain.
    os._exit(main())
