"""What Grid Engine's filters and the readers of metadata do with a text grows as its length does."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import UTC
from functools import lru_cache, partial
from pathlib import Path

import pytest

from outrider.metadata import errors, external, fields, joblines, policies, workspace, yamlfile
from outrider.metadata.notation import amounts, durations, hostlists, times, zones
from outrider.metadata.validation import Circumstances, named
from outrider.rms.base import RmsError
from outrider.rms.gridengine import mending
from tests.security.growth.hostile import KINDS, Kind
from tests.security.growth.judging import FLOOR_S, MOST_A_DOUBLING, SIZES, Case, growth, measured, superlinear
from tests.unit.plugins.gridengine.jsv import CLIENT, SERVER, module

jsv, client = module(SERVER), module(CLIENT)
Run = Callable[[bytes], object]


def heard(before: bytes, after: bytes, text: bytes) -> object:
    """A job of the server's filter, in the pieces in which a qmaster writes."""
    said = b"START\nPARAM VERSION 1.0\n" + before + text + after + b"\nBEGIN\n"
    lines, conversation = jsv.Lines(), jsv.Conversation(jsv.Site("/nowhere"), lambda: 0)
    for at in range(0, len(said), 4096):
        for line in lines.of(said[at : at + 4096]):
            conversation.hear(line)
    # A user's own START or QUIT is no end of a job, but a text of nothing but line breaks may be one.
    return conversation.answer() if conversation.is_in_job else None


def answered(name: str, text: str) -> object:
    return client.answer({name: text, "ar": "3"} | ({} if name == "ac" else {"ac": "OUTRIDER=x"}))


def of_script(path: Path, text: bytes) -> object:
    path.write_bytes(text)
    return client.answer({"CMDNAME": str(path)})


def folded(text: str) -> object:
    return hostlists.fold([text, text + "1"])


def finished(text: bytes) -> object:
    done = external.ProgramResult(exit_code=1, stdout=text[: external.MOST_OUTPUT_BYTES], stderr=b"")
    return external._reason(done)


def filters(folder: Path) -> dict[str, Run]:
    return {
        "jsv, anything": partial(heard, b"", b""),
        "jsv, context": partial(heard, b"PARAM ac ", b""),
        "jsv, image": partial(heard, b"PARAM ac A=1,OUTRIDER=", b""),
        "jsv, image of a variable": partial(heard, b"ENV ADD OUTRIDER ", b""),
        "jsv, user": partial(heard, b"PARAM ac OUTRIDER=x\nPARAM USER ", b""),
        "jsv, contexts": lambda text: heard(b"", b"", text.replace(b"x", b"\nPARAM ac K=")),
        "client's jsv, context": lambda text: answered("ac", text.decode(errors="replace")),
        "client's jsv, requests": lambda text: answered("l_hard", text.decode(errors="replace")),
        "client's jsv, name of a script": lambda text: client.lines_of(text.decode(errors="replace")),
        "client's jsv, script": partial(of_script, folder / "script.sh"),
        "client's jsv, script of lines": lambda text: of_script(folder / "script.sh", b"#OUTRIDER " + text),
    }


def readers() -> dict[str, Run]:
    """Each reader of a text in outrider.metadata."""
    of_texts: dict[str, Callable[[str], object]] = {
        "joblines": joblines.parse_job_lines,
        "joblines, image": lambda text: joblines.parse_job_lines(f"image: {text}"),
        "joblines, in short": lambda text: joblines.parse_job_lines(f"image={text}"),
        "amounts, size": amounts.size_bytes,
        "amounts, memory": amounts.memory_mib,
        "amounts, share": amounts.share_percent,
        "durations": durations.parse_duration,
        "times": lambda text: times.parse_instant(text, now_s=0, zone=UTC),
        "times, behind a date": lambda text: times.parse_instant(f"2026-01-31{text}", now_s=0, zone=UTC),
        "times, behind now": lambda text: times.parse_instant(f"now+{text}", now_s=0, zone=UTC),
        "hostlists, expand": hostlists.expand,
        "hostlists, in brackets": lambda text: hostlists.expand(f"n[{text}]"),
        "hostlists, fold": folded,
        "errors, shown": errors.shown,
        "errors, key path": lambda text: errors.key_path((text, 1)),
        "validation, named": named,
        "zones": lambda text: zones.user_zone({"TZ": text}),
        "yaml, scalar": yamlfile.scalar,
    }
    circumstances = Circumstances(now_s=0, zone=UTC)
    of_fields: dict[str, Callable[[str], object]] = {
        f"fields, {check.__name__}": check
        for check in (fields._uri, fields._hosts, fields._addresses, fields._guest_path, fields._words)
    }
    for kind in ("Name", "Account", "Digest", "Mode", "Argument"):
        before = getattr(fields, kind).__metadata__[0]
        of_fields[f"fields, {kind}"] = before.func
    of_bytes: dict[str, Run] = {
        "yaml": lambda text: yamlfile.parse_yaml(text, file="x"),
        "yaml, value": lambda text: yamlfile.parse_yaml(b"a: " + text, file="x"),
        "workspace": lambda text: workspace.parse_workspace(text, file="x", circumstances=circumstances),
        "policies": lambda text: policies.parse_policies(text, file="x"),
        "external, reason": finished,
    }
    texts = {name: _decoding(read) for name, read in (of_texts | of_fields).items()}
    return texts | of_bytes


def _decoding(read: Callable[[str], object]) -> Run:
    return lambda text: read(_text(text))


@lru_cache(maxsize=2)
def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def tried(run: Run, text: bytes) -> None:
    with suppress(errors.MetadataError, external.ProgramError):
        run(text)


@lru_cache(maxsize=2)
def _text_of(kind: Kind, size: int) -> bytes:
    return kind.text(size)


def with_texts(run: Run, kind: Kind) -> Callable[[int], Callable[[], object]]:
    def ready(size: int) -> Callable[[], object]:
        text = _text_of(kind, size)
        return partial(tried, run, text)

    return ready


def too_fast(runs: dict[str, Run]) -> dict[str, object]:
    cases = {
        f"{name} / {of}": with_texts(run, kind) for of, kind in KINDS.items() for name, run in runs.items()
    }
    found = superlinear(
        measured(cases), lambda names: measured({name: cases[name] for name in names}, rounds=3)
    )
    return dict(found)


@pytest.mark.repeats("tests/security/growth/test_regexes.py::test_time_of_an_expression_grows_as_its_text")
def test_no_verdict_of_grid_engines_filters_grows_faster_than_its_text(tmp_path: Path) -> None:
    assert too_fast(filters(tmp_path)) == {}


def test_no_reader_of_metadata_grows_faster_than_its_text() -> None:
    assert too_fast(readers()) == {}


@pytest.mark.parametrize(("power", "is_found"), [(1.0, False), (2.0, True), (1.5, True)])
def test_growth_is_found_where_it_is(power: float, is_found: bool) -> None:
    times_by_size = {size: 1e-9 * size**power for size in SIZES}

    assert (growth(times_by_size) > MOST_A_DOUBLING) is is_found


def test_what_is_cut_short_after_a_text_or_two_has_grown() -> None:
    assert growth({1024: FLOOR_S / 2, 4096: 30.0}) > MOST_A_DOUBLING
    assert growth(dict.fromkeys(SIZES, FLOOR_S / 2)) == 1.0


def test_values_of_an_answer_that_is_no_xml_are_mended_in_proportion_to_them() -> None:
    def tags(size: int) -> Callable[[], object]:
        lines = "".join(f"  <a{number % 7}>x\n" for number in range(size // 8))
        answer = f"<job_info>\n <job_list>\n{lines} </job_list>\n</job_info>"
        return partial(mended, answer)

    def mended(answer: str) -> None:
        with suppress(RmsError):
            mending.tree(answer)

    cases: dict[str, Case] = {"tags that nothing ends": tags}

    found = superlinear(measured(cases), lambda names: measured({name: cases[name] for name in names}, 3))

    assert found == {}
