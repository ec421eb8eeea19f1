"""Images that a job's machines need beside the first one: data, which all of them read, and images of roles.

    data: https://data.example.org/genes.raw name=genes digest=sha256:0123…
    role: head image=https://images.example.org/head.qcow2 digest=sha256:0123…

A data image is found in the guest at /data/NAME; without a name it is data1, data2 and so on, by its place
among them. plugins/slurm/outrider_images.lua reads the same, and numbers the images alike: data first, then
those of roles, each once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.metadata.errors import TextError, shown
from outrider.metadata.notation.role_lines import JobRole
from outrider.metadata.notation.uris import read_uri

DISK_FORMATS = ("", "qcow2", "raw")
"""Of what a machine boots from; empty if nobody has said."""
DATA_FORMATS = (*DISK_FORMATS, "squashfs", "file")
MOST_DATA, MOST_FURTHER = 6, 8
RESERVED = ("job", "work", "seed", "root", "scratch")
"""Names of a machine's other disks."""

_NAME = re.compile(r"[a-z][a-z0-9]{0,14}")
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_PART = re.compile(r"(name|digest)=([!-~]{1,100})")


@dataclass(frozen=True, kw_only=True, slots=True)
class DataImage:
    """A disk that all machines of a job read and none writes."""

    image: str
    name: str
    digest: str = ""
    text: str = ""
    """As its user has written it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FurtherImage:
    """An image that has to be on all nodes of a job beside its own."""

    what: str
    """What it is to the job, for messages."""
    image: str
    digest: str
    formats: tuple[str, ...]


def read_data(texts: Sequence[str]) -> tuple[DataImage, ...]:
    """What these lines say, in their order. Raises TextError."""
    if len(texts) > MOST_DATA:
        raise TextError(f"there are {len(texts)} data images: at most {MOST_DATA} are read")
    found: list[DataImage] = []
    for number, text in enumerate(texts, 1):
        image = _data(text, f"data{number}")
        if any(each.name == image.name for each in found):
            raise TextError(f"data: two images are called {image.name}: give each a name=NAME of its own")
        found.append(image)
    return tuple(found)


def further_images(data: Sequence[DataImage], roles: Sequence[JobRole]) -> tuple[FurtherImage, ...]:
    """All of a job, in the order of their numbers. Raises TextError if there are too many."""
    found = [
        FurtherImage(
            what=f"data image {each.name},", image=each.image, digest=each.digest, formats=DATA_FORMATS
        )
        for each in data
    ]
    seen: set[tuple[str, str]] = set()
    for role in roles:
        if role.image and (role.image, role.digest) not in seen:
            seen.add((role.image, role.digest))
            found.append(
                FurtherImage(
                    what=f"image of role {role.name},",
                    image=role.image,
                    digest=role.digest,
                    formats=DISK_FORMATS,
                )
            )
    if len(found) > MOST_FURTHER:
        raise TextError(
            f"there are {len(found)} data images and images of roles: at most {MOST_FURTHER} together"
        )
    return tuple(found)


def _data(text: str, name: str) -> DataImage:
    image, *parts = [part for part in text.replace("\t", " ").split(" ") if part] or [""]
    if not image or _PART.fullmatch(image) is not None:
        raise TextError(
            f"data: {shown(image)} is not an image: begin with its address, or its name in the catalogue"
        )
    said: dict[str, str] = {}
    for part in parts:
        split = _PART.fullmatch(part)
        if split is None:
            raise TextError(
                f"data: {shown(part)} is not known: behind the image there may be name= and digest="
            )
        if split[1] in said:
            raise TextError(f"data: {split[1]} is given twice: give it once")
        said[split[1]] = split[2]
    name = said.get("name", name)
    if _NAME.fullmatch(name) is None or name in RESERVED:
        raise TextError(
            f"data: {shown(name)} is not a name: write up to 15 of a-z 0-9, a letter first, none of "
            f"{', '.join(RESERVED)}"
        )
    digest = said.get("digest", "")
    if digest and _DIGEST.fullmatch(digest) is None:
        raise TextError(f"data: digest is {shown(digest)}: write sha256: and 64 hexadecimal digits")
    return DataImage(image=read_uri(image), name=name, digest=digest, text=" ".join([image, *parts]))
