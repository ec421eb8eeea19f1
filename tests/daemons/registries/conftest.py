"""A real registry for all tests of a file, a resolver of the head's, and a pool with its command line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.cli.main import main
from cachemgr.fetch.registry.session import RegistrySettings
from cachemgr.fetch.sources.connect import WebSettings
from outrider.service.images.hashing import Hashes
from outrider.service.images.opening import opener
from outrider.service.images.resolving import Resolver
from outrider.service.ports import FoundImage, ImageClaim
from tests.daemons.node.conftest import folder
from tests.daemons.registries.registry_server import Registry, running
from tests.unit.cachemgr.cli.outcomes import Outcome, Run

__all__ = ["folder"]
CLOCK = SystemClock()
Ask = Callable[[str], FoundImage]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    with running(tmp_path_factory.mktemp("registry") / "served") as found:
        yield found


@pytest.fixture
def asks() -> Callable[..., Ask]:
    """Makes what asks as the head does for a user's image; `plain` are registries without TLS."""

    def make(*plain: str, ca_file: Path | None = None, limit_s: float = 10, digest: str = "") -> Ask:
        resolver = Resolver(
            open_as=opener(),
            hashes=Hashes(None, CLOCK),
            clock=CLOCK,
            web_settings=WebSettings(ca_file=None if ca_file is None else str(ca_file)),
            registry_settings=RegistrySettings(frozenset(plain)),
            limit_s=limit_s,
        )

        def ask(uri: str) -> FoundImage:
            found = resolver(ImageClaim(uri=uri, uid=61001, digest=digest))
            assert isinstance(found, FoundImage)
            return found

        return ask

    return make


@pytest.fixture
def configuration(tmp_path: Path) -> Callable[..., Path]:
    """A node's configuration with these registries without TLS."""

    def make(*plain: str) -> Path:
        path = tmp_path / "node.conf"
        path.write_text(f"[cachemgr]\npool = {tmp_path}/pool\nplain_http = {' '.join(plain)}\n")
        return path

    return make


@pytest.fixture
def node(configuration: Callable[..., Path], capsys: pytest.CaptureFixture[str]) -> Callable[..., Run]:
    """Makes a pool and the command line on it, without a daemon."""

    def make(*plain: str) -> Run:
        path = configuration(*plain)

        def run(*words: str) -> Outcome:
            capsys.readouterr()
            code = main(["--config", str(path), "--no-daemon", *words])
            captured = capsys.readouterr()
            return Outcome(code, captured.out, captured.err)

        assert run("init", "--limit", "64MiB").code == 0
        return run

    return make
