"""One connection to the mirror: what registries answer, as far as pulling an image needs it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, unquote

from cachemgr.base.errors import BadRequest, CacheError
from cachemgr.relay.conversation import Conversation
from cachemgr.relay.request import RequestRefused

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from cachemgr.fetch.ports import Held
    from cachemgr.pool.records import PoolImage
    from cachemgr.relay.conversation import RelayContext
    from cachemgr.relay.mirrored_images import MirroredImages
    from cachemgr.relay.request import RelayRequest

    MayUse = Callable[[PoolImage], bool]
    Admit = Callable[[str], MayUse | None]

ROOT = "/v2/"
PATH = re.compile(r"/v2/([a-z0-9][a-z0-9._/-]{0,254})/(manifests|blobs)/([A-Za-z0-9_][A-Za-z0-9_.:-]{0,127})")
VERSION = {"Docker-Distribution-Api-Version": "registry/2.0"}


class Text:
    """A short answer that is no image."""

    is_public = True

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size_bytes = len(data)

    def valid_bytes(self) -> int:
        return self.size_bytes

    def wait(self, offset: int, timeout_s: float) -> int:
        return self.size_bytes

    def read(self, offset: int, most: int) -> bytes:
        return self._data[offset : offset + most]

    def fileno(self) -> int | None:
        return None

    def close(self) -> None:
        """Nothing is open."""


class MirrorConversation(Conversation):
    """Requests of a container runtime. `admit` tells from a login what its user may use."""

    name = "mirror"
    challenge = 'Basic realm="outrider"'

    def __init__(
        self, images: MirroredImages, admit: Admit, site: RelayContext, sock: socket.socket, host: str
    ) -> None:
        super().__init__(site, sock, host)
        self._images = images
        self._admit = admit
        self._image: PoolImage | None = None
        self._is_manifest = False

    def _find(self, request: RelayRequest) -> Held:
        self._image = None
        if request.method not in ("GET", "HEAD"):
            raise RequestRefused(405, "images can only be read here")
        may_use = self._admit(request.headers.get("authorization", ""))
        if may_use is None:
            raise RequestRefused(401, "the mirror wants a login of `cachemgr mirror`")
        self._let_in(has_ticket=True)
        path, _, query = request.target.partition("?")
        if path in (ROOT, ROOT.rstrip("/")):
            return Text(b"{}")
        found = PATH.fullmatch(unquote(path))
        if found is None:
            raise RequestRefused(404, "there are only manifests and blobs here")
        name, kind, wanted = found.groups()
        self._is_manifest = kind == "manifests"
        try:
            if self._is_manifest:
                registry = parse_qs(query).get("ns", [""])[0]
                self._image = self._images.manifest(name, wanted, registry, may_use)
            else:
                self._image = self._images.blob(wanted, may_use)
        except BadRequest as error:
            raise RequestRefused(404, str(error)) from error
        except CacheError as error:
            raise RequestRefused(503, str(error)) from error
        held = None if self._image is None else self._site.holdings.open(f"sha256:{self._image.digest}")
        if held is None:
            raise RequestRefused(404, f"this node has no {name} that is {wanted}, whole and for you")
        return held

    def _described(self, request: RelayRequest, held: Held) -> tuple[str, dict[str, str]]:
        if self._image is None:
            return '"v2"', {"Content-Type": "application/json", **VERSION}
        digest = f"sha256:{self._image.digest}"
        kind = self._images.media_type(self._image) if self._is_manifest else "application/octet-stream"
        return f'"{digest}"', {"Content-Type": kind, "Docker-Content-Digest": digest, **VERSION}
