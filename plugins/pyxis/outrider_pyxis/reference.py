"""What a container image is called: as pyxis writes it, as enroot reads it, as the pool keeps it.

Nothing here becomes a path. Everything that may reach a shell script of enroot's is matched
by the patterns below first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote

from cachemgr.base.errors import BadRequest

MOST_NAME = 1024
DEFAULT_TAG = "latest"
DOCKER_HUB = "registry-1.docker.io"
REFERENCE = re.compile(
    r"(?:(?P<user>[A-Za-z0-9$_.+-]{1,128})@)?"
    r"(?:(?P<registry>[A-Za-z0-9][A-Za-z0-9.-]{0,253}(?::[0-9]{1,5})?)\#)?"
    r"(?P<image>[A-Za-z0-9]+(?:(?:[._-]+|/)[A-Za-z0-9]+){0,60})"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}))?"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
ADDRESS = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]{0,15})://(?P<rest>.+)")
DOCKER = "docker://"
# Images of a daemon on this node: the same name is another image on the next node.
LOCAL = ("dockerd", "podman")
# The pool's own names, digests and aliases.
POOL = "outrider"
REMEDY = "write [USER@][REGISTRY#]IMAGE[:TAG], http(s)://…, file:///… or outrider://NAME"


@dataclass(frozen=True)
class Reference:
    """An image of a registry."""

    user: str
    registry: str
    image: str
    tag: str
    digest: str

    @property
    def pool_name(self) -> str:
        """What somebody privileged calls it in a pool: without a user, and never ambiguous."""
        last = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"docker:{self.registry}/{self.image}{last}"


@dataclass(frozen=True)
class Wanted:
    """What pyxis was asked for.

    `kind` is registry, local (a container daemon of this node), address, file or pool; `text`
    is what goes on: an URI for enroot, an address for the pool, a path, or a name in the pool.
    """

    kind: str
    text: str
    reference: Reference | None = None


def read_wanted(text: str, default_registry: str = DOCKER_HUB) -> Wanted:
    """What is meant by the URI that pyxis hands over.

    Pyxis puts docker:// before everything that does not begin so, hence an address may come as
    docker://http://….
    """
    if len(text) > MOST_NAME or not text.isascii() or not text.isprintable() or " " in text:
        raise BadRequest(
            f"the image {text[:60]!r} has blanks, odd characters or over {MOST_NAME} of them: {REMEDY}"
        )
    if text.startswith("/"):
        return Wanted("file", text)
    bare = text[len(DOCKER) :] if text.startswith(DOCKER) else text
    address = ADDRESS.fullmatch(bare)
    if address is None:
        return Wanted("registry", f"{DOCKER}{bare}", read_reference(bare, default_registry))
    scheme, rest = address["scheme"], address["rest"]
    if scheme in LOCAL:
        read_reference(rest, default_registry)
        return Wanted("local", bare)
    if scheme == POOL:
        return Wanted("pool", rest)
    if scheme == "file":
        if not rest.startswith("/"):
            raise BadRequest(f"{bare!r} does not name a file of this node: write file:///PATH")
        return Wanted("file", unquote(rest))
    return Wanted("address", bare)


def read_reference(text: str, default_registry: str = DOCKER_HUB) -> Reference:
    """An image of a registry, with everything filled in that people leave out."""
    found = REFERENCE.fullmatch(text)
    # A digest that lost some digits would be read as a user and an image of that name.
    if found is None or found["image"] == "sha256":
        raise BadRequest(f"{text[:100]!r} is not the name of an image: {REMEDY}")
    registry, image = found["registry"] or default_registry, found["image"]
    if registry == DOCKER_HUB and "/" not in image:
        image = f"library/{image}"
    return Reference(
        user=found["user"] or "",
        registry=registry,
        image=image,
        tag=found["tag"] or DEFAULT_TAG,
        digest=found["digest"] or "",
    )
