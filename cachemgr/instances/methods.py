"""The ways to an instance, as a table: what each takes, what it needs, and which one is chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cachemgr.base.errors import BadRequest, Unsuitable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cachemgr.pool.instance_book import Maker
    from cachemgr.pool.records import PoolImage

NEEDS = {
    "reflink": "a file system that shares blocks (XFS or btrfs)",
    "bind": "root, to mount",
    "overlay": "root, to mount an overlay",
    "squashfs": "root and a site that lets it mount squashfs images",
}
"""The abilities of a pool that a method can need, in the words of an error."""
FILES = ("raw", "qcow2", "file", "sif")
SQUASHED = ("squashfs", "bundle")
"""A container's file system; with the runtime's configuration beside it, an OCI bundle."""
OPENED_READ_ONLY = ("sif",)
"""Formats whose runtimes open an image to read it, so that their jobs need no copy of it."""


@dataclass(frozen=True)
class Abilities:
    """What the pool's file system and the privileges there allow; of `NEEDS`, sorted."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if any(name not in NEEDS for name in self.names):
            raise BadRequest(f"abilities are some of {', '.join(NEEDS)}, not {', '.join(self.names)}")


@dataclass(frozen=True)
class Method:
    """`takes`: for each format what is needed; `on_request`: formats that are not chosen unasked."""

    is_writable: bool
    is_readable_only: bool
    takes: Mapping[str, tuple[str, ...]]
    on_request: tuple[str, ...] = ()
    gives: Mapping[str, str] = field(default_factory=dict)

    def serves(self, is_writable: bool) -> bool:
        return self.is_writable if is_writable else self.is_readable_only


def _all(formats: tuple[str, ...], *needs: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(formats, needs)


# In the order of preference. An overlay of qcow2 comes after reflink, since it hands a raw
# image over as another format, and reads through two files.
METHODS: Mapping[str, Method] = {
    "reflink": Method(
        is_writable=True,
        is_readable_only=False,
        takes=_all((*FILES, *SQUASHED), "reflink"),
        on_request=SQUASHED,
    ),
    "qcow2": Method(
        is_writable=True, is_readable_only=False, takes=_all(("raw", "qcow2")), gives={"raw": "qcow2"}
    ),
    "overlay": Method(
        is_writable=True,
        is_readable_only=False,
        takes={**_all(SQUASHED, "squashfs", "overlay"), "folder": ("overlay",)},
        gives=dict.fromkeys(SQUASHED, "folder"),
    ),
    "readonly": Method(
        is_writable=False,
        is_readable_only=True,
        takes={**_all(SQUASHED, "squashfs"), **_all((*FILES, "folder"), "bind")},
        # Who opens the image itself, by its path in the pool, needs no mount for that.
        on_request=OPENED_READ_ONLY,
        gives=dict.fromkeys(SQUASHED, "folder"),
    ),
    # The image itself, by its path in the pool: a bind mount without the mount.
    "shared": Method(is_writable=False, is_readable_only=True, takes=_all((*FILES, *SQUASHED, "folder"))),
    "copy": Method(
        is_writable=True,
        is_readable_only=True,
        takes=_all((*FILES, *SQUASHED)),
        on_request=SQUASHED,
    ),
}


def is_writable_unasked(maker: Maker, image: PoolImage) -> bool:
    """Whether an instance is writable if nobody has said whether it has to be. A container's file system is
    as good read-only, where the node cannot lay anything over it."""
    if image.format not in SQUASHED:
        return image.format not in OPENED_READ_ONLY
    try:
        maker.choose(image, None, is_writable=True)
    except Unsuitable:
        return False
    return True


def choose(
    image_format: str, abilities: Abilities, wanted: str | None = None, *, is_writable: bool = True
) -> str:
    """The name of a method: the one that is wanted, or the first that is possible."""
    if wanted is not None:
        reason = _obstacle(wanted, image_format, abilities, is_writable)
        if reason:
            others = _possible(image_format, abilities, is_writable)
            remedy = f"possible: {', '.join(others)}" if others else _nothing(image_format, is_writable)
            raise Unsuitable(f"method {wanted} is not possible: {reason}; {remedy}")
        return wanted
    for name in _possible(image_format, abilities, is_writable):
        if image_format not in METHODS[name].on_request:
            return name
    raise Unsuitable(
        f"no {_kind(is_writable)} instance of a {image_format} image is possible: "
        f"{_nothing(image_format, is_writable)}"
    )


def _possible(image_format: str, abilities: Abilities, is_writable: bool) -> list[str]:
    return [name for name in METHODS if not _obstacle(name, image_format, abilities, is_writable)]


def _obstacle(name: str, image_format: str, abilities: Abilities, is_writable: bool) -> str:
    """Why a method does not serve; nothing if it does."""
    if name not in METHODS:
        raise BadRequest(f"there is no method {name!r}: choose one of {', '.join(METHODS)}")
    method = METHODS[name]
    if not method.serves(is_writable):
        return f"it gives no {_kind(is_writable)} instance"
    if image_format not in method.takes:
        return f"it takes no {image_format} image"
    missing = [need for need in method.takes[image_format] if need not in abilities.names]
    return f"it needs {', and '.join(NEEDS[need] for need in missing)}" if missing else ""


def _nothing(image_format: str, is_writable: bool) -> str:
    """What would have to change for some method to serve."""
    ways = [
        f"{name} needs {', and '.join(NEEDS[need] for need in method.takes[image_format])}"
        for name, method in METHODS.items()
        if method.serves(is_writable) and method.takes.get(image_format)
    ]
    if is_writable:
        ways.append("a read-only instance is always possible")
    return "; ".join(ways)


def _kind(is_writable: bool) -> str:
    return "writable" if is_writable else "read-only"
