"""YAML becomes data with places, or faults with places; with libyaml and without."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import pytest
import yaml

from outrider.metadata.errors import TextPosition, key_path, shown
from outrider.metadata.yamlfile import (
    MOST_BYTES,
    MOST_DEPTH,
    MOST_PROBLEMS,
    MOST_VALUES,
    YamlDocument,
    parse_yaml,
)

Read = Callable[[str | bytes], YamlDocument]


@pytest.fixture(params=["libyaml", "pure"])
def read(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Read:
    if request.param == "pure":
        monkeypatch.delattr(yaml, "CSafeLoader")
    else:
        assert yaml.__with_libyaml__

    def read_one(content: str | bytes) -> YamlDocument:
        return parse_yaml(content.encode() if isinstance(content, str) else content, file="f.yaml")

    return read_one


def faults(document: YamlDocument) -> list[str]:
    return [str(problem) for problem in document.problems]


def test_plain_words_mean_the_same_to_everybody(read: Read) -> None:
    document = read(
        "clock: 16:00\nduration: 1:30:00\nnorway: no\non: on\nmode: 0644\nversion: 1.10\nday: 2026-01-31\n"
        "hex: 0x1f\nlong: 1_000\nbig: 12345678901234567890\nexponent: 1e3\n"
        "yes: true\nTrue: False\nnumber: 42\nnegative: -7\nzero: 0\nquoted: '42'\nempty: ''\n"
    )

    assert document.problems == []
    assert document.data == {
        "clock": "16:00",
        "duration": "1:30:00",
        "norway": "no",
        "on": "on",
        "mode": "0644",
        "version": "1.10",
        "day": "2026-01-31",
        "hex": "0x1f",
        "long": "1_000",
        "big": "12345678901234567890",
        "exponent": "1e3",
        "yes": True,
        "True": False,
        "number": 42,
        "negative": -7,
        "zero": 0,
        "quoted": "42",
        "empty": "",
    }


def test_every_value_and_key_has_its_place(read: Read) -> None:
    document = read("a:\n  - x\n  - bé: {c: 1}\n")

    assert document.place(("a",)) == TextPosition(line=2, column=3)
    assert document.place(("a",), of_key=True) == TextPosition(line=1, column=1)
    assert document.place(("a", 1, "bé", "c")) == TextPosition(line=3, column=13)
    assert document.place(("a", 1, "bé", "c"), of_key=True) == TextPosition(line=3, column=10)
    assert document.place(("a", 1, "nowhere", 3)) == TextPosition(line=3, column=5)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "f.yaml:1:1: is empty"),
        ("# nothing\n", "f.yaml:1:1: is empty"),
        ("a: 1\na: 2\n", 'f.yaml:2:1: a: "a" is given twice, first in line 1'),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", 'f.yaml:4:3: a.b: "b" is given twice, first in line 2'),
        ("a: &x 1\n", 'f.yaml:1:4: a: the anchor "&x" is not taken'),
        ("a: *x\n", 'f.yaml:1:4: a: the alias "*x" is not taken'),
        ("a: !!python/object/apply:os.system [id]\n", 'f.yaml:1:4: a: the tag "tag:yaml.org,2002:python/obj'),
        ("!!str a: 1\n", 'a: the tag "tag:yaml.org,2002:str" is not taken'),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1: a second document begins here"),
        ("a:\nb: 1\n", "a: is empty: give it a value, or leave it out"),
        ("a: ~\n", "f.yaml:1:4: a: is empty"),
        ("a: null\n", "f.yaml:1:4: a: is empty"),
        ("? [a]\n: 1\n", "f.yaml:1:3: a key is a word"),
        ("a: 1\n\tb: 2\n", "indent with blanks instead of tabs"),
        ("a: b: c\n", "f.yaml:1:5: is not YAML: "),
        ("a: b: c\n", "quote a text with a colon"),
        ("a: [1\n", "is not YAML: "),
        ("a: @x\n", "f.yaml:1:4: is not YAML: "),
        ("a: {b: 1\n", "is not YAML: "),
        ("%YAML 3.0\n---\na: 1\n", "is not YAML: found incompatible YAML document"),
        (b"a: \xff\n", "f.yaml:1:4: byte 0xff is not UTF-8"),
        (b"a: 1\n\xc3\xa4: \xc3\n", "f.yaml:2:4: byte 0xc3 is not UTF-8"),
        ("a: 1\n".encode("utf-16"), "f.yaml:1:1: byte 0xff is not UTF-8"),
        ("a: \x07\n", "f.yaml:1:4: the character U+0007 may not stand here"),
        ("a: x\ry\n", "f.yaml:1:5: the character U+000D may not stand here"),
        ("a: x\u2028y\n", "f.yaml:1:5: the character U+2028 may not stand here"),
        ('a: "\\uD800"\n', "f.yaml:1:"),
        ('a: "\\U00110000"\n', "f.yaml:1:"),
        ("[" * 500, f"f.yaml:1:{MOST_DEPTH + 2}: this is nested more than {MOST_DEPTH} levels deep"),
        ("[" * 5000, f"{MOST_DEPTH} levels "),
        ("- " * 100 + "x", f"this is nested more than {MOST_DEPTH} levels deep"),
        ("[" + "1," * (MOST_VALUES + 10) + "]", f"there are more than {MOST_VALUES} values"),
        ("a" * (MOST_BYTES + 1), "is larger than 256 KiB"),
    ],
)  # fmt: skip
def test_fault_is_found_at_its_place(read: Read, content: str | bytes, expected: str) -> None:
    document = read(content)

    assert any(expected in fault for fault in faults(document))


def test_faults_of_a_file_are_found_together_and_the_rest_is_read(read: Read) -> None:
    document = read("a: &x 1\nb: *x\nc:\nd: 4\nd: 5\ne: !!int 6\n")

    assert [problem.path for problem in document.problems] == [("a",), ("b",), ("c",), ("d",), ("e",)]
    assert isinstance(document.data, dict)
    assert document.data["d"] == 4


def test_number_of_faults_is_limited(read: Read) -> None:
    document = read("".join(f"a{number}:\n" for number in range(500)))

    assert len(document.problems) == MOST_PROBLEMS


def test_byte_order_mark_and_windows_line_ends_are_taken(read: Read) -> None:
    document = read("\ufeffa: 1\r\nb:\r\n  - 2\r\n")

    assert document.problems == []
    assert document.data == {"a": 1, "b": [2]}
    assert document.place(("b", 0)) == TextPosition(line=3, column=5)


def test_aliases_that_expand_without_end_cost_nothing(read: Read) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    began = process_time()
    document = read("\n".join(lines))

    # What is in an anchored value is not worth a word of its own.
    assert len(document.problems) == 30
    assert process_time() - began < 2


FILL = MOST_BYTES - 10


@pytest.mark.parametrize(
    "content",
    [
        "a: " + "x" * FILL,
        "a: " + "x " * (FILL // 2),
        "a: |\n" + "  x\n" * (FILL // 4),
        'a: "' + "\\x41" * (FILL // 4) + '"',
        "a:\n" + "  - x\n" * (FILL // 6),
        "".join(f"k{number}: {number}\n" for number in range(FILL // 12)),
        "? " * (FILL // 2),
        "{" * FILL,
        "[{" * (FILL // 2),
        "[a, " * (FILL // 4),
        "{a: " * (FILL // 4),
        "- " * (FILL // 2),
        "a\n" * (FILL // 2),
        "#" * FILL,
        "'" * FILL,
        "!" * FILL,
        "&" * FILL,
        "%" * FILL,
        "a: b " * (FILL // 5),
        ": " * (FILL // 2),
        "\n" * FILL,
        " " * FILL,
        "é" * (FILL // 2),
        "[" + "[]," * 15_000,
        "!!" + "%41" * (FILL // 3) + " a",
    ],
    ids=lambda content: content[:6],
)
def test_no_file_takes_long(content: str, read: Read) -> None:
    began = process_time()
    document = read(content)

    assert process_time() - began < 5
    assert document.data is not None or document.problems


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("a",), "a"),
        (("roles", 0, "hosts"), "roles[0].hosts"),
        (("a", "é\n"), 'a."\\u00e9\\n"'),
        (("", 1), '""[1]'),
    ],
)
def test_path_is_written_on_one_line(path: tuple[str | int, ...], text: str) -> None:
    assert key_path(path) == text


@pytest.mark.parametrize("text", ["\x1b[31m", "a\nb", "\u202e", "x" * 1000, '"', "\ud800"])
def test_foreign_text_is_shown_harmlessly(text: str) -> None:
    written = shown(text)

    assert written.isprintable()
    assert len(written) < 400
