"""Services under siege, one for all tests that leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemons.node.daemons import needs_root
from tests.security.siege import Siege, siege


@pytest.fixture(scope="session")
def service() -> Iterator[Siege]:
    """outriderd as root, with two nodes."""
    needs_root()
    with siege() as made:
        yield made
