"""The wheels that a head needs, for each Python that it may have, and the list with their hashes."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.wheel import built

PYTHONS = ("3.11", "3.13")
"""Of Debian 12 and RHEL 9, and of Debian 13."""
EXTRAS = "service,deploy,postgresql"
PLATFORM = "manylinux_2_28_x86_64"
OLDER = ("manylinux_2_17_x86_64", "manylinux2014_x86_64")


def fetched(root: Path, folder: Path) -> Path:
    """Outrider's own wheel and all that it needs, in a folder with `requirements.txt`.

    Others' wheels are kept from one call to the next until what is needed changes; our own is made anew.
    """
    wanted = f"{(root / 'setup.cfg').read_text()}{PYTHONS}{EXTRAS}{PLATFORM}"
    stamp, needed = folder / ".needed", hashlib.sha256(wanted.encode()).hexdigest()
    is_there = stamp.exists() and stamp.read_text() == needed
    if not is_there:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("outrider-*.whl"):
        old.unlink()
    built(folder, root)
    if not is_there:
        _download(folder)
        stamp.write_text(needed)
    (folder / "requirements.txt").write_text(requirements(folder))
    return folder


def _download(folder: Path) -> None:
    own, first = next(folder.glob("outrider-*.whl")), ""
    for python in PYTHONS:
        platforms = [f"--platform={each}" for each in (PLATFORM, *OLDER)]
        asked = ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp", *platforms]
        # What one Python has decides the versions of all.
        pinned = ["--constraint", first] if first else []
        pip("download", *asked, *pinned, "--dest", str(folder), f"{own}[{EXTRAS}]")
        if not first:
            first = str(folder / "constraints.txt")
            Path(first).write_text("".join(f"{each}\n" for each in sorted(versions(folder))))
    (folder / "constraints.txt").unlink()


def versions(folder: Path) -> set[str]:
    """NAME==VERSION of each wheel but our own."""
    parts = [each.name.split("-") for each in folder.glob("*.whl")]
    return {f"{name}=={version}" for name, version, *_ in parts if name != "outrider"}


def requirements(folder: Path) -> str:
    """What `pip install --require-hashes -r` takes: each version once, with the hashes of its wheels."""
    found: dict[str, list[str]] = {}
    for wheel in sorted(folder.glob("*.whl")):
        name, version, *_ = wheel.name.split("-")
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        found.setdefault(f"{name}=={version}", []).append(f"    --hash=sha256:{digest}")
    head = "# pip install --no-index --find-links . --require-hashes -r requirements.txt\n"
    return head + "".join(f"{name} \\\n" + " \\\n".join(hashes) + "\n" for name, hashes in found.items())


def installed(wheels: Path, target: Path, python: str) -> None:
    """All of them for one Python, each with the hash that is written down."""
    platforms = [f"--platform={each}" for each in (PLATFORM, *OLDER)]
    of_python = (f"--python-version={python}", "--implementation=cp", "--only-binary=:all:", *platforms)
    from_here = ("--no-index", "--find-links", str(wheels), "--require-hashes", "--no-deps")
    listed = ("-r", str(wheels / "requirements.txt"))
    shutil.rmtree(target, ignore_errors=True)
    pip("install", "--no-compile", *from_here, *of_python, "--target", str(target), *listed)


def pip(*words: str) -> None:
    command: Sequence[str] = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True)
