"""The page of machines against the engine: states, verbs, and the keys of a wish."""

from __future__ import annotations

import re

from cachemgr.machines.__main__ import VERBS
from cachemgr.machines.states import STATES
from cachemgr.machines.wish import MachineDisk, MachineJob, MachineWish
from tests.repository import ROOT
from tools import site_tables

PAGE = site_tables.on_page_markdown((ROOT / "docs/howto/machines.md").read_text())


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    text = PAGE.split(f"\n## {heading}\n", 1)[1]
    table = re.search(r"(?:^\|.*\n)+", text, re.MULTILINE)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[0].splitlines()[2:]]


def test_table_of_states_is_that_of_the_engine() -> None:
    told = {row[0].strip("`"): row[1:] for row in rows("States")}
    known = {
        name: [row.meaning, ", ".join(f"`{each}`" for each in row.follows) or "–", row.alive, row.dead]
        for name, row in STATES.items()
    }

    assert told == known


def test_every_verb_is_told() -> None:
    assert {row[0].strip("`").split()[0] for row in rows("Calls")} == {*VERBS, "run", "facts"}


def test_every_key_of_a_wish_is_told() -> None:
    table = rows("A wish")
    told = {name for row in table for name in re.findall(r"`([a-z_]+)`", row[0])}
    within = {row[0].strip("`"): set(re.findall(r"`([a-z_]+)`", row[1])) for row in table}

    assert told == set(MachineWish.__annotations__)
    assert set(MachineDisk.__annotations__) <= within["disks"]
    assert set(MachineJob.__annotations__) <= within["job"]
