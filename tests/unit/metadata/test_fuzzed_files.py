"""Whatever is in a file, it is understood or refused, and soon."""

from __future__ import annotations

from datetime import timedelta
from zoneinfo import ZoneInfo

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.metadata.errors import FaultyFileError, MetadataError
from outrider.metadata.policies import Policies, parse_policies
from outrider.metadata.validation import Circumstances
from outrider.metadata.workspace import WorkspaceFile, parse_workspace
from tests.unit.metadata.examples import POLICIES, WORKSPACE

CIRCUMSTANCES = Circumstances(now_s=1_795_280_400, zone=ZoneInfo("Europe/Berlin"))
DEADLINE = timedelta(seconds=2)
"""Far above what any example takes, and far below what a user or a service would wait."""

WORDS = [
    "version",
    "metadata",
    "name",
    "image",
    "uri",
    "digest",
    "size",
    "format",
    "private",
    "roles",
    "hosts",
    "addresses",
    "files",
    "path",
    "content",
    "mode",
    "user_data",
    "deployment",
    "nodes",
    "instances_per_node",
    "cpus",
    "memory",
    "gpus",
    "duration",
    "start",
    "finish_by",
    "preemptible",
    "deny",
    "users",
    "groups",
    "accounts",
    "because",
    "machine_share",
    "rules",
    "may_reserve",
    "ahead",
    "node_hours",
    "reservations",
    "image_size",
    "account_share",
    "external",
    "command",
    "timeout",
    "when_it_fails",
]
VALUES = [
    "1",
    "0",
    "-1",
    "true",
    "no",
    "null",
    "~",
    "16:00",
    "1:30:00",
    "now+8hours",
    "2h30m",
    "8GiB",
    "600MB",
    "60%",
    "n[1-4]",
    "n[1-99999999]",
    "qcow2",
    "https://h/i",
    "10.0.0.[1-4]",
    "sha256:00",
    "*a",
    "&a",
    "!!int",
    "[]",
    "{}",
    "-",
    "?",
    "|",
    ">",
    "'",
    '"',
    "#",
    ":",
    "0644",
    "1e999",
    ".inf",
    "99999999999999999999999",
    "013126",
    "2027-03-28T02:30",
    "/etc/motd",
    "../x",
]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=20)
    | st.sampled_from(VALUES)
    | st.floats()
    | st.dates()
)
TREES = st.recursive(
    LEAVES,
    lambda below: (
        st.lists(below, max_size=4)
        | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), below, max_size=6)
    ),
    max_leaves=40,
)


def understood(content: bytes) -> list[WorkspaceFile | Policies]:
    """What a file means as a workspace and as policies; any error but the own ends the test."""
    found: list[WorkspaceFile | Policies] = []
    for parse in (
        lambda: parse_workspace(content, CIRCUMSTANCES, file="f.yaml"),
        lambda: parse_policies(content, file="f.yaml"),
    ):
        try:
            found.append(parse())
        except FaultyFileError as error:
            check(error)
    return found


def check(error: FaultyFileError) -> None:
    assert 0 < len(error.problems) <= 200
    for problem in error.problems:
        assert problem.place.line >= 1
        assert problem.place.column >= 1
        assert str(problem).startswith(f"f.yaml:{problem.place.line}:")
        assert "\n" not in str(problem)
        assert str(problem).isprintable()


@settings(deadline=DEADLINE)
@given(TREES)
def test_any_tree_is_understood_or_refused(tree: object) -> None:
    content = yaml.safe_dump(tree, allow_unicode=True, sort_keys=False).encode("utf-8", "surrogatepass")

    assert len(understood(content)) <= 1


@settings(deadline=DEADLINE)
@given(st.binary(max_size=300))
def test_any_bytes_are_refused(content: bytes) -> None:
    assert understood(content) == []


@settings(deadline=DEADLINE)
@given(st.lists(st.sampled_from(VALUES + WORDS + ["\n", " ", "  ", ": ", "- ", "\t"]), max_size=60))
def test_any_words_are_refused(words: list[str]) -> None:
    assert understood("".join(words).encode()) == []


EDITS = st.lists(
    st.tuples(
        st.sampled_from(["drop line", "repeat line", "insert", "cut", "swap value"]),
        st.integers(0, 10_000),
        st.sampled_from(VALUES + WORDS) | st.text(max_size=8),
    ),
    min_size=1,
    max_size=4,
)


def edited(text: str, edits: list[tuple[str, int, str]]) -> str:
    for kind, at, word in edits:
        lines = text.split("\n")
        number = at % len(lines)
        if kind == "drop line":
            del lines[number]
        elif kind == "repeat line":
            lines.insert(number, lines[number])
        elif kind == "swap value":
            key, colon, _ = lines[number].partition(": ")
            lines[number] = f"{key}{colon}{word}"
        text = "\n".join(lines)
        position = at % (len(text) + 1)
        if kind == "insert":
            text = text[:position] + word + text[position:]
        elif kind == "cut":
            text = text[:position] + text[position + len(word) :]
    return text


@settings(deadline=DEADLINE)
@given(EDITS)
def test_valid_workspace_with_any_edit_is_understood_or_refused(edits: list[tuple[str, int, str]]) -> None:
    content = edited(WORKSPACE, edits).encode("utf-8", "surrogatepass")

    assert len(understood(content)) <= 1


@settings(deadline=DEADLINE)
@given(EDITS)
def test_valid_policies_with_any_edit_are_understood_or_refused(edits: list[tuple[str, int, str]]) -> None:
    content = edited(POLICIES, edits).encode("utf-8", "surrogatepass")

    assert len(understood(content)) <= 1


OPTIONS = st.dictionaries(
    st.sampled_from(WORDS) | st.text(max_size=5), st.none() | st.sampled_from(VALUES) | st.text(max_size=9)
)


@settings(deadline=DEADLINE)
@given(OPTIONS)
def test_any_options_are_understood_or_refused(options: dict[str, str | None]) -> None:
    try:
        workspace = parse_workspace(WORKSPACE.encode(), CIRCUMSTANCES, file="f.yaml", options=options)
    except MetadataError as error:
        workspace = None
        assert str(error)  # noqa: PT017 - either outcome is right

    assert workspace is None or workspace.deployment is not None
