"""A private PostgreSQL server: Debian's, in its own folder, of a user without rights, behind a socket."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from testbed.records import TestbedError

ACCOUNT = "nobody"
START_S = 60
_OPTIONS = (
    "listen_addresses=",
    "shared_buffers=16MB",
    "max_connections=40",
    "max_wal_size=64MB",
    "autovacuum_naptime=10s",
    "logging_collector=off",
)


def programs() -> Path | None:
    """Where Debian puts the server's programs: the youngest version's."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: int(each.parts[-3]))
    return found[-1].parent if found else None


class PostgresServer:
    """One cluster and its server. `folder` must be short, as a socket's path is."""

    def __init__(self, folder: Path, *, data: Path | None = None) -> None:
        """`data` is the folder of what is on the disk, if that is to be elsewhere; it must be empty."""
        found = programs()
        if found is None:
            raise TestbedError("there is no PostgreSQL server: apt-get install postgresql (make tools)")
        self._programs = found
        self.folder = folder
        self._data = folder / "data" if data is None else data
        self._log = folder / "log"
        folder.mkdir(parents=True, exist_ok=True)
        self._data.mkdir(exist_ok=True)
        self._own(folder)
        self._own(self._data)
        self._run(
            "initdb", "-D", self._data, "-U", "outrider", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"
        )

    @property
    def place(self) -> str:
        """How a store in its database is called."""
        return f"postgresql:///postgres?host={quote(str(self.folder), safe='')}&user=outrider"

    def place_of(self, name: str) -> str:
        """The same database, with tables in a schema of that name alone."""
        return f"{self.place}&options={quote(f'-csearch_path={name}', safe='')}"

    @property
    def socket(self) -> Path:
        return self.folder / ".s.PGSQL.5432"

    def start(self) -> None:
        options = " ".join(f"-c {each}" for each in _OPTIONS)
        self._run(
            "pg_ctl", "-D", self._data, "-l", self._log, "-w", "-t", START_S,
            "-o", f"-k {self.folder} {options}", "start",
        )  # fmt: skip

    def stop(self, how: str = "fast") -> None:
        with suppress(TestbedError):
            self._run("pg_ctl", "-D", self._data, "-m", how, "-w", "-t", START_S, "stop")

    def restart(self) -> None:
        """Whatever has become of it."""
        self.stop("immediate")
        self.start()

    def kill(self) -> None:
        """As if the machine had died: nothing is given the time to end."""
        with suppress(OSError, ValueError):
            os.kill(int((self._data / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)

    def remove(self) -> None:
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def sql(self, text: str) -> str:
        """What psql prints."""
        return self._run("psql", "-h", self.folder, "-U", "outrider", "-d", "postgres", "-qAtc", text)

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _own(self, folder: Path) -> None:
        if os.geteuid() == 0:
            account = pwd.getpwnam(ACCOUNT)
            os.chown(folder, account.pw_uid, account.pw_gid)
        folder.chmod(0o700)

    def _run(self, program: str, *words: object) -> str:
        argv = [str(self._programs / program), *map(str, words)]
        account = pwd.getpwnam(ACCOUNT) if os.geteuid() == 0 else None
        # What a server says while it runs goes to its log; who waits for a pipe's end would wait for it.
        with (self.folder / "said").open("w+b") as said:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, timeout=2 * START_S,
                check=False, user=account and account.pw_uid, group=account and account.pw_gid,
                extra_groups=account and [],
                cwd="/", env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"},
            )  # fmt: skip
            said.seek(0)
            words_said = said.read().decode(errors="replace")
        if done.returncode:
            raise TestbedError(
                f"{program} ended with {done.returncode}: {words_said[-2000:]}\n{self.log()[-2000:]}"
            )
        return words_said
