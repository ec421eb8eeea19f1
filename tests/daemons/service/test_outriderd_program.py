"""The program itself, with its real desk, nodes and batch system: from its options to its exit code."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from outrider.service.daemon.errors import MEANINGS
from outrider.service.daemon.main import main
from tests.daemons.forked import ForkedService
from tests.repository import ROOT
from tests.unit.service.daemon.conftest import UnixConnection
from tests.unit.service.daemon.fakes import PATIENCE_S, eventually, written

IMAGE_BYTES = 300_000
WORKSPACE = """version: 1
metadata:
  name: render
  image: {{uri: "file://{image}"}}
deployment: {{nodes: 2, duration: 10m, start: now+5minutes}}
"""


class Program:
    """outriderd as a process, restarted at will; forked, if what it does is tried and not how it starts."""

    def __init__(self, folder: Path, *, is_forked: bool = True) -> None:
        self.folder = folder
        self._is_forked = is_forked
        self.socket = folder / "o.sock"
        self.log = folder / "log"
        self.file = written(
            folder / "o.yaml",
            f"version: 1\nstate: {folder}/s\nsocket: {self.socket}\n"
            "link: {rate: 50MB, reserve: at-once, spread: 1s}\n"
            "timings: {look: 1s, sight: 20s}\n"
            "backend: {kind: embedded, nodes: 'n[1-2]', cpus: 1, memory: 1GiB, pool: 10MB}\n",
        )
        self.process: subprocess.Popen[bytes] | ForkedService | None = None

    def start(self) -> None:
        options = ("--config", str(self.file), "--init-if-empty")
        if self._is_forked:
            self.process = ForkedService(self.log, *options)
        else:
            with open(self.log, "ab") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "outrider.service", *options],
                    stderr=log,
                    cwd=self.folder,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                )
        self.await_ready()

    def await_ready(self) -> None:
        eventually(self._is_ready, f"being ready; the log says:\n{self.log.read_text()}")

    def _is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        try:
            return self.ask("GET", "/readyz")[0] == 200
        except OSError:
            return False

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S * 2)

    def ask(self, method: str, path: str, body: object = None, key: str = "") -> tuple[int, Any]:
        connection = UnixConnection(self.socket)
        headers = {"Content-Type": "application/json", **({"Idempotency-Key": key} if key else {})}
        try:
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


@pytest.fixture
def program() -> Iterator[Program]:
    folder = Path(tempfile.mkdtemp(prefix="ops-", dir="/tmp"))
    folder.chmod(0o755)
    made = Program(folder, is_forked=False)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.kill()
        made.process.wait(PATIENCE_S)
    shutil.rmtree(folder, ignore_errors=True)


def image_in(folder: Path) -> Path:
    path = folder / "image.raw"
    path.write_bytes(b"\x5a" * IMAGE_BYTES)
    path.chmod(0o644)
    return path


def test_promise_is_kept_over_a_kill(program: Program) -> None:
    image = image_in(program.folder)
    program.start()
    body = {"workspace": WORKSPACE.format(image=image), "file": "ws.yaml", "zone": "UTC"}
    status, decision = program.ask("POST", "/v1/reservations", body, key="k1")
    assert (status, decision["result"]) == (201, "accepted"), decision
    program.end(signal.SIGKILL)
    program.start()
    again_status, again = program.ask("POST", "/v1/reservations", body, key="k1")

    def details() -> Any:
        return program.ask("GET", f"/v1/reservations/{decision['name']}")[1]

    eventually(lambda: details()["reservation"]["state"] == "ready", f"the image\n{program.log.read_text()}")
    ready = details()
    code = program.end(signal.SIGTERM)

    assert decision["image"]["digest"] == f"sha256:{hashlib.sha256(image.read_bytes()).hexdigest()}"
    assert (again_status, again) == (201, decision)
    assert ready["reservation"]["is_confirmed"]
    assert [each["state"] for each in ready["staging"]] == ["ready", "ready"]
    for node in ("n1", "n2"):
        copies = list((program.folder / "s/embedded/nodes" / node).rglob("data"))
        assert [each.stat().st_size for each in copies] == [IMAGE_BYTES]
    assert code == 0
    assert not program.socket.exists()


def test_second_program_on_the_same_files_is_refused(program: Program) -> None:
    program.start()
    done = subprocess.run(
        [sys.executable, "-m", "outrider.service", "--config", str(program.file)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert done.returncode == 4
    assert "another daemon listens" in done.stderr
    assert program.ask("GET", "/healthz")[0] == 200
    assert program.end(signal.SIGTERM) == 0


def test_nodes_that_cannot_live_are_an_error_with_its_code(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    text = f"version: 1\nstate: {deep}\nsocket: {tmp_path}/o.sock\nbackend: {{kind: embedded}}\n"
    path = str(written(tmp_path / "o.yaml", text))
    done = subprocess.run(
        [sys.executable, "-m", "outrider.service", "--init-if-empty", "--config", path],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )

    assert done.returncode == 5
    assert "choose a folder whose path is shorter" in done.stderr
    assert not (tmp_path / "o.sock").exists()


def test_check_tells_every_fault_with_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "o.yaml", "version: 1\nbackend: {kind: embeded}\nlink: {rat: 1}\n")

    assert main(["--config", str(path), "--check"], {}) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"outriderd: {path}:2:17: backend.kind: \"embeded\" is not allowed here: write 'embedded', 'twin', "
        "'slurm' or 'gridengine'",
        f"outriderd: {path}:3:8: link.rat: there is no such key; did you mean rate?",
    ]


def test_check_looks_at_the_policies_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = written(tmp_path / "p.yaml", "version: 1\nrules: []\n")
    path = written(tmp_path / "o.yaml", f"version: 1\nbackend: {{kind: twin}}\npolicies: {policies}\n")

    assert main(["--config", str(path), "--check"], {}) == 1
    assert f"{policies}:2:8: rules: is too short" in capsys.readouterr().err


def test_check_looks_for_the_users_of_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = f"{{uri: https://h/u, size: 1, digest: 'sha256:{'0' * 64}', readers: {{users: [nosuchuser]}}}}"
    text = f"version: 1\nbackend: {{kind: twin}}\nimages: {{u: {image}}}\n"

    assert main(["--config", str(written(tmp_path / "o.yaml", text)), "--check"], {}) == 1
    assert "image u: there is no user nosuchuser" in capsys.readouterr().err


def test_right_configuration_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "o.yaml", "version: 1\nsite: hpc\nbackend: {kind: twin}\n")

    assert main(["--config", str(path), "--check"], {}) == 0
    assert capsys.readouterr().out == f"{path}: site hpc, backend twin\n"


def test_schema_is_json_schema_of_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--schema"], {}) == 0
    schema = json.loads(capsys.readouterr().out)

    assert schema["required"] == ["version", "backend"]
    assert schema["$defs"]["LinkSection"]["properties"]["rate"]["default"] == "125MB"


def test_store_is_made_once_and_never_over_another(tmp_path: Path) -> None:
    path = written(tmp_path / "o.yaml", f"version: 1\nstate: {tmp_path}/s\nbackend: {{kind: twin}}\n")

    assert main(["--config", str(path), "--init"], {}) == 0
    assert (tmp_path / "s/outriderd.sqlite").exists()
    assert main(["--config", str(path), "--init"], {}) == 28


@pytest.mark.parametrize("argv", [["--bogus"], ["--check", "--init"], ["--config"]])
def test_faults_of_the_command_line_are_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv, {}) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_help_ends_with_every_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], {}) == 0
    shown = capsys.readouterr().out

    assert all(f"{code:>3}  {meaning}" in shown for code, meaning in MEANINGS.items())
