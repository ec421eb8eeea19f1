"""Container images of few bytes, pushed to a real registry, and what asks for them as the head does."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from cachemgr.base.clock import SystemClock
from cachemgr.fetch.registry.session import RegistrySettings
from outrider.service.images.containers.conversion import Means
from outrider.service.images.containers.converter import Converter
from outrider.service.images.containers.made import MadeImages
from outrider.service.images.hashing import Hashes
from outrider.service.images.logins import Logins
from outrider.service.images.opening import opener
from outrider.service.images.resolving import Resolver
from outrider.service.images.secrets.sitelogins import SiteLogins
from outrider.service.ports import FoundImage, ImageClaim, ImageTrouble, Unread
from tests.daemons.registries.registry_server import CONFIG, MANIFEST, Registry, digest_of

CLOCK = SystemClock()
GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
FOREIGN = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
FILE, FOLDER, SYMLINK, HARDLINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
PIPE, DEVICE = tarfile.FIFOTYPE, tarfile.CHRTYPE
Ask: TypeAlias = Callable[..., FoundImage]


class Quiet:
    def _drop(self, event: str, **fields: object) -> None:
        pass

    debug = info = warning = error = _drop


def entry(
    name: str, data: bytes = b"", *, kind: bytes = FILE, target: str = "", mode: int = 0o644
) -> tuple[tarfile.TarInfo, bytes]:
    found = tarfile.TarInfo(name)
    found.type, found.linkname, found.mode, found.size = kind, target, mode, len(data)
    found.mtime = 1_600_000_000
    return found, data


def layer(*entries: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A layer as a plain tar archive."""
    with io.BytesIO() as buffer:
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for found, data in entries:
                archive.addfile(found, io.BytesIO(data))
        return buffer.getvalue()


def push(
    registry: Registry,
    name: str,
    layers: Sequence[bytes],
    *,
    tag: str = "v1",
    kind: str = GZIP,
    settings: Mapping[str, object] | None = None,
    diffs: Sequence[str] | None = None,
    packed: Callable[[bytes], bytes] = lambda data: gzip.compress(data, mtime=0),
) -> str:
    """Push a container image; its reference."""
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": dict(settings or {}),
        "rootfs": {"type": "layers", "diff_ids": list(diffs or map(digest_of, layers))},
    }
    text = json.dumps(config).encode()
    parts: list[dict[str, object]] = []
    for data in map(packed, layers):
        parts.append({"mediaType": kind, "digest": registry.blob(name, data), "size": len(data)})
    first = {"mediaType": CONFIG, "digest": registry.blob(name, text), "size": len(text)}
    registry.manifest(
        name, tag, {"schemaVersion": 2, "mediaType": MANIFEST, "config": first, "layers": parts}
    )
    return f"docker://{registry.address}/{name}:{tag}"


class Head:
    """What of the service looks images up and converts them, without the rest."""

    def __init__(
        self,
        folder: Path,
        *plain: str,
        most_bytes: int = 1 << 30,
        largest_bytes: int = 1 << 26,
        at_once: int = 2,
        patience_s: int = 120,
        wait_s: float = 120,
        settings: RegistrySettings | None = None,
        logins: Logins | None = None,
        site_logins: SiteLogins | None = None,
    ) -> None:
        self.made = MadeImages(folder, most_bytes, CLOCK)
        self.made.prepare()
        means = Means(made=self.made, clock=CLOCK, largest_bytes=largest_bytes, patience_s=patience_s)
        self.converter = Converter(means, at_once=at_once, user="nobody", log=Quiet(), wait_s=wait_s)
        self.resolver = Resolver(
            open_as=opener(),
            hashes=Hashes(None, CLOCK),
            clock=CLOCK,
            registry_settings=settings or RegistrySettings(frozenset(plain)),
            converter=self.converter,
            logins=logins,
            site_logins=site_logins,
            limit_s=20,
        )

    def ask(
        self, uri: str, image_format: str = "", *, uid: int = 61001, is_private: bool = False
    ) -> FoundImage:
        found = self.resolver(ImageClaim(uri=uri, uid=uid, format=image_format, is_private=is_private))
        if isinstance(found, Unread):
            try:
                return found.read(lambda: True)
            finally:
                found.close()
        return found

    def refusal(
        self,
        uri: str,
        image_format: str = "",
        *,
        uid: int = 61001,
        is_private: bool = False,
        kind: type[ImageTrouble] = ImageTrouble,
    ) -> str:
        try:
            self.ask(uri, image_format, uid=uid, is_private=is_private)
        except kind as error:
            return str(error)
        raise AssertionError(f"{uri} was taken")

    def refusal_with_digest(self, uri: str, digest: str) -> str:
        try:
            self.resolver(ImageClaim(uri=uri, uid=61001, digest=digest))
        except ImageTrouble as error:
            return str(error)
        raise AssertionError(f"{uri} was taken")

    def path(self, image: FoundImage) -> Path:
        found = self.made.path_of(image.digest)
        assert found is not None
        return found

    def left(self) -> list[str]:
        """What is there beside whole layers."""
        parts = ("made", "records", "work")
        found = [f"{part}/{each.name}" for part in parts for each in (self.made.folder / part).iterdir()]
        return found + [each.name for each in (self.made.folder / "layers").glob("*.part")]
