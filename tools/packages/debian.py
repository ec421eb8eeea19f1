"""Debian packages of trees: what dpkg is told, what it runs, and what lintian is told on purpose."""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

TEMPLATES = Path(__file__).resolve().parents[2] / "packaging/debian"
MAINTAINER = "Outrider's developers <outrider@example.org>"
SCRIPTS = ("postinst", "prerm", "postrm")


@dataclass(frozen=True, kw_only=True, slots=True)
class DebianPackage:
    """One package, and what its scripts are about."""

    name: str
    summary: str
    words: str
    depends: str
    architecture: str = "all"
    recommends: str = ""
    service: str = ""
    """The unit that is restarted by an upgrade and stopped before a removal."""
    state: str = ""
    """Folders that a purge removes, with blanks between."""
    overrides: tuple[str, ...] = ()


def built(
    package: DebianPackage, tree: Path, version: str, epoch_s: int, target: Path, compression: str = "xz"
) -> Path:
    """The package as a file. The same tree makes the same bytes."""
    _documents(package, tree, version, epoch_s)
    control = tree / "DEBIAN"
    shutil.rmtree(control, ignore_errors=True)
    control.mkdir()
    (control / "control").write_text(_control(package, tree, version))
    (control / "md5sums").write_text(_sums(tree))
    if package.service:
        marks = {"@SERVICE@": package.service, "@STATE@": package.state, "@NAME@": package.name}
        for name in SCRIPTS:
            text = (TEMPLATES / name).read_text()
            for mark, word in marks.items():
                text = text.replace(mark, word)
            (control / name).write_text(text)
            (control / name).chmod(0o755)
    for path in [tree, *tree.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
    file = target / f"{package.name}_{version}_{package.architecture}.deb"
    command = ["dpkg-deb", "--root-owner-group", f"-Z{compression}", "--build", str(tree), str(file)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s)}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return file


def _control(package: DebianPackage, tree: Path, version: str) -> str:
    size_kib = sum(-(-each.stat().st_size // 1024) for each in tree.rglob("*") if each.is_file())
    words = "\n".join(f" {line}" if line else " ." for line in package.words.strip().splitlines())
    fields = [
        f"Package: {package.name}",
        f"Version: {version}",
        "Section: admin",
        "Priority: optional",
        f"Architecture: {package.architecture}",
        f"Maintainer: {MAINTAINER}",
        f"Installed-Size: {size_kib}",
        f"Depends: {package.depends}",
        *([f"Recommends: {package.recommends}"] if package.recommends else []),
        f"Description: {package.summary}",
        words,
    ]
    return "\n".join(fields) + "\n"


def _sums(tree: Path) -> str:
    files = [path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink()]
    return "".join(
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(tree)}\n"
        for path in files
        if path.relative_to(tree).parts[0] != "DEBIAN"
    )


def _documents(package: DebianPackage, tree: Path, version: str, epoch_s: int) -> None:
    """What the policy wants of each package: who may copy it, and what has changed."""
    place = tree / "usr/share/doc" / package.name
    place.mkdir(parents=True, exist_ok=True)
    (place / "copyright").write_text((TEMPLATES / "copyright").read_text())
    date = formatdate(epoch_s)
    entry = f"outrider ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md of the sources.\n\n"
    text = f"{entry} -- {MAINTAINER}  {date}\n"
    (place / "changelog.gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    if package.overrides:
        overrides = tree / "usr/share/lintian/overrides" / package.name
        overrides.parent.mkdir(parents=True, exist_ok=True)
        overrides.write_text("".join(f"{each}\n" for each in package.overrides))
