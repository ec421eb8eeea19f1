"""References to images in registries, as users write them."""

from __future__ import annotations

import pytest

from cachemgr.base.errors import BadRequest
from cachemgr.fetch.registry.references import Reference, read_hosts, read_reference
from cachemgr.fetch.sources.uris import parse

DIGEST = f"sha256:{'0123456789abcdef' * 4}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oras://images:5000/team/render:v1", ("images", 5000, "team/render", "v1", "")),
        ("docker://docker.io/library/ubuntu:24.04", ("docker.io", None, "library/ubuntu", "24.04", "")),
        (f"oras://r.example.org/a@{DIGEST}", ("r.example.org", None, "a", "", DIGEST)),
        (f"oras://R.Example.org:443/a:T_1@{DIGEST}", ("r.example.org", 443, "a", "T_1", DIGEST)),
        ("oras://localhost/a__b/c-d.e:1", ("localhost", None, "a__b/c-d.e", "1", "")),
        ("oras://[::1]:5000/a:1", ("[::1]", 5000, "a", "1", "")),
    ],
)
def test_reference_is_read(text: str, expected: tuple[str, int | None, str, str, str]) -> None:
    found = read_reference(text)

    assert found == Reference(text.partition(":")[0], *expected)
    assert read_reference(str(found)) == found
    assert read_reference(parse(text).name) == found


def test_digest_is_asked_for_rather_than_the_tag() -> None:
    assert read_reference(f"oras://images:5000/a:v1@{DIGEST}").wanted == DIGEST


def test_docker_hub_is_asked_at_the_host_of_its_registry() -> None:
    assert read_reference("docker://docker.io/library/ubuntu:24.04").api_host == "registry-1.docker.io"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "docker://ubuntu:24.04",
            "names no registry: write docker://HOST/ubuntu:24.04, for an image of Docker",
        ),
        ("docker://ubuntu:24.04", "docker://docker.io/library/ubuntu:24.04"),
        ("docker://team/render:v1", "may mean a registry called team or a name at Docker Hub"),
        ("docker://docker.io/ubuntu:1", "write docker://docker.io/library/ubuntu:1"),
        ("docker://nvcr.io#nvidia/cuda:12", "# after its registry: write a slash"),
        ("oras://me:word@images:5000/a:1", "a user or a password, which others could see"),
        ("oras://images:5000/a", "has no tag: write it, such as oras://images:5000/a:latest"),
        ("oras://images:5000/a:", "has the tag ''"),
        ("oras://images:5000/a:b:c", "has the tag 'b:c'"),
        ("oras://images:5000/A:1", "has the name 'A'"),
        ("oras://images:5000/a//b:1", "has the name 'a//b'"),
        ("oras://images:5000/../a:1", "has the name '../a'"),
        ("oras://images:5000/a?x:1", "has the name 'a?x'"),
        ("oras://images:5000/a%2fb:1", "has the name 'a%2fb'"),
        ("oras://images:5000/:1", "has the name ''"),
        ("oras://images:0/a:1", "no usable port: '0'"),
        ("oras://images:65536/a:1", "no usable port"),
        ("oras://images:/a:1", "no usable port: ''"),
        ("oras://-x:1/a:1", "no usable host"),
        ("oras:///a:1", "no usable host"),
        ("oras://images:5000/a@sha256:12", "no digest after @"),
        ("oras://images:5000/a@sha512:" + "0" * 128, "no digest after @"),
        ("oras://images:5000/a 1", "letters that no reference has"),
        ("oras://images:5000/a\n:1", "letters that no reference has"),
        ("oras://images:5000/\u00e4:1", "letters that no reference has"),
        ("http://images:5000/a:1", "is not a reference of an image in a registry"),
        (f"oras://images:5000/{'a' * 2000}:1", "has 2021 characters"),
        (f"oras://images:5000/{'a/' * 128}a:1", "has the name"),
        (f"oras://images:5000/a:{'t' * 129}", "has the tag"),
    ],
)
def test_what_is_no_reference_is_refused_with_the_remedy(text: str, words: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_reference(text)

    assert words in str(refused.value)


def test_registries_of_a_configuration_are_read_as_references_begin_with_them() -> None:
    assert read_hosts("Images:5000, r.example.org") == ("images:5000", "r.example.org")
    with pytest.raises(BadRequest, match="may mean a registry called images"):
        read_hosts("images")
    with pytest.raises(BadRequest, match="'http://images' is not a registry"):
        read_hosts("http://images")
