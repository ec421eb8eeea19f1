"""What each package has: files as they lie on a machine, made in a folder."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from pathlib import Path

from tools.packages.wheels import PYTHONS, installed

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "outrider/service/daemon/units"
NODE_UNITS = ROOT / "cachemgr/daemon/units"
HEAD = "usr/lib/outrider/head"
"""The head's own environment: an interpreter of the system's, and libraries that Debian has too old."""
HEAD_PAGES = ("outrider.1", "outrider-policies.5", "outrider-workspace.5", "outriderd.8", "outriderd.yaml.5")
NODE_PAGES = ("cachemgr.8", "cachemgr.conf.5")
PROGRAMS = {"outrider": "outrider.cli.main", "outriderd": "outrider.service.daemon.main"}
_SCRIPT = """#!/{head}/bin/python3 -P
import sys

from {module} import run

sys.exit(run())
"""
_CONFIGURATION = """home = /usr/bin
include-system-site-packages = false
"""


def head(root: Path, wheels: Path, python: str = "python3") -> None:
    """The service and the commands."""
    libraries = folder(root, f"{HEAD}/lib/python3/site-packages")
    for version in PYTHONS:
        made = root.with_name(f"{root.name}-{version}")
        installed(wheels, made, version)
        _merged(made, libraries)
        shutil.rmtree(made)
        (root / HEAD / "lib" / f"python{version}").symlink_to("python3")
    shutil.rmtree(libraries / "bin", ignore_errors=True)
    # Where `outrider init` looks for hooks and filters.
    (libraries / "share").rename(root / HEAD / "share")
    programs = folder(root, f"{HEAD}/bin")
    (programs / "python3").symlink_to(f"../../../../bin/{python}")
    (programs / "python").symlink_to("python3")
    (root / HEAD / "pyvenv.cfg").write_text(_CONFIGURATION)
    for name, module in PROGRAMS.items():
        write(programs / name, _SCRIPT.format(head=HEAD, module=module), 0o755)
        (folder(root, "usr/bin") / name).symlink_to(f"../lib/outrider/head/bin/{name}")
    write(root / "usr/share/doc/outrider/bundled.txt", (wheels / "requirements.txt").read_text())
    beside_head(root)


def beside_head(root: Path) -> None:
    """What is around the programs: unit, users, folders, examples, manual pages, completions."""
    unit = (UNITS / "outriderd.service").read_text().replace("man:systemd.service(5)", "man:outriderd(8)")
    write(root / "usr/lib/systemd/system/outriderd.service", unit)
    _system_files(root, UNITS, "outriderd", "outriderd")
    for example in ("outriderd.yaml", "outriderd.example.yaml"):
        write(root / "usr/share/doc/outrider/examples" / example, (UNITS / example).read_text())
    for page in HEAD_PAGES:
        _manual(root, page)
    _completions(root, "outrider", "outrider.cli.main")


def node(root: Path) -> None:
    """The image pool, at the places at which `outrider nodes deploy` puts it."""
    program = folder(root, "usr/lib/outrider") / "cachemgr.pyz"
    made = [sys.executable, str(ROOT / "tools/pyz.py"), str(program), "--interpreter", "/usr/bin/python3 -IS"]
    subprocess.run(made, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    program.chmod(0o755)
    (folder(root, "usr/sbin") / "cachemgr").symlink_to("../lib/outrider/cachemgr.pyz")
    write(root / "usr/lib/outrider/hook.py", (ROOT / "cachemgr/hook.py").read_text())
    write(root / "usr/lib/outrider/machine", (ROOT / "prolog/machine").read_text(), 0o755)
    unit = (NODE_UNITS / "cachemgr.service").read_text().replace("man:systemd.service(5)", "man:cachemgr(8)")
    command = next(line for line in unit.splitlines() if line.startswith("ExecStart="))
    unit = unit.replace(command, "ExecStart=/usr/sbin/cachemgr serve")
    write(root / "usr/lib/systemd/system/cachemgr.service", unit)
    _system_files(root, NODE_UNITS, "outrider", "cachemgr")
    example = (NODE_UNITS / "cachemgr.conf").read_text()
    write(root / "usr/share/doc/outrider-node/examples/cachemgr.conf", example)
    for page in NODE_PAGES:
        _manual(root, page)
    _completions(root, "cachemgr", "cachemgr")


def slurm(root: Path) -> None:
    """The option --workspace= of srun, sbatch and salloc."""
    plugin = folder(root, "usr/lib/outrider/slurm") / "spank_outrider.so"
    source = ROOT / "plugins/slurm/spank_outrider.c"
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Wl,-z,relro,-z,now", "-fstack-protector-strong"]
    subprocess.run(["cc", *flags, "-D_FORTIFY_SOURCE=2", "-s", "-o", str(plugin), str(source)], check=True)
    plugin.chmod(0o644)


def gridengine(root: Path) -> None:
    """What submit hosts and nodes run, as it is sent to them: for sites that distribute files themselves."""
    for path in sorted((ROOT / "plugins/gridengine").glob("*.py")):
        write(root / "usr/share/outrider-gridengine/plugins" / path.name, path.read_text())
    for path in sorted([*(ROOT / "prolog").glob("gridengine-*"), *(ROOT / "epilog").glob("gridengine-*")]):
        mode = 0o755 if path.read_text().startswith("#!") else 0o644
        write(root / "usr/share/outrider-gridengine/hooks" / path.name, path.read_text(), mode)


def _system_files(root: Path, units: Path, before: str, name: str) -> None:
    for kind, place in (("sysusers", "sysusers.d"), ("tmpfiles", "tmpfiles.d")):
        write(root / f"usr/lib/{place}/{name}.conf", (units / f"{before}.{kind}").read_text())


def _merged(made: Path, libraries: Path) -> None:
    """One folder for several Pythons: what is compiled has its Python's name in its own."""
    for path in sorted(made.rglob("*")):
        target = libraries / path.relative_to(made)
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        elif not target.exists():
            shutil.copy2(path, target)


def _manual(root: Path, name: str) -> None:
    text = (ROOT / "docs/man" / name).read_bytes()
    target = folder(root, f"usr/share/man/man{name[-1]}") / f"{name}.gz"
    target.write_bytes(gzip.compress(text, 9, mtime=0))


def _completions(root: Path, name: str, module: str) -> None:
    places = {
        "bash": f"usr/share/bash-completion/completions/{name}",
        "zsh": f"usr/share/zsh/vendor-completions/_{name}",
        "fish": f"usr/share/fish/vendor_completions.d/{name}.fish",
    }
    for shell, place in places.items():
        command = [sys.executable, "-m", module, "completion", shell]
        said = subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout
        write(root / place, said)


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def folder(root: Path, name: str) -> Path:
    (root / name).mkdir(parents=True, exist_ok=True)
    return root / name
