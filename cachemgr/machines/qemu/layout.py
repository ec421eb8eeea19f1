"""What a file with a machine's state looks like: QEMU's words, then memory, then which memory that is.

    0             what QEMU says of the machine's devices; with all memory, if QEMU keeps that to itself
    whole pieces  the blocks of memory that hold anything, one after the other
    behind them   a bit for each block of memory, the lowest bit of the first byte for the first: is it here
    the end       magic, bytes of QEMU's words, bytes of memory

Nothing of it is left out as a hole, so it is copied and counted like any other file.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from cachemgr.machines.qemu.memory import BLOCK_BYTES
from cachemgr.machines.qemu.pieces import PIECE_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Ranges = list[tuple[int, int]]

END = struct.Struct("<16sQQ")
MAGIC = b"outrider-state-2"
BLOCKS_OF_A_PIECE = PIECE_BYTES // BLOCK_BYTES


@dataclass(frozen=True)
class StateLayout:
    """Where what is in such a file."""

    device_bytes: int
    memory_bytes: int
    """0 if it is among QEMU's words."""
    bits: bytes

    @property
    def start(self) -> int:
        return memory_start(self.device_bytes)

    @property
    def piece_count(self) -> int:
        """With memory in them, the last one perhaps with what stands behind it."""
        return -(-sum(1 for _ in self.blocks()) // BLOCKS_OF_A_PIECE)

    def blocks(self) -> Iterator[int]:
        for at, byte in enumerate(self.bits):
            if byte:
                for bit in range(8):
                    if byte >> bit & 1:
                        yield at * 8 + bit

    def encode(self) -> bytes:
        """What stands behind the memory."""
        return self.bits + END.pack(MAGIC, self.device_bytes, self.memory_bytes)


def memory_start(device_bytes: int) -> int:
    return device_bytes + -device_bytes % PIECE_BYTES


def bits_of(memory_bytes: int) -> bytearray:
    blocks = -(-memory_bytes // BLOCK_BYTES)
    return bytearray(-(-blocks // 8))


def noted(blocks: Iterable[int], bits: bytearray) -> Iterator[int]:
    """The same blocks, each with its bit set."""
    for block in blocks:
        bits[block // 8] |= 1 << block % 8
        yield block


def laid_out(start: int, blocks: Iterable[int]) -> Iterator[tuple[int, Ranges]]:
    """For each piece of the file, from where memory starts, the ranges of memory in it: place and length."""
    ranges: Ranges = []
    for count, block in enumerate(blocks, 1):
        at = block * BLOCK_BYTES
        if ranges and sum(ranges[-1]) == at:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + BLOCK_BYTES)
        else:
            ranges.append((at, BLOCK_BYTES))
        if count % BLOCKS_OF_A_PIECE == 0:
            yield start, ranges
            start, ranges = start + PIECE_BYTES, []
    if ranges:
        yield start, ranges


def read_layout(fd: int, size_bytes: int, memory_bytes: int) -> StateLayout | None:
    """That of a file of a machine with so much memory; None if it cannot be one.

    What it says is not compared with a digest yet, and leads to no place outside of file and memory.
    """
    if size_bytes < END.size:
        return None
    magic, device_bytes, there_bytes = END.unpack(os.pread(fd, END.size, size_bytes - END.size))
    bits = bits_of(there_bytes if there_bytes == memory_bytes else 0)
    at = size_bytes - END.size - len(bits)
    if magic != MAGIC or there_bytes not in (0, memory_bytes) or not 0 < device_bytes <= at:
        return None
    found = StateLayout(device_bytes, there_bytes, os.pread(fd, len(bits), at))
    count = sum(1 for _ in found.blocks())
    if there_bytes and found.start + count * BLOCK_BYTES != at:
        return None
    if found.bits and max(found.blocks(), default=0) * BLOCK_BYTES >= memory_bytes:
        return None
    return found
