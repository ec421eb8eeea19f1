"""The benchmarked outriderd as a process: started, waited for, watched, ended."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any

from bench.service_site import BenchedSite
from cachemgr.base.clock import SystemClock

START_S = 120.0
POLL_S = 0.005
monotonic_s = SystemClock().monotonic_s


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceStart:
    """How long a start took: until the first answer, and until something is promised again."""

    answers_s: float
    promises_s: float
    cpu_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Used:
    """What the kernel says of a process: seconds on a processor, and waiting for one."""

    cpu_s: float
    queued_s: float


class BenchedService:
    """One outriderd over a site's folder."""

    def __init__(self, place: BenchedSite) -> None:
        self.place = place
        self._log = (place.folder / "log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> ServiceStart:
        script = Path(__file__).with_name("service_site.py")
        command = [sys.executable, str(script), "--folder", str(self.place.folder)]
        command += ["--nodes", str(self.place.nodes)]
        began = monotonic_s()
        self._process = subprocess.Popen(command, stderr=self._log)
        answered = 0.0
        while monotonic_s() - began < START_S:
            status = self._status()
            if status is not None:
                answered = answered or monotonic_s() - began
                if status["is_promising"]:
                    promised = monotonic_s() - began
                    return ServiceStart(answers_s=answered, promises_s=promised, cpu_s=self.used().cpu_s)
            if self._process.poll() is not None:
                break
            sleep(POLL_S)
        self.end(signal.SIGKILL)
        raise RuntimeError(f"the service does not serve: see {self._log.name}")

    def end(self, by: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait(60)
            self._process = None
            self.place.socket.unlink(missing_ok=True)

    def used(self) -> Used:
        """Of all its threads together."""
        assert self._process is not None
        cpu_ns = queued_ns = 0
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            try:
                found = (task / "schedstat").read_text().split()
            except OSError:
                # It has ended since: what it used is missing.
                continue
            cpu_ns += int(found[0])
            queued_ns += int(found[1])
        return Used(cpu_s=cpu_ns / 1e9, queued_s=queued_ns / 1e9)

    def resident_bytes(self) -> int:
        assert self._process is not None
        words = Path(f"/proc/{self._process.pid}/statm").read_text().split()
        return int(words[1]) * os.sysconf("SC_PAGESIZE")

    def _status(self) -> dict[str, Any] | None:
        """What it answers; None as long as it does not."""
        try:
            return get(self.place.socket, "/v1/status")
        except (OSError, http.client.HTTPException):
            return None


class Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def get(path: Path, target: str) -> dict[str, Any]:
    connection = Connection(path)
    try:
        connection.request("GET", target)
        response = connection.getresponse()
        found = json.loads(response.read())
        if response.status != 200:
            raise http.client.HTTPException(f"{target}: {found}")
        assert isinstance(found, dict)
        return found
    finally:
        connection.close()
