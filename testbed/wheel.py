"""A wheel of these sources, and a fresh environment that has it: what is tried is what gets installed.

In a checkout everything is found where it lies, so that a file which the wheel lacks is missed by
administrators alone. The environment takes its dependencies from the one that makes it. Programs of the
testbed, which is in no wheel, are linked into it; run them with PYTHONSAFEPATH=1, as `python -m` would
look into the current folder first: python -m testbed.wheel FOLDER
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SOURCES = (
    "setup.cfg", "pyproject.toml", "README.md", "LICENSE", "outrider", "outrider_client", "cachemgr",
    "prolog", "epilog", "plugins",
)  # fmt: skip
CLIENT = "outrider_client"
LINKED = ("testbed", "tools")
BUILD_S, INSTALL_S = 300, 120


class WheelError(Exception):
    """No wheel or no environment can be made; the message quotes pip."""


def built(folder: Path, sources: Path = REPOSITORY) -> Path:
    """The wheel, in that folder. It is made from a copy, so that nothing is left beside the sources."""
    with tempfile.TemporaryDirectory(prefix="outrider-wheel-") as copy:
        for name in SOURCES:
            source = sources / name
            if source.is_dir():
                shutil.copytree(source, Path(copy, name), ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(source, copy)
        _run(["pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), copy], BUILD_S)
    return next(folder.glob("outrider-*.whl"))


def client(folder: Path) -> Path:
    """The client's own wheel, in that folder."""
    with tempfile.TemporaryDirectory(prefix="outrider-wheel-") as copy:
        package = Path(copy, CLIENT)
        shutil.copytree(REPOSITORY / CLIENT, package, ignore=shutil.ignore_patterns("__pycache__"))
        _run(["pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(package)], BUILD_S)
    return next(folder.glob("outrider_client-*.whl"))


def built_of(revision: str, folder: Path) -> Path | None:
    """The wheel of another revision of this repository, in that folder; None if the clone has it not."""
    with tempfile.TemporaryDirectory(prefix="outrider-revision-") as sources:
        words = ["git", "-C", str(REPOSITORY), "archive", "--format=tar", revision, "--", *SOURCES]
        made = subprocess.run(words, capture_output=True, timeout=BUILD_S, check=False)
        if made.returncode != 0:
            return None
        argv = ["tar", "--extract", "--directory", sources]
        subprocess.run(argv, input=made.stdout, timeout=BUILD_S, check=True)
        return built(folder, Path(sources))


def environment(folder: Path, given: Path | None = None) -> Path:
    """An environment with a wheel in it, one of these sources if none is given; its folder."""
    with tempfile.TemporaryDirectory(prefix="outrider-wheel-") as made:
        wheel = given or built(Path(made))
        _run(["venv", "--clear", "--without-pip", str(folder)], INSTALL_S)
        python = str(folder / "bin" / "python")
        words = ["--quiet", "install", "--no-deps", "--no-index", "--no-warn-script-location", str(wheel)]
        _run(["pip", "--python", python, *words], INSTALL_S)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder)}))
    # A path alone: what is installed there in editable form is not seen by it.
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    for name in LINKED:
        (packages / name).symlink_to(REPOSITORY / name)
    return folder


def _run(words: list[str], most_s: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, timeout=most_s, check=False
    )
    if done.returncode != 0:
        raise WheelError(f"{' '.join(words[:2])} ended with {done.returncode}: {done.stderr.strip()}")


if __name__ == "__main__":
    environment(Path(sys.argv[1]).resolve())
