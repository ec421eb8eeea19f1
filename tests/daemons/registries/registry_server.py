"""A real docker-registry in a folder of the test's own, and what is pushed to it."""

from __future__ import annotations

import hashlib
import http.client
import json
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cachemgr.base.clock import SystemClock
from tests.needs import lacking

START_S = 90
CONFIG = "application/vnd.oci.image.config.v1+json"
ARTEFACT = "application/vnd.unknown.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar"
SIF = "application/vnd.sylabs.sif.layer.v1.sif"


def need(program: str) -> str:
    found = shutil.which(program, path="/usr/bin:/usr/sbin:/usr/local/bin")
    if found is None:
        lacking(f"needs {program}: apt install {program}")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class Pushed:
    """What was pushed: the blob that is the image, and its manifest's digest."""

    digest: str
    size_bytes: int
    manifest: str


class Registry:
    """One docker-registry. `sections` are laid over its configuration."""

    def __init__(self, folder: Path, *, port: int = 0, sections: Mapping[str, object] | None = None) -> None:
        self.folder = folder
        self.port = port or free_port()
        self.address = f"127.0.0.1:{self.port}"
        self._sections = dict(sections or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = need("docker-registry")
        given = self._sections.get("http")
        http_section = {"addr": self.address, **(given if isinstance(given, dict) else {})}
        config = {
            "version": "0.1",
            "log": {"accesslog": {"disabled": False}, "level": "info"},
            "storage": {"filesystem": {"rootdirectory": str(self.folder / "data")}},
            **self._sections,
            "http": http_section,
        }
        self.folder.mkdir(exist_ok=True)
        # JSON is YAML, too.
        path = self.folder / "config.yml"
        path.write_text(json.dumps(config))
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [program, "serve", str(path)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        clock = SystemClock()
        until_s = clock.monotonic_s() + START_S
        while clock.monotonic_s() < until_s:
            assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                clock.sleep(0.02)
                continue
            return
        raise AssertionError((self.folder / "log").read_text()[-2000:])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def log(self) -> list[str]:
        """The lines of requests."""
        return [
            line
            for line in (self.folder / "log").read_text(errors="replace").splitlines()
            if " HTTP/1.1" in line and "time=" not in line
        ]

    def blob_path(self, digest: str) -> Path:
        key = digest.removeprefix("sha256:")
        return self.folder / f"data/docker/registry/v2/blobs/sha256/{key[:2]}/{key}/data"

    def push(self, name: str, tag: str, data: bytes, *, kind: str = LAYER, title: str = "") -> Pushed:
        """One file, as `oras push` does it."""
        return self.push_files(name, tag, [data], kind=kind, title=title)

    def push_files(
        self,
        name: str,
        tag: str,
        files: list[bytes],
        *,
        kind: str = LAYER,
        title: str = "",
        config_kind: str = ARTEFACT,
        notes: Mapping[str, str] | None = None,
    ) -> Pushed:
        layers = []
        for data in files:
            layer: dict[str, object] = {"mediaType": kind, "digest": self.blob(name, data), "size": len(data)}
            if title or notes:
                layer["annotations"] = {"org.opencontainers.image.title": title, **(notes or {})}
            layers.append(layer)
        config = {"mediaType": config_kind, "digest": self.blob(name, b"{}"), "size": 2}
        manifest = self.manifest(
            name, tag, {"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers}
        )
        return Pushed(digest_of(files[0]), len(files[0]), manifest)

    def manifest(self, name: str, tag: str, content: Mapping[str, object]) -> str:
        data = json.dumps(content).encode()
        kind = str(content.get("mediaType", MANIFEST))
        status, _ = self.ask("PUT", f"/v2/{name}/manifests/{tag}", data, {"Content-Type": kind})
        assert status == 201, status
        return digest_of(data)

    def blob(self, name: str, data: bytes) -> str:
        status, headers = self.ask("POST", f"/v2/{name}/blobs/uploads/")
        assert status == 202, status
        path = headers["location"].partition(self.address)[2] or headers["location"]
        status, _ = self.ask("PUT", f"{path}&digest={digest_of(data)}", data)
        assert status == 201, status
        return digest_of(data)

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str]]:
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        try:
            line.request(method, path, body, dict(headers or {}))
            answer = line.getresponse()
            answer.read()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}
        finally:
            line.close()


@contextmanager
def running(folder: Path, sections: Mapping[str, object] | None = None) -> Iterator[Registry]:
    registry = Registry(folder, sections=sections)
    registry.start()
    try:
        yield registry
    finally:
        registry.kill()
