"""Packs `cachemgr` into one file that runs on a node: a zipapp whose bytes depend on its sources alone.

The same sources give the same bytes on every machine and day: entries are sorted, their
dates fixed, and nothing is compressed, because another zlib would compress differently.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import zipfile
from pathlib import Path

import cachemgr

PACKAGE = Path(cachemgr.__file__).resolve().parent
# What a node's root runs takes nothing from the environment, from a user's site folder or
# from whatever an administrator installed: isolated, without site.
INTERPRETER = "/usr/bin/python3 -IS"
SUFFIXES = {".py", ".service", ".conf"}
DATE = (1980, 1, 1, 0, 0, 0)
COMPILE_S = 120
# Understood by every Python, so that one that is too old can be told so.
MAIN = """\
import sys

if sys.version_info < (3, 9):
    sys.stderr.write(
        "cachemgr: this is Python %d.%d, but Python 3.9 or later is needed: "
        "run it with that one, as in `/usr/bin/python3.9 -IS %s`\\n"
        % (sys.version_info[0], sys.version_info[1], sys.argv[0])
    )
    sys.exit(2)

from cachemgr.cli.main import run

run()
"""
# Runs in the node's Python: its own kind of bytecode, which is never compared with a date.
COMPILER = """\
import os, py_compile, sys
mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
for name in sys.argv[3:]:
    target = os.path.join(sys.argv[2], name + "c")
    py_compile.compile(os.path.join(sys.argv[1], name), target, name, True, invalidation_mode=mode)
"""


def pack(target: Path, interpreter: str = INTERPRETER, bytecode_of: str = "") -> None:
    """Write the file beside its name and rename it: a node that runs the old one is not disturbed."""
    found = sources()
    if bytecode_of:
        found.update(bytecode([name for name in found if name.startswith("cachemgr/")], bytecode_of))
    beside = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        with open(beside, "wb") as file:
            file.write(f"#!{interpreter}\n".encode())
            with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
                for name in sorted(found):
                    archive.writestr(_about(name), found[name])
        beside.chmod(0o755)
        os.replace(beside, target)
    finally:
        beside.unlink(missing_ok=True)


def sources() -> dict[str, bytes]:
    """Every file's content, by name."""
    found = {"__main__.py": MAIN.encode()}
    for path in PACKAGE.rglob("*"):
        if path.suffix in SUFFIXES and path.is_file():
            found[path.relative_to(PACKAGE.parent).as_posix()] = path.read_bytes()
    return found


def bytecode(names: list[str], interpreter: str) -> dict[str, bytes]:
    """What that Python makes of the sources; every other Python takes the sources instead."""
    names = sorted(name for name in names if name.endswith(".py"))
    with tempfile.TemporaryDirectory() as folder:
        command = [interpreter, "-IS", "-c", COMPILER, str(PACKAGE.parent), folder, *names]
        subprocess.run(command, check=True, timeout=COMPILE_S)
        return {f"{name}c": (Path(folder) / f"{name}c").read_bytes() for name in names}


def _about(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, DATE)
    info.create_system = 3
    info.external_attr = 0o644 << 16
    return info


def main() -> None:
    parser = argparse.ArgumentParser(description="Pack cachemgr into one file.")
    parser.add_argument("target", type=Path, nargs="?", default=Path("cachemgr.pyz"))
    parser.add_argument("--interpreter", default=INTERPRETER, help=f"its first line (default: {INTERPRETER})")
    parser.add_argument(
        "--bytecode-of", default="", metavar="PYTHON", help="add what it compiles: it starts faster then"
    )
    arguments = parser.parse_args()
    pack(arguments.target, arguments.interpreter, arguments.bytecode_of)
