"""The page in a real Chromium: every view at every size, with keys alone, and what another user sees."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.main import main
from testbed.browser import Browser
from tests.amount import first
from tests.daemons.page.conftest import AXE, SECRET, PagedSite
from tests.repository import ROOT

SIZES = ((360, 740), (1280, 800), (3840, 2160))
VIEWS = ("timeline", "nodes", "queue", "plan", "class", "story")
SHOWN = """const main = document.querySelector("main");
return main.querySelector("h2") && !main.innerText.includes("undefined")"""
RECORD = """
window.recorded = [];
const real = window.fetch;
window.fetch = async (...all) => {
  const response = await real(...all);
  response.clone().text().then((text) => window.recorded.push(String(all[0]) + text));
  return response;
};
"""


def opened(window: Browser, address: str, view: str, site: PagedSite, name: str = "") -> None:
    """A view with what it shows, from nothing."""
    window.open("about:blank")
    window.said()
    story = f"story/{name or site.open_name}"
    window.open(f"{address}#{story if view == 'story' else view}")
    window.wait(SHOWN)
    window.wait("return document.getElementById('status').textContent.includes('nodes up')")
    if view in ("nodes", "queue"):
        window.wait("return document.querySelector('main tbody tr')")
    if view == "timeline":
        window.wait("return performance.getEntriesByName('timeline drawn').length")
    if view == "story":
        window.wait("return document.querySelector('main dl')")


@pytest.mark.parametrize("theme", first(["light", "dark"]))
@pytest.mark.parametrize("size", first(SIZES, 2), ids=lambda size: f"{size[0]}")
def test_every_view_fits_its_window_and_says_nothing_to_the_console(
    window: Browser, site: PagedSite, size: tuple[int, int], theme: str, tmp_path: Path
) -> None:
    window.size(*size)
    window.prefer(theme)
    for view in VIEWS:
        opened(window, site.for_owner, view, site)

        widths = window.run("return [document.documentElement.scrollWidth, window.innerWidth]")
        assert widths[0] <= widths[1], (view, widths)
        assert window.run("return document.documentElement.dataset.theme") == theme
        assert window.said() == []
        if folder := os.environ.get("OUTRIDER_TEST_PICTURES"):
            window.picture(Path(folder) / f"{view}-{size[0]}-{theme}.png")


@pytest.mark.parametrize("theme", first(["light", "dark"]))
def test_axe_finds_no_serious_violation(window: Browser, site: PagedSite, theme: str) -> None:
    if not AXE.exists():
        # Not every machine that tests everything reaches npm's registry; Debian has no package of it.
        pytest.skip("axe-core is not there: npm could not bring it (make with-axe)")
    window.size(1280, 800)
    window.prefer(theme)
    source = AXE.read_text()
    found = {}
    for view in VIEWS:
        opened(window, site.for_owner, view, site)
        if view == "timeline":
            window.run("document.querySelector('[aria-pressed]').click()")
        window.run(source)
        answer = window.promised("axe.run().then(arguments[0])")
        assert len(answer["passes"]) > 10
        bad = [each for each in answer["violations"] if each["impact"] in ("serious", "critical")]
        found[view] = [(each["id"], [node["html"] for node in each["nodes"]]) for each in bad]

    assert found == {view: [] for view in VIEWS}


def test_timeline_is_moved_by_keys_and_read_as_a_table(window: Browser, site: PagedSite) -> None:
    window.size(1280, 800)
    opened(window, site.for_owner, "timeline", site)
    words = "return document.querySelector('[aria-live=polite]').textContent"
    other = f"const found = (() => {{ {words} }})(); return found !== arguments[0] && found"
    before = window.wait(words)
    window.run("document.querySelector('canvas').focus()")

    window.keys("-")
    wider = window.wait(other, before)
    window.keys("\ue014")
    moved = window.wait(other, wider)
    window.run("document.querySelector('[aria-pressed]').click()")
    rows = window.run("return [...document.querySelectorAll('tbody tr')].map((row) => row.innerText)")

    assert len({before, wider, moved}) == 3
    assert any(site.open_name in row and "root" in row for row in rows)
    assert any(site.secret_name in row for row in rows)


def test_pointer_over_a_reservation_tells_of_it(window: Browser, site: PagedSite) -> None:
    window.size(1280, 800)
    opened(window, site.for_owner, "timeline", site)
    window.run("document.querySelector('button[title=\"All of it\"]').click()")
    told = window.wait(
        """
        const canvas = document.querySelector("canvas"), box = canvas.getBoundingClientRect();
        for (let y = 40; y < box.height; y += 6) for (let x = 120; x < box.width; x += 6) {
          const place = { clientX: box.left + x, clientY: box.top + y, bubbles: true };
          canvas.dispatchEvent(new PointerEvent("pointermove", place));
          const tip = document.querySelector(".tip");
          if (!tip.hidden && tip.textContent.includes(arguments[0])) return tip.textContent;
        }
        return null;""",
        site.open_name,
    )

    assert f"{site.open_name} of root" in told


def test_expected_start_of_a_job_is_found_on_its_nodes_with_its_name(
    window: Browser, site: PagedSite
) -> None:
    opened(window, site.for_owner, "timeline", site)
    answer: dict[str, Any] = {
        "nodes": ["n1", "n2", "n3"],
        "is_complete": True,
        "unavailable": [],
        "taken": {"nodes": [], "starts_s": [], "ends_s": [], "kinds": []},
        "reservations": {name: [] for name in ("nodes", "names", "users", "states", "starts_s", "ends_s")},
    }
    transfer = {"nodes": "n2", "begin_s": 90, "ready_s": 120}
    jobs = [
        {"job": "16", "user": "eve", "state": "running", "start_s": 50, "nodes": "n1"},
        {"job": "17", "user": "ada", "state": "waiting", "start_s": 200, "nodes": "n[2-3]"},
        {"job": "18", "user": "ada", "state": "waiting", "start_s": None, "nodes": ""},
    ]
    found = window.promised(
        "const [answer, transfers, jobs, tell] = arguments;"
        "import('./schedule.js').then(({ Schedule }) => {"
        "  const made = new Schedule(answer, 100, transfers, jobs);"
        "  const seen = (node, at, slack) => made.at(node, at, slack)"
        "    .map((run) => (made.jobOf(run) || {}).job ?? `transfer ${-2 - made.runs.owner[run]}`);"
        "  tell([seen(0, 200, 9), seen(1, 200, 0), seen(2, 205, 9), seen(2, 215, 9), seen(1, 100, 9)]);"
        "}, (no) => tell(String(no)))",
        answer,
        [transfer],
        jobs,
    )

    assert found == [[], ["17"], ["17"], [], ["transfer 0"]]


def typed(window: Browser, field: str, text: str) -> None:
    window.run(
        "const field = document.getElementById(`field-${arguments[0]}`); field.value = arguments[1];"
        "field.dispatchEvent(new Event('input', { bubbles: true }))",
        field,
        text,
    )


def test_form_answers_while_one_types_reserves_and_gives_up(window: Browser, site: PagedSite) -> None:
    window.size(1280, 800)
    opened(window, site.for_owner, "plan", site)
    answer = "return document.querySelector('.answer').innerText.includes(arguments[0])"
    before = len(site.program.ask("GET", "/v1/reservations")[1]["reservations"])

    typed(window, "image", f"file://{site.image}")
    window.wait(answer, "It would be accepted")
    typed(window, "nodes", "99")
    window.wait(answer, "earliest") if window.run(answer, "earliest") else window.wait(
        "return document.querySelector('.answer.no')"
    )
    typed(window, "duration", "soon")
    window.wait("return document.getElementById('field-duration').getAttribute('aria-invalid')")
    typed(window, "duration", "20m")
    typed(window, "nodes", "1")
    window.wait(answer, "It would be accepted")
    assert len(site.program.ask("GET", "/v1/reservations")[1]["reservations"]) == before
    window.run("document.querySelector('form button').click()")
    window.wait(answer, "is reserved")
    window.run("document.querySelector('.answer a').click()")
    window.wait("return document.querySelector('main ol.story')")
    for _ in range(2):
        window.run("[...document.querySelectorAll('main button')].at(-1).click()")
    window.wait("return document.querySelector('main').innerText.includes('cancelled')")

    assert len(site.program.ask("GET", "/v1/reservations")[1]["reservations"]) == before


def test_class_is_every_weekday_at_nine(window: Browser, site: PagedSite) -> None:
    window.size(1280, 800)
    opened(window, site.for_owner, "class", site)

    typed(window, "image", f"file://{site.image}")
    typed(window, "seats", "2")
    told = window.wait(
        "return document.querySelector('.answer.yes') && document.querySelector('.answer').innerText"
    )

    assert "10 of 10 occurrences" in told
    assert "09:00" in told


def test_second_user_gets_nothing_private_in_any_response(window: Browser, site: PagedSite) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can have two users")
    window.size(1280, 800)
    before = window.command("Page.addScriptToEvaluateOnNewDocument", {"source": RECORD})
    responses: dict[str, list[str]] = {}
    try:
        for whose, address in (("owner", site.for_owner), ("other", site.for_other)):
            for view in VIEWS:
                opened(window, address, view, site, name=site.secret_name)
                window.wait("return window.recorded.length > 3")
                responses.setdefault(whose, []).extend(window.run("return window.recorded"))
                responses[whose].append(window.run("return document.documentElement.outerHTML"))
    finally:
        window.command("Page.removeScriptToEvaluateOnNewDocument", before)
    details: Any = site.program.ask("GET", f"/v1/reservations/{site.secret_name}")[1]
    digest = details["reservation"]["image"]["digest"]

    assert len(digest) > 60
    seen = {
        whose: [word for word in (SECRET, digest) if word in json.dumps(all_of)]
        for whose, all_of in responses.items()
    }
    assert seen == {"owner": [SECRET, digest], "other": []}
    assert any(site.secret_name in each for each in responses["other"])


def test_page_runs_no_script_and_asks_nobody_else(window: Browser, site: PagedSite) -> None:
    opened(window, site.for_owner, "queue", site)

    asked = window.run("return performance.getEntriesByType('resource').map((each) => each.name)")
    window.run(
        "const script = document.createElement('div'); window.ran = 0;"
        "try { script.innerHTML = '<img src=x onerror=\"window.ran=1\">'; } catch { window.kept = true; }"
        "document.body.append(script)"
    )
    elsewhere = window.promised(
        "const tell = arguments[0];"
        "fetch('http://127.0.0.2:9/').then(() => tell('came'), (no) => tell(String(no)))"
    )

    origin = site.for_owner.removesuffix("page/")
    assert {each for each in asked if not each.startswith(origin)} == set()
    assert window.run("return [window.ran, window.kept]") == [0, True]
    assert "Failed to fetch" in elsewhere
    assert any("Content Security Policy" in each for each in window.said())


def test_simulated_run_is_a_page_of_its_own(window: Browser, tmp_path: Path) -> None:
    file = tmp_path / "run.html"
    assert main(["sim", "run", str(ROOT / "tests/data/datastar-excerpt.swf"), "--html", str(file)]) == 0
    window.size(1280, 800)
    window.said()

    window.open(file.as_uri())
    window.wait("return performance.getEntriesByName('timeline drawn').length")
    window.run("document.querySelector('[aria-pressed]').click()")

    assert window.wait("return document.querySelectorAll('tbody tr').length") > 10
    assert window.run("return document.querySelectorAll('figure svg polyline').length") >= 3
    assert window.said() == []
