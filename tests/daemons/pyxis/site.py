"""A node with a pool and pyxis' importer, installed as on a node; and an enroot that only pretends."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.daemons.node.daemons import DEADLINE_S, Outside, eventually, make_pool
from tests.daemons.pyxis.conformance import Called, Caller
from tests.repository import ROOT
from tools.pyz import pack

ALICE, BOB = 2001, 2002
# Notes each run, waits while there is a gate, and makes a squashfs file as far as its first bytes go.
ENROOT = """\
#!/bin/sh
# import --output FILE URI
echo "$4" >>FOLDER/imported
# In a process of its own, as enroot works.
( while [ -e FOLDER/gate ]; do sleep 0.02; done )
case $4 in
  *missing*) echo '[ERROR] URL returned error code: 401 Unauthorized' >&2; exit 1 ;;
  *link*) ln -s FOLDER/secret "$3"; exit 0 ;;
  *same*) cat FOLDER/header >"$3"; exit 0 ;;
  *text*) echo 'no image' >"$3"; exit 0 ;;
esac
{ cat FOLDER/header; echo "$4 by $(id -u)"; head -c 100000 /dev/zero; } >"$3"
"""


def squashfs(content: bytes) -> bytes:
    """As much of a squashfs file as those look at who do not mount it."""
    return b"hsqs".ljust(28, b"\0") + b"\4".ljust(68, b"\0") + content


@functools.cache
def installed() -> Path:
    """What docs/howto/tools.md has on a node, made once for all tests."""
    folder = Path(tempfile.mkdtemp(prefix="px-"))
    atexit.register(shutil.rmtree, folder)
    pack(folder / "cachemgr.pyz", bytecode_of="/usr/bin/python3")
    shutil.copytree(ROOT / "plugins/pyxis", folder / "pyxis", ignore=shutil.ignore_patterns("__pycache__"))
    # For every user of a node.
    folder.chmod(0o755)
    return folder


class Site:
    """What is installed, and what tests ask about it."""

    def __init__(self, folder: Path, **options: str) -> None:
        self.folder = folder
        self.programs = folder / "lib/outrider/pyxis"
        shutil.copytree(installed(), folder / "lib/outrider")
        enroot = folder / "enroot"
        enroot.write_text(ENROOT.replace("FOLDER", str(folder)))
        enroot.chmod(0o755)
        (folder / "header").write_bytes(squashfs(b""))
        (folder / "secret").write_bytes(squashfs(b"of root"))
        (folder / "secret").chmod(0o600)
        (folder / "run").mkdir()
        (folder / "imported").touch()
        (folder / "imported").chmod(0o666)
        for uid in (ALICE, BOB):
            own = folder / f"run/{uid}"
            own.mkdir(mode=0o700)
            os.chown(own, uid, uid)
        self.configure(**options)
        self.converter: subprocess.Popen[bytes] | None = None
        make_pool(folder / "pool")
        self.daemon = Outside(folder, sweep_interval="1s", watchdog="0")

    def configure(self, **options: str) -> None:
        given = {
            "socket": str(self.folder / "s"),
            "import_command": f"{self.folder}/enroot import --output {{output}} {{uri}}",
            "patience": "20s",
            "converter_user": "nobody",
            "converter_scratch": str(self.folder / "convert"),
            **options,
        }
        text = "".join(f"{name} = {value}\n" for name, value in given.items())
        (self.programs / "pyxis.conf").write_text(f"[pyxis]\n{text}")

    def start_converter(self, **options: str) -> None:
        self.configure(converter=str(self.folder / "c"), **options)
        log_path, begun = self.folder / "converter.log", self.log().count("converter serves")
        with log_path.open("ab") as log:
            # It dies with this process, also when that is killed.
            command = ["setpriv", "--pdeathsig=KILL", str(self.programs / "outrider-converter")]
            self.converter = subprocess.Popen(command, stderr=log, env={"PATH": "/usr/bin:/bin"})
        eventually("the converter listens", lambda: self.log().count("converter serves") > begun, self.log)

    def step(self, number: int = 0, uid: int = ALICE, job: int = 4711) -> Caller:
        importer = str(self.programs / "outrider-importer")
        return Caller(importer=importer, uid=uid, runtime=str(self.folder / "run"), job=job, step=str(number))

    def gate(self) -> Path:
        path = self.folder / "gate"
        path.touch()
        return path

    def imported(self) -> list[str]:
        """What the pretended enroot was asked for, in order."""
        return (self.folder / "imported").read_text().split()

    def images(self) -> list[dict[str, Any]]:
        return list(self.daemon.ask("ls")["images"])

    def pins(self) -> list[str]:
        """Who holds which images, of steps alone."""
        shown = [self.daemon.ask("show", name=image["digest"]) for image in self.images()]
        owners = [pin["owner"] for image in shown for pin in image["pin_list"]]
        return sorted(owner for owner in owners if "step-" in owner)

    def left(self, uid: int = ALICE) -> list[str]:
        """What lies in a user's folder, locks aside."""
        found = (self.folder / f"run/{uid}").iterdir()
        return sorted(each.name for each in found if each.suffix != ".lock")

    def log(self) -> str:
        log = self.folder / "converter.log"
        return self.daemon.log() + (log.read_text() if log.exists() else "")

    def stop(self) -> None:
        for process in (self.converter, self.daemon.process):
            if process is not None and process.poll() is None:
                process.kill()
                process.wait(DEADLINE_S)


@dataclass(frozen=True, kw_only=True)
class Started:
    """A `get` that has not been waited for."""

    process: subprocess.Popen[bytes]

    def end(self) -> Called:
        out, err = self.process.communicate(timeout=DEADLINE_S)
        line, _, rest = out.decode().partition("\n")
        return Called(status=self.process.returncode, line=f"{line}\n", rest=rest, log=err.decode())


def start(steps: Sequence[Caller], image: str) -> list[Started]:
    return [Started(process=step.start("get", image, log=subprocess.PIPE)) for step in steps]


def path_of(called: Called) -> Path:
    assert called.status == 0, called.log
    return Path(called.line.rstrip("\n"))
