"""What stands beside a promise on the disk, and cannot be read, is told with a remedy."""

from __future__ import annotations

from datetime import UTC

import pytest

from outrider.core.model import ImagePart
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import parse_workspace
from outrider.service.desk.state.documents import (
    Record,
    document_of,
    document_of_role,
    read_document,
    read_record,
    write_record,
)
from outrider.service.ports import FoundImage
from outrider.service.requests import Reserve
from outrider.store.errors import Damaged, TooNew
from tests.unit.service.desk.sandbox import ALICE


@pytest.mark.parametrize("text", ["{}", '{"version":1}', "[]", "7", "{", '{"version":1,"readers":3}'])
def test_a_document_that_cannot_be_read_is_the_stores_damage(text: str) -> None:
    with pytest.raises(Damaged, match=r"what a user asked for cannot be read .+: put a backup back"):
        read_document(text)


def test_a_document_of_a_later_version_says_so() -> None:
    with pytest.raises(TooNew, match="version 2 is not known: update outriderd"):
        read_document('{"version":2}')


def test_a_receipt_is_read_as_it_was_written_or_refused() -> None:
    record = Record(ready_s=5, sources=("relay n1",), brought=("n2",))

    assert read_record(write_record(record)) == record
    with pytest.raises(Damaged, match="a receipt cannot be read"):
        read_record('{"version":1,"more":2}')


def test_role_with_an_image_of_its_own_has_the_layers_of_that() -> None:
    common, own, others = (ImagePart(key=key, size_bytes=5) for key in ("sha256:c", "sha256:o", "sha256:e"))
    text = b"""
version: 1
metadata:
  name: mpi
  image: {uri: "docker://registry/head"}
  roles:
    - {name: worker, hosts: "w[1-2]", image: {uri: "docker://registry/worker"}}
    - {name: head, hosts: h1}
deployment: {nodes: 3, duration: 1h, start: now+1h}
"""
    request = Reserve(
        workspace=parse_workspace(text, Circumstances(now_s=1_000_000, zone=UTC), file="ws.yaml"),
        image=FoundImage(size_bytes=10, digest="sha256:1", parts=(common, own)),
        role_images=(FoundImage(size_bytes=10, digest="sha256:2", parts=(common, others)), None),
    )
    document = document_of(request, ALICE)

    roles = [document_of_role(document, number, request, ALICE, "mpi-1") for number in range(2)]

    assert [(each.digest, each.parts) for each in roles] == [
        ("sha256:2", (common, others)),
        ("sha256:1", (common, own)),
    ]
