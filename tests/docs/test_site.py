"""The site that `make docs` builds: strictly, with each page; and the tables of two pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.repository import ROOT

ARCHITECTURE = (ROOT / "docs/explanation/architecture.md").read_text()
WANTED = (
    "a source of images",
    "a policy",
    "a batch system",
    "an action on nodes",
    "the wording of a refusal",
    "a column of a list",
    "a kind of lease",
    "a format of workloads",
    "a metric",
    "an option of the configuration",
    "a plot",
)
MOST_TERMS = 40
MOST_PAGES = 30
MOST_WORDS = 50_000


def rows_below(text: str, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    section = text.split(f"\n{heading}\n", 1)[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def build(source: Path, site: Path) -> subprocess.CompletedProcess[str]:
    # Not --quiet: with it mkdocs counts no warnings, and --strict lets all of them pass.
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(source), "-d", str(site)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )


def test_site_is_built_without_a_warning_and_has_every_page(tmp_path: Path) -> None:
    done = build(ROOT / "mkdocs.yml", tmp_path / "site")
    pages = {path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")}
    made = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").rglob("*.html")}

    assert (done.returncode, "WARNING" in done.stderr) == (0, False), done.stderr
    assert pages - made == set()
    assert (tmp_path / "site/search/search_index.json").exists()
    for page, shown in (
        ("reference/outriderd", "OUTRIDER_LINK_RATE"),
        ("reference/outriderd", "outrider_slack_at_start_seconds"),
        ("reference/daemon", "outrider_pool_held_bytes"),
        ("research/physical", "III/pool+calendar"),
        ("research/papers", "8.5-joins-any-image"),
    ):
        assert shown in (tmp_path / f"site/{page}.html").read_text(), shown
    assert "user_stall = 5m" in (tmp_path / "site/reference/daemon.html").read_text()


def test_dead_link_and_dead_anchor_fail(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# One\n\n[a](two.md) [b](#three)\n")
    configuration = (ROOT / "mkdocs.yml").read_text()
    nav = re.compile(r"^(?:nav|hooks):\n(?: .*\n)+", re.MULTILINE)
    (tmp_path / "mkdocs.yml").write_text(nav.sub("", configuration))

    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")

    assert done.returncode != 0
    assert "two.md" in done.stderr
    assert "#three" in done.stderr


def test_table_of_what_to_change_names_what_there_is() -> None:
    rows = rows_below(ARCHITECTURE, "## To change something")
    named = [path for _, where in rows for path in re.findall(r"`([\w.-]+/[\w./-]*)`", where)]

    assert [each for each in WANTED if not any(what.startswith(each) for what, _ in rows)] == []
    assert [what for what, where in rows if not re.search(r"`[\w.-]+/", where)] == []
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_glossary_has_each_term_once_and_not_too_many() -> None:
    page = (ROOT / "docs/reference/glossary.md").read_text()
    terms = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")][2:]

    assert terms == sorted(set(terms), key=str.lower)
    assert len(terms) <= MOST_TERMS


def test_pages_and_words_are_within_their_bounds() -> None:
    # Words have a letter or a digit: bars of tables are none. What the site adds and examples do not count.
    pages = [path.read_text() for path in (ROOT / "docs").rglob("*.md")]
    texts = [re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL) for page in pages]
    words = sum(len(re.findall(r"\S*\w\S*", text)) for text in texts)

    assert len(texts) <= MOST_PAGES
    assert words <= MOST_WORDS
