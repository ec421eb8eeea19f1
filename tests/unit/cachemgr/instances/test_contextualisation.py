"""What an instance is told of itself, and that nothing of it leaves its folder."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cachemgr.base.errors import BadRequest
from cachemgr.instances.context import (
    MOST_BYTES,
    MOST_FILES,
    attach,
    checked_context,
    contents,
    seed,
)

USER, OTHER_USER = 64001, 64002
WHOLE = {
    "hostname": "node-1.cluster.example",
    "addresses": [
        "10.0.0.5/24",
        {
            "address": "fd00::5/64",
            "mac": "52:54:00:12:34:56",
            "gateway": "fd00::1",
            "nameservers": ["fd00::53"],
        },
    ],
    "files": {"Hosts": "10.0.0.5 node-1\n", "key.pem": "secret\n"},
    "user_data": "#cloud-config\npackages: [vim]\n",
    "meta": {"role": "head", "public-keys": ["ssh-ed25519 AAAA"]},
}


def test_whole_context_becomes_the_files_of_cloud_init() -> None:
    found = contents(checked_context(WHOLE), "i1")

    assert sorted(found) == ["meta-data", "network-config", "user-data"]
    assert json.loads(found["meta-data"]) == {
        "instance-id": "i1",
        "local-hostname": "node-1.cluster.example",
        "public-keys": ["ssh-ed25519 AAAA"],
        "role": "head",
    }
    assert found["user-data"] == b"#cloud-config\npackages: [vim]\n"
    assert json.loads(found["network-config"]) == {
        "version": 2,
        "ethernets": {
            "net0": {"match": {"name": "e*"}, "addresses": ["10.0.0.5/24"], "dhcp4": False},
            "net1": {
                "match": {"macaddress": "52:54:00:12:34:56"},
                "addresses": ["fd00::5/64"],
                "dhcp4": False,
                "routes": [{"to": "::/0", "via": "fd00::1"}],
                "nameservers": {"addresses": ["fd00::53"]},
            },
        },
    }


def test_empty_context_still_has_what_cloud_init_requires() -> None:
    found = contents(checked_context({}), "i1")

    assert sorted(found) == ["meta-data", "user-data"]
    assert json.loads(found["meta-data"]) == {"instance-id": "i1"}
    assert found["user-data"].startswith(b"#cloud-config\n")


def test_addresses_of_one_interface_stay_together() -> None:
    plain = {"addresses": ["10.0.0.5/24", "10.1.0.5/24", {"address": "10.2.0.5/24", "gateway": "10.2.0.1"}]}
    network = json.loads(contents(checked_context(plain), "i1")["network-config"])

    assert list(network["ethernets"]) == ["net0"]
    assert network["ethernets"]["net0"]["addresses"] == ["10.0.0.5/24", "10.1.0.5/24", "10.2.0.5/24"]
    assert network["ethernets"]["net0"]["routes"] == [{"to": "0.0.0.0/0", "via": "10.2.0.1"}]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../x",
        "a/b",
        "/etc/passwd",
        ".hidden",
        "a b",
        "a\n",
        "a\0",
        "é",
        "x" * 65,
        "..\\x",
        "-a/",
    ],
)
def test_name_that_is_no_plain_name_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="a file cannot be called"):
        checked_context({"files": {name: ""}})


@pytest.mark.parametrize(
    ("plain", "sentence"),
    [
        (None, "the context must be an object"),
        ({"hostnme": "n1"}, "has no key 'hostnme': known are addresses, files, hostname"),
        ({1: "n1"}, "has no key 1"),
        ({"hostname": "a_b"}, "hostname 'a_b'"),
        ({"hostname": "-a"}, "hostname"),
        ({"hostname": "a..b"}, "hostname"),
        ({"hostname": "a\n"}, "hostname"),
        ({"hostname": ""}, "hostname"),
        ({"hostname": ".".join(["a" * 63] * 4)}, "hostname"),
        ({"hostname": 5}, "hostname must be a text"),
        ({"user_data": b"x"}, "user_data must be a text"),
        ({"user_data": "\ud800"}, "UTF-8 cannot write, at 0"),
        ({"user_data": "x" * (MOST_BYTES + 1)}, "may have 1048576 bytes together, not 1048577"),
        ({"files": {"a": "é" * (MOST_BYTES // 2), "b": "x"}, "user_data": ""}, "not 1048577"),
        ({"files": {f"f{number}": "" for number in range(MOST_FILES + 1)}}, "at most 64"),
        ({"files": {"a": None}}, "file a must be a text"),
        ({"files": ["a"]}, "files must be an object"),
        ({"addresses": "10.0.0.5/24"}, "addresses must be a list"),
        ({"addresses": ["10.0.0.1/24"] * 17}, "at most 16"),
        ({"addresses": ["10.0.0.5"]}, "lacks the length of the prefix"),
        ({"addresses": ["10.0.0.500/24"]}, "is not one like 10.0.0.5/24"),
        ({"addresses": ["10.0.0.5/24\n- evil"]}, "is not one like"),
        ({"addresses": ["fe80::1%eth0/64"]}, "is not one like"),
        ({"addresses": [{"address": "10.0.0.5/24", "mac": "zz"}]}, "is not a hardware address"),
        ({"addresses": [{"address": "10.0.0.5/24", "gateway": "x"}]}, "does not appear|is not one like"),
        ({"addresses": [{"gateway": "10.0.0.1"}]}, "an address must be a text"),
        ({"addresses": [{"address": "10.0.0.5/24", "dns": "x"}]}, "has no key 'dns'"),
        ({"meta": {"instance-id": "i2"}}, "meta cannot set instance-id"),
        ({"meta": {"local-hostname": "n2"}}, "meta cannot set local-hostname"),
        ({"meta": {"x": float("nan")}}, "meta must be JSON"),
        ({"meta": {"x": b"x"}}, "meta must be JSON"),
        ({"meta": {"x": "x" * 70_000}}, "meta may have 65536 bytes"),
        ({"meta": []}, "meta must be an object"),
    ],
)
def test_wrong_context_is_refused_with_its_key(plain: object, sentence: str) -> None:
    with pytest.raises(BadRequest, match=sentence):
        checked_context(plain)


def test_meta_nested_without_end_is_refused() -> None:
    deep: Any = {}
    deep["again"] = deep

    with pytest.raises(BadRequest, match="meta must be JSON"):
        checked_context({"meta": deep})


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=10,
)
KEYS = st.sampled_from(["hostname", "addresses", "files", "user_data", "meta"])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(KEYS, PLAIN, max_size=5))
def test_any_message_becomes_a_seed_or_is_refused(plain: dict[str, Any]) -> None:
    try:
        context = checked_context(plain)
    except BadRequest:
        return

    image = seed(context, "i1")
    assert len(image) % 2048 == 0
    assert image == seed(checked_context(plain), "i1")


def reading(path: Path | str) -> Callable[[], None]:
    return lambda: os.close(os.open(path, os.O_RDONLY))


def test_seed_is_read_by_its_user_alone(
    site: Any, as_user: Callable[..., str], needs: Callable[[str], str]
) -> None:
    folder = site.folder()
    path = attach(
        site.disk, checked_context(WHOLE), instance="i1", folder=str(folder), uid=USER, as_seed=True
    )
    argv = [needs("isoinfo"), "-R", "-i", path, "-x", "/files/key.pem"]
    found = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=240).stdout

    assert path == f"{folder}/seed.iso"
    assert found == "secret\n"
    assert as_user(USER, reading(path)) == ""
    assert as_user(OTHER_USER, reading(path)) == "PermissionError"


def test_folder_is_read_by_its_user_alone(site: Any, as_user: Callable[..., str]) -> None:
    folder = site.folder()
    path = attach(
        site.disk, checked_context(WHOLE), instance="i1", folder=str(folder), uid=USER, as_seed=False
    )

    assert sorted(os.listdir(path)) == ["files", "meta-data", "network-config", "user-data"]
    assert Path(path, "files", "Hosts").read_text() == "10.0.0.5 node-1\n"
    assert as_user(USER, reading(f"{path}/files/key.pem")) == ""
    assert as_user(USER, lambda: os.scandir(f"{path}/files").close()) == ""
    assert as_user(OTHER_USER, reading(f"{path}/meta-data")) == "PermissionError"


@pytest.mark.parametrize("as_seed", [True, False])
def test_attaching_again_keeps_what_is_there_and_finishes_what_is_not(site: Any, as_seed: bool) -> None:
    folder = site.folder()
    half = folder / (".seed.iso.new" if as_seed else ".context.new")
    if as_seed:
        half.write_text("half")
    else:
        (half / "files").mkdir(parents=True)
        (half / "stale").write_text("half")
    context = checked_context(WHOLE)
    path = attach(site.disk, context, instance="i1", folder=str(folder), uid=USER, as_seed=as_seed)
    before = os.stat(path).st_ino
    attach(site.disk, context, instance="i1", folder=str(folder), uid=USER, as_seed=as_seed)

    assert os.stat(path).st_ino == before
    assert os.listdir(folder) == [os.path.basename(path)]
    assert as_seed or not os.path.exists(f"{path}/stale")
