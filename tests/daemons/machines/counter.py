"""The smallest guest: a boot sector that counts, in memory and on its disk, and complains if the two differ.

Each count is written to the sector of that number, which must be empty, after the one before was read and
found right; then it is said on the serial port. So a count that comes twice, one that is left out, and a
disk that does not belong to the memory are each found by the guest itself, as well as in what it says.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

DISK_BYTES = 64 << 20
SOURCE = r"""
    .code16
    .globl _start
_start:
    xor %ax, %ax
    mov %ax, %ds
    mov %ax, %es
    mov %ax, %ss
    mov $0x7c00, %sp
    mov %dl, drive
next:
    incl count
    mov count, %eax
    call read
    cmpl $0, 0x8000
    jne bad
    mov count, %eax
    dec %eax
    jz write
    call read
    mov count, %eax
    dec %eax
    cmp %eax, 0x8000
    jne bad
write:
    mov count, %eax
    mov %eax, lba
    mov %eax, 0x8000
    mov $0x4300, %ax
    call disk
    mov count, %ebx
    mov $8, %cx
1:  rol $4, %ebx
    mov %bl, %al
    and $15, %al
    cmp $10, %al
    jb 2f
    add $39, %al
2:  add $48, %al
    call put
    loop 1b
    mov $10, %al
    call put
    mov $200000, %ecx
3:  dec %ecx
    jnz 3b
    jmp next
read:
    mov %eax, lba
    mov $0x4200, %ax
disk:
    mov $packet, %si
    mov drive, %dl
    int $0x13
    jc bad
    ret
put:
    push %ax
    mov $0x3fd, %dx
4:  in %dx, %al
    test $0x20, %al
    jz 4b
    pop %ax
    mov $0x3f8, %dx
    out %al, %dx
    ret
bad:
    mov $66, %al
    call put
    mov $10, %al
    call put
5:  hlt
    jmp 5b
    .align 4
count:
    .long 0
packet:
    .byte 16, 0, 1, 0
    .word 0x8000, 0
lba:
    .quad 0
drive:
    .byte 0
    .org 510
    .word 0xaa55
"""
BAD = "B"


def assembled(source: str, folder: Path) -> bytes:
    """Machine code of a boot sector."""
    text, thing, binary = folder / "sector.S", folder / "sector.o", folder / "sector.bin"
    text.write_text(source)
    subprocess.run(["as", "--32", str(text), "-o", str(thing)], check=True, timeout=240)
    subprocess.run(
        ["ld", "-m", "elf_i386", "-Ttext", "0x7c00", "--oformat", "binary", str(thing), "-o", str(binary)],
        check=True,
        timeout=240,
    )
    return binary.read_bytes()


def make_disk(path: Path, folder: Path) -> None:
    """A disk of zeros that boots into the counter."""
    with path.open("wb") as file:
        file.write(assembled(SOURCE, folder))
        file.truncate(DISK_BYTES)


def counts(text: str) -> list[int]:
    """What a guest has counted, in its order; the firmware's words are left out. Fails if it complains."""
    lines = [line.strip() for line in text.split("\n")[:-1]]
    assert BAD not in lines, "the guest found that its memory and its disk do not belong together"
    return [int(line, 16) for line in lines if len(line) == 8 and set(line) <= set("0123456789abcdef")]
