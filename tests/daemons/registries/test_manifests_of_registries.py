"""What a manifest or an index says, and what no image can be read from."""

from __future__ import annotations

import json

import pytest

from cachemgr.fetch.faults import SourceFault
from cachemgr.fetch.registry.manifests import Blob, Inner, read
from cachemgr.fetch.registry.references import read_reference

REFERENCE = read_reference("oras://images:5000/team/render:v1")
DIGEST = f"sha256:{'a' * 64}"
LAYER = {"mediaType": "application/octet-stream", "digest": DIGEST, "size": 7}


def manifest(*layers: object) -> bytes:
    return json.dumps({"schemaVersion": 2, "config": {"mediaType": "any"}, "layers": layers}).encode()


def index(*platforms: object) -> bytes:
    entries = [{"digest": DIGEST, **({"platform": each} if each else {})} for each in platforms]
    return json.dumps({"schemaVersion": 2, "manifests": entries}).encode()


def test_only_layer_is_the_image_and_its_title_the_name() -> None:
    titled = {**LAYER, "annotations": {"org.opencontainers.image.title": "render.sif"}}

    assert read(manifest(LAYER), REFERENCE, "linux/amd64") == Blob(DIGEST, 7)
    assert read(manifest(titled), REFERENCE, "linux/amd64") == Blob(DIGEST, 7, "render.sif")


@pytest.mark.parametrize("platform", ["linux/arm64", "linux/arm64/v8"])
def test_variant_of_a_platform_is_that_platform(platform: str) -> None:
    body = index({"os": "linux", "architecture": "arm64", "variant": "v8"})

    assert read(body, REFERENCE, platform) == Inner(DIGEST)


def test_index_of_one_that_names_no_platform_is_that_one() -> None:
    assert read(index(None), REFERENCE, "linux/amd64") == Inner(DIGEST)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "is not a JSON object"),
        (b'{"schemaVersion": 1, "fsLayers": []}', "of an unknown kind (schema 1)"),
        (b'{"mediaType": "x/y"}', "of an unknown kind (x/y)"),
        (manifest(), "has 0 layers: an image is one file"),
        (manifest(LAYER, LAYER), "has 2 layers: an image is one file"),
        (manifest("layer"), "by '' and not by sha256"),
        (manifest({**LAYER, "digest": "sha512:1"}), "by 'sha512:1' and not by sha256"),
        (manifest({**LAYER, "digest": f"{DIGEST}/../x"}), "and not by sha256"),
        (manifest({**LAYER, "size": -1}), "does not say the size"),
        (manifest({**LAYER, "size": True}), "does not say the size"),
        (manifest({**LAYER, "size": "7"}), "does not say the size"),
        (manifest({**LAYER, "size": 1 << 60}), "does not say the size"),
        (index(), "has no image for linux/amd64, only for none"),
        (index(None, None), "has no image for linux/amd64, only for none"),
        (index({"os": "linux", "architecture": "arm64"}), "only for linux/arm64: push one for linux/amd64"),
        (index({"os": "linux"}, [], 5), "has no image for linux/amd64"),
    ],
)
def test_manifest_without_an_image_is_refused_for_good(body: bytes, words: str) -> None:
    with pytest.raises(SourceFault) as refused:
        read(body, REFERENCE, "linux/amd64")

    assert words in str(refused.value)
    assert refused.value.is_final
