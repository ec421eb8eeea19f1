"""What the product offers, something of the product uses: a test alone is no reason to keep it."""

from __future__ import annotations

import pytest
from vulture import Vulture

from tests.repository import ROOT

PRODUCT = ("outrider", "cachemgr", "outrider_client", "plugins")
USERS = ("testbed", "tools", "bench", "packaging")
"""They are no product, but not there for tests either."""
DECORATED = ["@model_validator*", "@routes.*", "@*_validator*"]
"""Called by whoever the decorator tells."""
KINDS = ("class", "function", "method", "property")
UNCALLED = {
    # Python's own, and what libraries call.
    "__dir__", "__getattr__", "__init_subclass__",
    "field_title_should_be_set", "nullable_schema", "send_400_response",
    # Named in tables, and chosen by a word.
    "flat",
    # Called by users' programs.
    "wait_for_job",
    # Called by programs without the ending of a Python file.
    "path_of_config",
    # What a batch system that is none can be made to do: whoever tries Outrider out has no other way.
    "alter_ours", "be_unreachable_until", "delete_reservation", "plan_epilogs", "why_ended",
    # What is known, for whoever compares it with something else.
    "has_session", "live_transfers", "promised_start_s",
}  # fmt: skip


def unused(vulture: Vulture) -> set[tuple[str, str]]:
    """Where something is that nothing mentions, and its name."""
    return {
        (each.filename.as_posix(), each.name)
        for each in vulture.get_unused_code(min_confidence=60)
        if each.typ in KINDS
    }


@pytest.fixture(scope="module")
def uncalled() -> set[str]:
    vulture = Vulture(ignore_decorators=DECORATED)
    vulture.scavenge([str(ROOT / folder) for folder in (*PRODUCT, *USERS)])
    product = tuple(f"{(ROOT / folder).as_posix()}/" for folder in PRODUCT)
    return {name for file, name in unused(vulture) if file.startswith(product)}


def test_nothing_of_the_product_is_called_by_tests_alone(uncalled: set[str]) -> None:
    assert uncalled - UNCALLED == set()


def test_what_may_be_uncalled_is_there_and_is(uncalled: set[str]) -> None:
    assert UNCALLED - uncalled == set()


def test_what_nobody_mentions_is_found() -> None:
    vulture = Vulture(ignore_decorators=DECORATED)
    vulture.scan(
        "class Adapter:\n    def look(self): ...\n\n\ndef used(): ...\n\n\nused()\n", filename="a.py"
    )

    assert {name for _, name in unused(vulture)} == {"Adapter", "look"}
