"""Where an image is, as users write it: parsing and refusing, before any program or host sees it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from cachemgr.base.errors import BadRequest
from cachemgr.fetch.registry import references
from cachemgr.fetch.sources.kinds import KINDS

SUPPORTED = ", ".join(kind.form for kind in KINDS.values())
WITH_HOST = ("http", "https", "ssh", "sftp", "rsync", "relay")
MOST_CHARACTERS = 4096
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
# Neither a name nor an address begins with "-", so neither can be taken for an option.
HOST = re.compile(
    r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?|(?=[0-9A-Fa-f.]*:)[0-9A-Fa-f:.]+(?:%[A-Za-z0-9]+)?"
)
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*")
UNPRINTABLE = re.compile(r"[\x00-\x20\x7f-\x9f]")
# A server of rsync expands these, so that one URI could name many files.
PATTERN = re.compile(r"[*?\[\]\\]")


@dataclass(frozen=True)
class Location:
    """A checked URI. `target` is what an HTTP request asks for, `path` the decoded path elsewhere."""

    scheme: str
    path: str
    host: str = ""
    port: int | None = None
    user: str | None = None
    password: str | None = None
    target: str = ""

    @property
    def name(self) -> str:
        """The URI without credentials and without a query, which may hold a signature."""
        if self.scheme == "file":
            return f"file://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port is None else f":{self.port}"
        path = self.target.partition("?")[0] if self.target else self.path
        return f"{self.scheme}://{host}{port}{path}"

    @property
    def digest(self) -> str:
        """What a relay is asked for."""
        return self.path[1:]


def parse(uri: str) -> Location:
    """The location that a URI or an absolute path names, or `BadRequest` saying what is wrong with it."""
    if len(uri) > MOST_CHARACTERS:
        raise BadRequest(f"the URI of an image has {len(uri)} characters; at most {MOST_CHARACTERS} are read")
    if uri.startswith("/"):
        return _local(uri, uri)
    if uri.partition("://")[0] in references.SCHEMES:
        found = references.read_reference(uri)
        return Location(found.scheme, found.path, host=found.host.strip("[]"), port=found.port)
    if UNPRINTABLE.search(uri):
        raise BadRequest(f"the URI {uri!r} has a space or control character: write it as %20 and so on")
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise BadRequest(f"the URI {uri!r} cannot be read: {error}") from error
    scheme = parts.scheme
    if scheme not in KINDS:
        raise BadRequest(f"the URI {uri!r} is of no supported kind; supported are {SUPPORTED}")
    if scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise BadRequest(f"the URI {uri!r} names host {parts.netloc!r}: a file:// URI is of this host")
        return _local(unquote(parts.path), uri)
    if scheme == "s3":
        return _object(uri)
    if scheme not in WITH_HOST:
        return _plain(uri, scheme)
    if not HOST.fullmatch(host):
        raise BadRequest(f"the URI {uri!r} names no usable host: {host!r}")
    if scheme in ("http", "https"):
        return _web(uri)
    return _remote(uri, scheme, host, port)


def _plain(uri: str, scheme: str) -> Location:
    """What follows the scheme, as a path that means something to the source of that kind alone."""
    parts = urlsplit(uri)
    path = unquote(parts.netloc + parts.path)
    if "@" in parts.netloc or parts.query or parts.fragment or UNPRINTABLE.search(path):
        raise BadRequest(f"the URI {uri!r} has a user, query or fragment, which {scheme} does not know")
    if not path:
        raise BadRequest(f"the URI {uri!r} names nothing")
    return Location(scheme=scheme, path=path)


def _local(path: str, uri: str) -> Location:
    if not path.startswith("/") or "\0" in path:
        raise BadRequest(f"{uri!r} is not an absolute path on this host")
    return Location(scheme="file", path=path)


def _web(uri: str) -> Location:
    parts = urlsplit(uri)
    if not parts.path.startswith("/") and parts.path:
        raise BadRequest(f"the URI {uri!r} has no path that begins with a slash")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    if not target.isascii():
        raise BadRequest(f"the URI {uri!r} has letters beyond ASCII: write them as %C3%A9 and so on")
    return Location(
        scheme=parts.scheme,
        path=unquote(parts.path or "/"),
        host=parts.hostname or "",
        port=parts.port,
        user=None if parts.username is None else unquote(parts.username),
        password=None if parts.password is None else unquote(parts.password),
        target=target,
    )


def _object(uri: str) -> Location:
    """The bucket is the host: which store has it is the site's to say."""
    parts = urlsplit(uri)
    if not BUCKET.fullmatch(parts.netloc):
        raise BadRequest(f"the URI {uri!r} is not s3://bucket/key: {parts.netloc!r} is not a bucket's name")
    if parts.query or parts.fragment or not uri.isascii():
        raise BadRequest(
            f"the URI {uri!r} has a query, fragment or letters beyond ASCII: write %3F, %23, %C3%A9"
        )
    path = unquote(parts.path)
    # Servers on the way make one address of these and others, and a signature is for one.
    if (
        not path.strip("/")
        or path.endswith("/")
        or any(each in ("", ".", "..") for each in path[1:].split("/"))
    ):
        raise BadRequest(
            f"the URI {uri!r} names no object: its key is empty, or has a part that is, or is a dot"
        )
    return Location(scheme="s3", path=path, host=parts.netloc, target=parts.path)


def _remote(uri: str, scheme: str, host: str, port: int | None) -> Location:
    parts = urlsplit(uri)
    path = unquote(parts.path)
    if parts.password is not None:
        raise BadRequest(
            f"the {scheme}:// URI of host {host} has a password: use a key of the service instead"
        )
    if parts.query or parts.fragment:
        raise BadRequest(f"the URI {uri!r} has a query or fragment, which {scheme} does not know")
    user = None if parts.username is None else unquote(parts.username)
    if user is not None and not USER.fullmatch(user):
        raise BadRequest(f"the URI {uri!r} names no usable user: {user!r}")
    if len(path) < 2 or not path.startswith("/") or any(ord(letter) < 32 for letter in path):
        raise BadRequest(f"the URI {uri!r} names no file")
    if scheme == "rsync" and (PATTERN.search(path) or path.count("/") < 2):
        raise BadRequest(f"the URI {uri!r} is not rsync://host/module/path of one file without * ? [ ] \\")
    if scheme == "relay" and (port is None or not DIGEST.fullmatch(path[1:])):
        raise BadRequest(f"the URI {uri!r} is not relay://host:port/sha256:<64 hexadecimal digits>")
    return Location(scheme=scheme, path=path, host=host, port=port, user=user)
