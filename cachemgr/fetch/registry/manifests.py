"""What registries say of images: manifests and indexes, read to the one blob that is an image, or to the
layers of a container's."""

from __future__ import annotations

import json
from dataclasses import dataclass

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.references import DIGEST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Union

    from cachemgr.fetch.registry.references import Reference

    Read = Union["Blob", "Inner", "Container"]

# Registries take no larger ones.
MOST_BYTES = 4 << 20
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
ACCEPT = ", ".join(MANIFESTS + INDEXES)
# Whose layers are the parts of a container's file system. What oras pushes has another configuration, though
# its files may have the type of a layer.
CONTAINER_CONFIGS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
)
UNPACK = "io.deis.oras.content.unpack"
TITLE = "org.opencontainers.image.title"
MOST_SHOWN = 8
MOST_LAYERS = 512
# Their bytes are not in the registry but at an address of somebody else's, whom nobody here asks.
FOREIGN = ("foreign", "nondistributable")
LAYERS = ("tar", "tar+gzip", "tar+zstd", "tar.gzip", "tar.zstd")


@dataclass(frozen=True)
class Blob:
    """The image itself: what its bytes are."""

    digest: str
    size_bytes: int
    title: str = ""


@dataclass(frozen=True)
class Container:
    """A container image: its configuration, and its layers from below to above."""

    config: Blob
    layers: tuple[Blob, ...]


@dataclass(frozen=True)
class Inner:
    """The manifest for a platform, in an index."""

    digest: str


def read(body: bytes, reference: Reference, platform: str) -> Read:
    """The blob that a manifest names, or the manifest that an index names for a platform.

    Raises `SourceFault`, always for good: a manifest does not change.
    """
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _fault(f"{reference} has a manifest that is not JSON: push it again") from error
    if not isinstance(found, dict):
        raise _fault(f"{reference} has a manifest that is not a JSON object: push it again")
    if isinstance(found.get("manifests"), list):
        return _of_index(found["manifests"], reference, platform)
    if isinstance(found.get("layers"), list):
        return _of_manifest(found, found["layers"], reference)
    kind = _text(found, "mediaType") or f"schema {found.get('schemaVersion')!r:.20}"
    raise _fault(f"{reference} has a manifest of an unknown kind ({kind:.100}): push it again as OCI")


def _of_index(entries: list[object], reference: Reference, platform: str) -> Inner:
    offered = []
    for entry in entries:
        part = entry if isinstance(entry, dict) else {}
        of = part.get("platform")
        system = f"{_text(of, 'os')}/{_text(of, 'architecture')}" if isinstance(of, dict) else ""
        variant = _text(of, "variant") if isinstance(of, dict) else ""
        if platform in (system, f"{system}/{variant}"):
            return Inner(_digest(part, reference))
        if system and system != "unknown/unknown":
            offered.append(f"{system}/{variant}" if variant else system)
    if len(entries) == 1 and not offered:
        # An artefact in an index of one, which says nothing of platforms.
        return Inner(_digest(entries[0], reference))
    shown = ", ".join(dict.fromkeys(each[:40] for each in offered[:MOST_SHOWN])) or "none"
    more = ", …" if len(offered) > MOST_SHOWN else ""
    raise _fault(
        f"{reference} has no image for {platform}, only for {shown}{more}: push one for {platform}, or name "
        "the manifest that you want by its @sha256: digest"
    )


def _of_manifest(manifest: dict[str, object], layers: list[object], reference: Reference) -> Blob | Container:
    config = manifest.get("config")
    if isinstance(config, dict) and _text(config, "mediaType") in CONTAINER_CONFIGS:
        return _container(config, layers, reference)
    if len(layers) != 1:
        raise _fault(
            f"{reference} has {in_layers(len(layers))}: an image is one file; push it by itself, for "
            "instance "
            "`oras push HOST/NAME:TAG image.sif`"
        )
    layer = layers[0]
    notes = layer.get("annotations") if isinstance(layer, dict) else None
    if isinstance(notes, dict) and notes.get(UNPACK) == "true":
        raise _fault(
            f"{reference} is a folder that oras has packed: push one file instead, such as a squashfs of it"
        )
    return Blob(_digest(layer, reference), _size(layer, reference), _text(notes, TITLE)[:255])


def _container(config: dict[str, object], layers: list[object], reference: Reference) -> Container:
    if not 0 < len(layers) <= MOST_LAYERS:
        raise _fault(f"{reference} has {in_layers(len(layers))}: from 1 to {MOST_LAYERS} can be converted")
    for number, layer in enumerate(layers, 1):
        kind = _text(layer, "mediaType")
        if any(word in kind for word in FOREIGN):
            raise _fault(
                f"layer {number} of {reference} is foreign: it is not in the registry, and is not fetched "
                "from "
                "elsewhere; push the image with `skopeo copy --dest-decompress`, or without that layer"
            )
        if not kind.endswith(LAYERS):
            raise _fault(f"layer {number} of {reference} is of an unknown kind ({kind:.100}): push it again")
    parts = [Blob(_digest(each, reference), _size(each, reference)) for each in [config, *layers]]
    return Container(parts[0], tuple(parts[1:]))


def in_layers(count: int) -> str:
    return f"{count} layer{'' if count == 1 else 's'}"


def not_one_file(reference: Reference, found: Container) -> SourceFault:
    """For whoever needs one file: nodes do not convert."""
    return _fault(
        f"{reference} is a container image of {in_layers(len(found.layers))}, which would have to be "
        "converted: make one file of it and push that, for instance `apptainer build image.sif docker://…` "
        "and "
        "`apptainer push image.sif oras://…`"
    )


def _size(part: object, reference: Reference) -> int:
    size_bytes = part.get("size") if isinstance(part, dict) else None
    if type(size_bytes) is not int or not 0 <= size_bytes < 1 << 60:
        raise _fault(f"{reference} has a manifest that does not say the size of its image: push it again")
    return size_bytes


def _digest(part: object, reference: Reference) -> str:
    digest = _text(part, "digest")
    if not DIGEST.fullmatch(digest):
        raise _fault(
            f"{reference} names what it consists of by {digest[:80]!r} and not by sha256: push it again"
        )
    return digest


def _text(part: object, name: str) -> str:
    value = part.get(name) if isinstance(part, dict) else None
    return value if isinstance(value, str) else ""


def _fault(words: str) -> SourceFault:
    return SourceFault(words, is_final=True)
