"""Values as JSON and back: equal whatever they are, and refused when a later version wrote them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.core.images.pools import Lingering
from outrider.core.links.links import TransferStanding
from outrider.core.model import (
    Image,
    ImagePart,
    KeptHold,
    Placement,
    Reservation,
    Resources,
    Transfer,
    Workspace,
)
from outrider.core.restart.snapshot import (
    KeptCopy,
    KeptPool,
    KeptTransfer,
)
from outrider.store import forms
from outrider.store.errors import Damaged, TooNew
from tests.amount import examples
from tests.unit.store.samples import reservation, transfer

T = TypeVar("T")
SETTINGS = settings(max_examples=examples(150), deadline=None, derandomize=True)

instants = st.integers(0, 1 << 40)
sizes = st.integers(1, 1 << 60)
names = st.text(min_size=1, max_size=12)
copies = st.lists(st.tuples(names, st.integers(1, 1 << 40)), max_size=4).map(tuple)
image_parts = st.lists(st.builds(ImagePart, key=names, size_bytes=sizes), max_size=3).map(tuple)
images = st.builds(
    Image,
    uri=names,
    size_bytes=sizes,
    digest=st.text(max_size=8),
    parts=image_parts,
    is_private=st.booleans(),
)
resources = st.dictionaries(names, st.integers(1, 1 << 50), max_size=3).map(Resources.from_mapping)
holds = st.lists(
    st.builds(
        KeptHold, image=images, copies=copies, transfer=st.none() | st.integers(1, 99), since_s=instants
    ),
    max_size=3,
).map(tuple)


@st.composite
def workspaces(draw: st.DrawFn) -> Workspace:
    start_s, duration_s = draw(instants), draw(st.integers(1, 1 << 30))
    slack_s = draw(st.none() | st.integers(0, 1000))
    return Workspace(
        name=draw(names),
        instances=draw(st.integers(1, 1 << 20)),
        resources=draw(resources),
        duration_s=duration_s,
        image=draw(st.none() | images),
        start_s=start_s,
        finish_by_s=None if slack_s is None else start_s + duration_s + slack_s,
        is_parallel=draw(st.booleans()),
        is_preemptible=draw(st.booleans()),
    )


placements = st.lists(st.builds(Placement, node=names, instances=st.integers(1, 999)), max_size=4).map(tuple)
reservations = st.builds(
    Reservation,
    workspace=workspaces(),
    start_s=instants,
    end_s=instants,
    placements=placements,
    transfers=st.lists(st.integers(1, 1 << 40), max_size=4).map(tuple),
    holds=holds,
)
transfers = st.builds(
    Transfer,
    number=st.integers(1, 1 << 40),
    image=images,
    nodes=st.lists(names, max_size=4).map(tuple),
    duration_s=instants,
    release_s=instants,
    deadline_s=st.none() | instants,
)


@st.composite
def kept_transfers(draw: st.DrawFn) -> KeptTransfer:
    value = draw(transfers)
    standing = TransferStanding(
        transfer=value,
        has_begun=draw(st.booleans()),
        start_s=draw(st.none() | instants),
        end_s=draw(st.none() | instants),
        left_bytes=draw(st.none() | sizes),
    )
    return KeptTransfer(
        transfer=value,
        on_disk_s=draw(instants),
        ready_s=draw(instants),
        standing=draw(st.sampled_from([None, standing])),
        unwanted=draw(st.lists(st.tuples(names, instants, instants), max_size=3).map(tuple)),
    )


pools = st.builds(
    KeptPool,
    node=names,
    lingering=st.lists(
        st.builds(
            Lingering,
            key=names,
            size_bytes=sizes,
            added_s=instants,
            uses=instants,
            last_use_s=instants,
            next_use_s=st.none() | instants,
        ),
        max_size=3,
    ).map(tuple),
    leaving=st.lists(
        st.builds(KeptCopy, image=images, number=instants, ready_s=instants, expires_s=instants), max_size=2
    ).map(tuple),
    uses=st.lists(st.tuples(names, instants), max_size=3).map(tuple),
)


@SETTINGS
@given(reservations)
def test_a_reservation_is_read_as_it_was_written(kept: Reservation) -> None:
    assert forms.read_reservation(forms.write_reservation(kept)) == kept


@SETTINGS
@given(kept_transfers())
def test_a_transfer_is_read_as_it_was_written(kept: KeptTransfer) -> None:
    assert forms.read_transfer(forms.write_transfer(kept)) == kept


@SETTINGS
@given(pools)
def test_a_pool_is_read_as_it_was_written(kept: KeptPool) -> None:
    assert forms.read_pool(forms.write_pool(kept)) == kept


TEXTS: dict[str, tuple[str, Callable[[str], object]]] = {
    "reservation": (forms.write_reservation(reservation("w", 1)), forms.read_reservation),
    "transfer": (
        forms.write_transfer(replace(transfer(1, has_begun=True), unwanted=(("n", 1, 2),))),
        forms.read_transfer,
    ),
    "pool": (
        forms.write_pool(
            KeptPool(
                node="n",
                lingering=(
                    Lingering(key="k", size_bytes=1, added_s=0, uses=1, last_use_s=0, next_use_s=None),
                ),
                leaving=(KeptCopy(image=Image(uri="u", size_bytes=1), number=1, ready_s=0, expires_s=1),),
                uses=(("k", 1),),
            )
        ),
        forms.read_pool,
    ),
}


def objects(value: object) -> list[dict[str, object]]:
    """Every JSON object within a value, outermost first, but for the free names of resources."""
    found: list[dict[str, object]] = []
    if isinstance(value, dict):
        found.append(value)
        for name, below in value.items():
            found += [] if name == "resources" else objects(below)
    elif isinstance(value, list):
        for below in value:
            found += objects(below)
    return found


@pytest.mark.parametrize("name", TEXTS)
def test_a_field_of_a_later_version_is_refused_wherever_it_stands(name: str) -> None:
    text, read = TEXTS[name]
    count = len(objects(json.loads(text)))
    for index in range(count):
        document = json.loads(text)
        objects(document)[index]["colour"] = "blue"
        with pytest.raises(TooNew, match="colour"):
            read(json.dumps(document))

    assert count >= 3


@pytest.mark.parametrize("name", TEXTS)
def test_a_later_version_is_refused_with_the_remedy(name: str) -> None:
    text, read = TEXTS[name]
    document = json.loads(text) | {"version": 2, "colour": "blue"}

    with pytest.raises(TooNew, match=r"has version 2.*upgrade"):
        read(json.dumps(document))


@pytest.mark.parametrize("name", TEXTS)
def test_a_missing_field_or_one_of_another_kind_is_damage(name: str) -> None:
    text, read = TEXTS[name]
    refused = 0
    for index in range(len(objects(json.loads(text)))):
        for field in sorted(objects(json.loads(text))[index]):
            for wrong in (1.5, "?", None, -1, [1], {"x": 1}, True, ...):
                document = json.loads(text)
                if wrong is ...:
                    del objects(document)[index][field]
                else:
                    objects(document)[index][field] = wrong
                try:
                    read(json.dumps(document))
                except (Damaged, TooNew):
                    refused += 1

    assert refused > 50


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"version":1}', '{"version":true}', "nan"])
def test_what_is_not_a_document_is_damage(text: str) -> None:
    for _, read in TEXTS.values():
        with pytest.raises(Damaged):
            read(text)
