"""What stands beside a promise on the disk, and cannot be read, is told with a remedy."""

from __future__ import annotations

import pytest

from outrider.service.desk.state.documents import Record, read_document, read_record, write_record
from outrider.store.errors import Damaged, TooNew


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
