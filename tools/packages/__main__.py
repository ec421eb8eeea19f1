"""`python -m tools.packages`: Debian packages, an RPM and the archive of the release, in build/packages."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import outrider
from tools.packages import debian, rpm, tree, wheels
from tools.packages.debian import DebianPackage

OF_BUNDLE = (
    "embedded-library",
    "shared-library-is-executable",
    "shell-script-fails-syntax-check",
    "unstripped-binary-or-object",
    "unusual-interpreter",
    "wrong-path-for-interpreter",
)
"""What lintian says of the environment: others' wheels are in it to the byte as their projects made them, and
programs name its own interpreter."""
HEAD = DebianPackage(
    name="outrider",
    summary="advance reservations with their images on the nodes in time",
    words="The service outriderd, which promises nodes of a Slurm or Grid Engine cluster\n"
    "together with the image that a job needs on them, and the commands of its\n"
    "users and administrators. Libraries that Debian has too old are included.",
    depends="libc6 (>= 2.28), python3 (>= 3.11), python3 (<< 3.14), systemd | systemd-standalone-sysusers",
    recommends="munge, openssh-client, qemu-utils, bash-completion",
    architecture="amd64",
    service="outriderd",
    state="/var/lib/outrider",
    overrides=tuple(f"outrider: {tag} *" for tag in OF_BUNDLE),
)
NODE = DebianPackage(
    name="outrider-node",
    summary="pool of images on a node of a cluster",
    words="The daemon cachemgr keeps images of machines and containers on a node, within\n"
    "a limit, and gives each job a copy of its own in milliseconds. It is what\n"
    '"outrider nodes deploy" brings to a node, for sites that install packages.',
    depends="python3 (>= 3.9), systemd | systemd-standalone-sysusers",
    recommends="qemu-utils",
    service="cachemgr",
    state="/var/cache/outrider",
)
GRIDENGINE = DebianPackage(
    name="outrider-gridengine",
    summary="hooks and submit filter of Outrider for Grid Engine",
    words='The files that "outrider init gridengine" distributes, for sites that do so\n'
    "themselves: the JSV, the hooks of nodes, and the source of their guard.",
    depends="python3 (>= 3.9)",
    recommends="outrider-node",
)


def lacking(*, with_rpm: bool) -> list[str]:
    """Debian's packages that make ours, and that this machine does not have."""
    programs = {"dpkg-deb": "dpkg", "cc": "gcc", **({"rpmbuild": "rpm"} if with_rpm else {})}
    found = [package for program, package in programs.items() if shutil.which(program) is None]
    if not Path("/usr/include/slurm/spank.h").exists():
        found.append("libslurm-dev")
    return found


def slurm_package() -> DebianPackage:
    """A plugin is for the Slurm that it was compiled with."""
    said = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Version}", "libslurm-dev"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    year, month = said.stdout.replace("-", ".").split(".")[:2]
    return DebianPackage(
        name="outrider-slurm",
        summary="option --workspace of srun, sbatch and salloc",
        words="Slurm's commands learn the option --workspace=NAME, by which a job names a\n"
        "reservation of Outrider's or an image, from this plugin in plugstack.conf.",
        depends=f"slurm-client (>= {year}.{month}), slurm-client (<< {year}.{month}.99), libc6",
        architecture="amd64",
        # Slurm's own program has what it calls.
        overrides=("outrider-slurm: shared-library-lacks-prerequisites *",),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", default="", help="another version than that of the sources")
    parser.add_argument("--without-rpm", action="store_true")
    options = parser.parse_args()
    if missing := lacking(with_rpm=not options.without_rpm):
        print(f"packages need {', '.join(missing)}: apt install {' '.join(missing)}", file=sys.stderr)
        return 1
    target = tree.ROOT / "build/packages"
    version = debian_version(options.version or outrider.__version__)
    epoch_s = commit_s()
    # The same sources make the same wheel, and so the same hash.
    os.environ["SOURCE_DATE_EPOCH"] = str(epoch_s)
    kept = wheels.fetched(tree.ROOT, target / "wheels")
    makers: list[tuple[DebianPackage, Callable[[Path], None]]] = [
        (HEAD, lambda root: tree.head(root, kept)),
        (NODE, tree.node),
        (slurm_package(), tree.slurm),
        (GRIDENGINE, tree.gridengine),
    ]
    for package, make in makers:
        root = target / "tree" / package.name
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        make(root)
        print(debian.built(package, root, version, epoch_s, target))
    archive = target / f"outrider-{version}-wheels.tar"
    with tarfile.open(archive, "w") as tar:
        for path in (*sorted(kept.glob("*.whl")), kept / "requirements.txt"):
            tar.add(path, f"outrider-{version}/{path.name}")
    print(archive)
    if not options.without_rpm:
        print(rpm.built(target, kept, version, epoch_s))
    return 0


def debian_version(version: str) -> str:
    """0.1.0.dev0 comes before 0.1.0."""
    for kind in ("dev", "rc", "a", "b"):
        before, is_there, number = version.partition(kind)
        if is_there:
            return f"{before.rstrip('.')}~{kind}{number}"
    return version


def commit_s() -> int:
    said = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=tree.ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    return int(said.stdout)


if __name__ == "__main__":
    raise SystemExit(main())
