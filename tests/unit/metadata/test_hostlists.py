"""Sets of nodes, written and read."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.metadata.errors import TextError
from outrider.metadata.notation.hostlists import expand, fold


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n1", "n1"),
        ("n[1-4,7]", "n1 n2 n3 n4 n7"),
        ("n[08-11]", "n08 n09 n10 n11"),
        ("n[8-11]", "n8 n9 n10 n11"),
        ("n[098-101]", "n098 n099 n100 n101"),
        ("a,b[1-3]", "a b1 b2 b3"),
        ("a, b[1]", "a b1"),
        ("rack[1-2]n[01-02]", "rack1n01 rack1n02 rack2n01 rack2n02"),
        ("n[3,1]", "n3 n1"),
        ("n[5]-ib", "n5-ib"),
        ("10.0.0.[9-11]", "10.0.0.9 10.0.0.10 10.0.0.11"),
        ("[1-2]", "1 2"),
    ],
)
def test_list_stands_for_these_names_in_this_order(text: str, names: str) -> None:
    assert expand(text) == tuple(names.split())


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("", ""),
        ("n1 n2 n3 n4 n7", "n[1-4,7]"),
        ("n10 n9 n8", "n[8-10]"),
        ("n08 n09 n10", "n[08-10]"),
        ("n1 n01 n2 n02", "n[01-02,1-2]"),
        ("b2 a b1 b3", "a,b[1-3]"),
        ("r1n1 r1n2 r2n1 r2n2", "r[1-2]n[1-2]"),
        ("r1n1 r1n2 r2n1", "r1n[1-2],r2n1"),
        ("r1n1 r2n1 r3n1", "r[1-3]n1"),
        ("n5-ib n6-ib", "n[5-6]-ib"),
        ("login", "login"),
        ("n1 n1", "n1"),
    ],
)
def test_names_fold_to_this_list(names: str, text: str) -> None:
    assert fold(names.split()) == text


NAMES = st.lists(
    st.from_regex(r"[a-c][-.]?([0-9]{1,3}[a-c]?){0,3}", fullmatch=True)
    | st.from_regex(r"n0{0,2}[0-9]{1,25}", fullmatch=True),
    max_size=40,
)


@given(NAMES)
def test_folding_loses_and_adds_nothing(names: list[str]) -> None:
    folded = fold(names)

    assert sorted(expand(folded) if folded else ()) == sorted(set(names))


@given(NAMES)
def test_order_of_the_names_does_not_matter(names: list[str]) -> None:
    assert fold(names) == fold(reversed(names))


@given(st.text(max_size=40) | st.text("n01-9[],", max_size=30))
def test_any_text_is_a_list_or_refused(text: str) -> None:
    try:
        names = expand(text, limit=1000)
    except TextError:
        return

    assert 0 < len(names) == len(set(names)) <= 1000


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "a name is missing"),
        ("a,,b", "a name is missing"),
        ("n[1-4", "not closed"),
        ("n1-4]", "a bracket too many"),
        ("n[[1-2]]", "a bracket too many"),
        ("n[]", '"" in "n[]" is neither'),
        ("n[a-c]", '"a-c" in "n[a-c]" is neither'),
        ("n[1-9/2]", '"1-9/2"'),
        ("n[4-1]", "counts down: write 1-4"),
        ("n[1-016]", "fills its ends with zeros differently"),
        ("n[1-2],n2", "names n2 twice"),
        ("n 1", '" " in "n 1" cannot be part of a name'),
        ("../etc", '"/" in "../etc" cannot be part'),
        ("n$(id)", '"$"'),
        ("-n[1-2]", "begins with a hyphen"),
        ("n\n1", '"\\n"'),
        ("@group", '"@"'),
        ("n" * 70_000, "70000 characters"),
        ("n[1-9999999999999999999]", "more than 18 digits"),
    ],
)
def test_no_list_names_the_part_that_is_wrong(text: str, part: str) -> None:
    with pytest.raises(TextError) as caught:
        expand(text)

    assert part in str(caught.value)


@pytest.mark.parametrize(
    "text", ["n[1-999999999999999999]", "n[1-99999]" * 10, ",".join(["n[1-99999]"] * 1000)]
)
def test_huge_list_is_refused_before_it_is_made(text: str) -> None:
    began = process_time()
    with pytest.raises(TextError, match=r"at most 100000 are allowed"):
        expand(text)

    assert process_time() - began < 1


def test_limit_is_the_caller_s() -> None:
    assert len(expand("n[1-5]", limit=5)) == 5
    with pytest.raises(TextError, match="stands for 6 names: at most 5"):
        expand("n[1-6]", limit=5)


@pytest.mark.parametrize("name", ["", "-n", "n[1]", "a,b", "n 1"])
def test_what_is_no_name_cannot_be_folded(name: str) -> None:
    with pytest.raises(TextError, match="is not the name of a node"):
        fold([name])


@pytest.mark.parametrize(
    "text", ["x" * 250 + "[0001-9999]", "a[1]" * 130, "x" * 254, "x" * 60_000 + "[1-99999]"]
)
def test_name_that_is_no_hosts_is_refused_before_it_is_written_out(text: str) -> None:
    with pytest.raises(TextError, match="a name of more than 253 characters"):
        expand(text)


def test_name_of_a_host_may_be_as_long_as_one() -> None:
    assert len(expand("x" * 249 + "[0001-9999]")) == 9_999
    with pytest.raises(TextError, match="is not the name of a node"):
        fold(["1a" * 127])
