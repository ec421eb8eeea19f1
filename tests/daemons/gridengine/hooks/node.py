"""One node as Grid Engine's hooks see it, without a Grid Engine: guard, scripts, daemon, its own /run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cachemgr.network.client import DaemonClient
from cachemgr.network.job_tickets import JobTicket, make_job_ticket
from tests.daemons.node.daemons import CLOCK, Outside, make_pool
from tests.daemons.slurm.hooks.site import CONTENT, DIGEST, KEY, PATH, UID, own_folder
from tests.repository import ROOT

USER = "nobody"
HOOKS = {
    "prolog": "prolog/gridengine-prolog",
    "pe-start": "prolog/gridengine-pe-start",
    "epilog": "epilog/gridengine-epilog",
}
STARTER = "prolog/gridengine-starter"
GUARD = ROOT / "prolog" / "gridengine-guard.c"
COMPILER = ("cc", "-Os", "-Wall", "-Wextra", "-Werror", "-static", "-nostdlib", "-ffreestanding")
ARGUMENTS = {
    "prolog": ("17", "0", USER, "n1"),
    "pe-start": ("", "n1", "17", "0", USER),
    "epilog": ("17", "0", USER, "n1"),
}
TELLING = """
echo "image=$OUTRIDER_IMAGE"
export -p | while read -r word name; do case $name in outrider_*) echo "left: $name" ;; esac; done
"""
Done = subprocess.CompletedProcess[str]


def needs_compiler() -> None:
    if shutil.which("cc") is None:
        if os.environ.get("CI"):
            pytest.fail("a C compiler is missing in CI: install gcc")
        pytest.skip("no C compiler is installed")


def compiled_guard(target: Path, folder: str, limit_s: int = 120) -> None:
    """The guard, for scripts in another folder, or of less patience."""
    flags = [
        *COMPILER,
        "-fno-stack-protector",
        "-fno-builtin",
        f'-DFOLDER="{folder}/"',
        f"-DLIMIT_S={limit_s}",
    ]
    subprocess.run([*flags, str(GUARD), "-o", str(target)], check=True, timeout=240)


class Node:
    """Where hooks run as a shepherd runs them: with a job's environment, from the job's folder."""

    def __init__(self, folder: Path, *, is_guarded: bool, limit_s: int) -> None:
        self.folder = folder
        self.lib = folder / "lib"
        self.run_folder = folder / "run"
        self.told = self.run_folder / "outrider"
        self.told.mkdir(parents=True)
        self.scripts: dict[str, Path] = {}
        self.daemon: Outside | None = None
        (folder / "key").write_bytes(KEY)
        (folder / "image").write_bytes(CONTENT)
        self.is_guarded = is_guarded
        if is_guarded:
            compiled_guard(folder / "guard", str(self.lib / "gridengine"), limit_s)
        self._install()

    def serve(self) -> Outside:
        if not (self.folder / "pool").exists():
            make_pool(self.folder / "pool")
        socket = str(self.told / "cachemgr.sock")
        self.daemon = Outside(
            self.folder,
            pool=str(self.folder / "pool"),
            socket=socket,
            relay_key=str(self.folder / "key"),
        )
        with self.client() as client:
            image = {"uri": str(self.folder / "image"), "digest": DIGEST}
            client.ask("add", image, on_progress=lambda told: None)
        return self.daemon

    def client(self) -> DaemonClient:
        return DaemonClient(str(self.told / "cachemgr.sock"))

    def ask(self, verb: str, **fields: object) -> dict[str, Any]:
        with self.client() as client:
            return client.ask(verb, fields)

    def restore(self) -> None:
        """As after its installation, with a daemon that serves and has nothing but the image."""
        self._install()
        for kind in ("jobs", "nodes"):
            shutil.rmtree(self.told / kind, ignore_errors=True)
        if self.daemon is None or self.daemon.process.poll() is not None:
            self.serve()
        for owner in (*self.owners(), "reservation:job-17"):
            self.ask("release", owner=owner)

    def end(self) -> None:
        if self.daemon is not None and self.daemon.process.poll() is None:
            self.daemon.process.kill()
            self.daemon.process.wait()

    def pause(self) -> None:
        assert self.daemon is not None
        self.daemon.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.daemon is not None
        self.daemon.process.send_signal(signal.SIGCONT)

    def patch(self, hook: str, old: str, new: str) -> None:
        """Make a hook meet with something that this machine does not have."""
        text = self.scripts[hook].read_text()
        assert old in text
        self.scripts[hook].write_text(text.replace(old, new))

    def command(self, hook: str, arguments: tuple[str, ...], before: str, after: str) -> list[str]:
        inside = (
            f"mount --make-rprivate / && mount --bind {self.run_folder} /run || exit 98; {before}; "
            f'hook=$1; shift; "$hook" "$@"; status=$?; {after}; exit "$status"'
        )
        started = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "sh", "-c", inside]
        return [*started, "shepherd", str(self.lib / "gridengine" / hook), *arguments]

    def run(self, hook: str, *arguments: str, before: str = ":", after: str = ":", **changes: str) -> Done:
        return subprocess.run(
            self.command(hook, arguments or ARGUMENTS[hook], before, after),
            env=environment(changes),
            cwd="/",
            capture_output=True,
            text=True,
            timeout=90,
        )

    def run_in(self, hook: str, variables: Mapping[str, str], *arguments: str) -> Done:
        """A hook alone, with nothing else that could stumble over its environment."""
        return subprocess.run(
            [self.lib / "gridengine" / hook, *(arguments or ARGUMENTS[hook])],
            env=variables,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=90,
        )

    def begin(self, hook: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Started, and left alone."""
        return subprocess.Popen(
            self.command(hook, arguments or ARGUMENTS[hook], ":", ":"),
            env=environment({}),
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def start(self, *arguments: str, given: str = "", no_shell: str = "1", **changes: str) -> Done:
        """The starter, as the job's user, on a command `-b y -shell n` that tells what it was given."""
        config = self.folder / "config"
        config.write_text(f"handle_as_binary=1\nno_shell={no_shell}\n")
        words = arguments or ("/bin/sh", "-c", TELLING)
        variables = {
            "PATH": "/nowhere",
            "JOB_ID": "17",
            "SGE_TASK_ID": "undefined",
            "JOB_SCRIPT": words[0],
            "SGE_JOB_SPOOL_DIR": str(self.folder),
            "SGE_STARTER_SHELL_PATH": "/bin/sh",
            "SGE_STARTER_SHELL_START_MODE": "posix_compliant",
            **changes,
        }
        user = f"/usr/bin/setpriv --reuid={UID} --regid={UID} --clear-groups"
        job = " ".join(f"'{name}={text}'" for name, text in variables.items())
        inside = f'mount --bind {self.run_folder} /run && exec {user} /usr/bin/env -i {job} "$@"'
        return subprocess.run(
            [
                "unshare",
                "--mount",
                "sh",
                "-c",
                inside,
                "sh",
                str(self.lib / "gridengine" / "starter"),
                *words,
            ],
            env={"PATH": PATH},
            input=given,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def files(self) -> list[str]:
        """What hooks have left for one another."""
        found = [path for kind in ("jobs", "nodes") for path in (self.told / kind).glob("*")]
        return sorted(str(path.relative_to(self.told)) for path in found)

    def path_told(self, job: str = "17") -> str:
        return (self.told / "jobs" / job).read_text().split("\n")[0]

    def owners(self) -> list[str]:
        return sorted(each["owner"] for each in self.ask("instances")["instances"])

    def _install(self) -> None:
        folder = self.lib / "gridengine"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "cachemgr" / "hook.py", self.lib / "hook.py")
        for name, path in {**HOOKS, "starter": STARTER}.items():
            is_script = not self.is_guarded or name == "starter"
            script = folder / (name if is_script else f"{name}.sh")
            script.write_text((ROOT / path).read_text().replace("/usr/lib/outrider", str(self.lib)))
            script.chmod(0o755)
            self.scripts[name] = script
            if not is_script and not (folder / name).exists():
                shutil.copy(self.folder / "guard", folder / name)


def environment(changes: Mapping[str, str]) -> dict[str, str]:
    """What a job with a ticket has. A change to nothing takes a variable away."""
    given = {"PATH": PATH, "JOB_ID": "17", "OUTRIDER_TICKET": ticket(), **changes}
    return {name: text for name, text in given.items() if text}


def ticket(key: bytes = KEY, **changes: Any) -> str:
    said = {"job": "17", "uid": UID, "digest": DIGEST, "expires_s": CLOCK.now_s() + 600, **changes}
    return make_job_ticket(key, JobTicket(**said))


@contextmanager
def node(*, is_guarded: bool = True, limit_s: int = 120) -> Iterator[Node]:
    needs_compiler()
    folder = own_folder("gh")
    folder.chmod(0o755)
    made = Node(folder, is_guarded=is_guarded, limit_s=limit_s)
    try:
        yield made
    finally:
        made.end()
        shutil.rmtree(folder)
