"""The kinds of sources, by the scheme of their addresses: what the configuration and users may name.

A new kind has a row here and a row in `sources.py`, and, if users may reserve with it, one in
`outrider/service/images/resolving.py`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """`form` is how an address is written. Users may add from it unless the configuration says otherwise.

    Of what is `signed` the service gives nodes an address for each transfer: they have no key of their own.
    """

    form: str
    is_for_users: bool = False
    is_signed: bool = False


KINDS = {
    "file": Kind("file:///path, /path", is_for_users=True),
    "http": Kind("http://host/path", is_for_users=True),
    "https": Kind("https://host/path", is_for_users=True),
    "docker": Kind("docker://host/name:tag", is_for_users=True),
    "oras": Kind("oras://host/name:tag", is_for_users=True),
    "s3": Kind("s3://bucket/key", is_signed=True),
    "ssh": Kind("ssh://user@host/path"),
    "sftp": Kind("sftp://user@host/path"),
    "rsync": Kind("rsync://host/module/path"),
    "relay": Kind("relay://host:port/sha256:digest"),
}
# What a daemon goes on with by the address alone.
RESUMED = tuple(scheme for scheme, kind in KINDS.items() if not kind.is_signed)
