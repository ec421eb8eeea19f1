"""References to images in registries, as users write them: docker://HOST[:PORT]/NAME:TAG and oras://….

Head and nodes read them here and nowhere else. Nothing is filled in that a user left out: no registry, no
`library/`, no `latest`, since what is left out means one thing to docker and another to a site.
Reading takes time in proportion to a reference's length, which is bounded.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest

SCHEMES = ("docker", "oras")
FORM = "docker://HOST[:PORT]/NAME:TAG, oras://HOST[:PORT]/NAME:TAG, or with @sha256:DIGEST after it"
MOST_CHARACTERS = 1024
MOST_NAME = 255
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
HOST = re.compile(r"[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?|\[[0-9a-f:.]+\]")
TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
# A part of a name: letters and digits, with one dot, one or two underscores, or hyphens between them.
PART = re.compile(r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*")
HUB = "docker.io"
# Docker Hub's registry answers at another host than people write.
API_HOSTS = {HUB: "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}


@dataclass(frozen=True)
class Reference:
    """An image of a registry. `tag` or `digest` may be empty, not both; a digest is that of its manifest."""

    scheme: str
    host: str
    port: int | None
    repository: str
    tag: str
    digest: str

    @property
    def address(self) -> str:
        """The host, with a port if one is written: as a site's configuration names it."""
        return self.host if self.port is None else f"{self.host}:{self.port}"

    @property
    def api_host(self) -> str:
        """Whom to ask, without brackets."""
        return API_HOSTS.get(self.host, self.host).strip("[]")

    @property
    def wanted(self) -> str:
        """What a registry is asked for: the digest if there is one, since a tag can be moved."""
        return self.digest or self.tag

    @property
    def path(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"/{self.repository}{tag}{digest}"

    def __str__(self) -> str:
        return f"{self.scheme}://{self.address}{self.path}"


def read_reference(text: str) -> Reference:
    """What is meant by a docker:// or oras:// reference, or `BadRequest` with what is wrong with it."""
    if len(text) > MOST_CHARACTERS:
        raise BadRequest(f"the reference of an image has {len(text)} characters: at most {MOST_CHARACTERS}")
    scheme, divider, rest = text.partition("://")
    if not divider or scheme not in SCHEMES:
        raise BadRequest(f"{text!r} is not a reference of an image in a registry: write {FORM}")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise BadRequest(f"the reference {text!r} has letters that no reference has: write {FORM}")
    authority, slash, path = rest.partition("/")
    if "#" in authority:
        raise BadRequest(f"the reference {text!r} has # after its registry: write a slash in its place")
    if "@" in authority and slash:
        raise BadRequest(
            f"the reference {text!r} has a user or a password, which others could see: write it without"
        )
    if not slash:
        raise BadRequest(
            f"the reference {text!r} names no registry: write {scheme}://HOST/{rest or 'NAME:TAG'}, for an "
            f"image of Docker Hub's own {scheme}://{HUB}/library/{rest or 'NAME:TAG'}"
        )
    host, port = _registry(authority, path, text)
    named, at, digest = path.partition("@")
    repository, colon, tag = named.partition(":")
    if at and not DIGEST.fullmatch(digest):
        raise BadRequest(f"the reference {text!r} has no digest after @: write sha256: and 64 hex digits")
    if colon and not TAG.fullmatch(tag):
        raise BadRequest(f"the reference {text!r} has the tag {tag!r}, which no registry takes: correct it")
    if not colon and not at:
        raise BadRequest(f"the reference {text!r} has no tag: write it, such as {scheme}://{rest}:latest")
    if len(repository) > MOST_NAME or not all(map(PART.fullmatch, repository.split("/"))):
        raise BadRequest(
            f"the reference {text!r} has the name {repository!r}, which no registry takes: names are parts "
            "of a-z and 0-9 between slashes, with . _ - inside"
        )
    if host in API_HOSTS and "/" not in repository:
        raise BadRequest(
            f"the reference {text!r} names no owner: write {scheme}://{authority}/library/{path} for an "
            "image of Docker Hub's own"
        )
    return Reference(scheme, host, port, repository, tag, digest)


def read_hosts(text: str) -> tuple[str, ...]:
    """Registries as references begin with them, between blanks or commas."""
    return tuple(_address_in(word) for word in text.replace(",", " ").split())


def _address_in(word: str) -> str:
    if "/" in word or "@" in word:
        raise BadRequest(f"{word!r} is not a registry: write HOST or HOST:PORT")
    return read_reference(f"docker://{word}/any/image:tag").address


def _registry(authority: str, path: str, text: str) -> tuple[str, int | None]:
    """The host and the port that a reference begins with. A name that might be either is refused."""
    lower = authority.lower()
    host, port = lower, None
    before, colon, digits = lower.rpartition(":")
    if colon and not lower.endswith("]"):
        if not (digits.isdigit() and len(digits) <= 5 and 0 < int(digits) < 65_536):
            raise BadRequest(f"the reference {text!r} has no usable port: {digits!r}")
        host, port = before, int(digits)
    if len(host) > 253 or not HOST.fullmatch(host):
        raise BadRequest(f"the reference {text!r} names no usable host: {host!r}")
    if port is None and "." not in host and "[" not in host and host != "localhost":
        raise BadRequest(
            f"the reference {text!r} may mean a registry called {host} or a name at Docker Hub: "
            f"write "
            f"{text.partition('://')[0]}://{host}:443/{path}, or {HUB}/{authority}/{path} after ://"
        )
    return host, port
