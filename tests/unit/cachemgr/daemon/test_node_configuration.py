"""The node's configuration: what is read, what is refused, and that the documents say the same."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from cachemgr import config
from cachemgr.base.errors import BadRequest
from cachemgr.instances.methods import METHODS
from tests.repository import ROOT


def written(folder: Path, text: str) -> str:
    path = folder / "cachemgr.conf"
    path.write_text(text)
    return str(path)


def test_file_is_read_with_units_and_the_rest_is_default(tmp_path: Path) -> None:
    path = written(
        tmp_path, "[cachemgr]\npool = /p\nrate = 100Mbit\nalias_lifetime = 2h\nuser_bytes = 2GiB\n"
    )

    found = config.load(path)

    assert (found.pool, found.rate_bytes_per_s, found.alias_lifetime_s) == ("/p", 12_500_000, 7200)
    assert config.share_bytes(found.user_bytes, 1 << 40) == 2 * 1024**3
    assert found.socket == "/run/outrider/cachemgr.sock"


def test_environment_wins_over_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[cachemgr]\ntransfers = 2\n")

    assert config.load(path, {"OUTRIDER_CACHEMGR_TRANSFERS": "7", "HOME": "/h"}).transfers == 7


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[cachemgr]\ntransfer = 2\n", "did you mean 'transfers'"),
        ("[cachemgr]\ntransfers = many\n", "option transfers: 'many' is not a whole number"),
        ("[cachemgr]\npool = here\n", "option pool: 'here' is not an absolute path"),
        ("[cachemgr]\nrate = fast\n", "option rate: 'fast' is not a size"),
        ("[cachemgr]\nlog_level = loud\n", "choose one of debug, info, warning, error"),
        ("[cachemgr]\nrelay_listen = 7010\n", "write 0.0.0.0:7010"),
        ("[cachemgr]\nuser_schemes = ftp\n", "'ftp' is not a kind of source"),
        ("[cachemgr]\nmount_squashfs = maybe\n", "neither yes nor no"),
        ("[cachemgr]\ntransfers = 0\n", "option transfers: 0 is too few"),
        ("[cachemgr]\nsweep_interval = 0s\n", "option sweep_interval: '0s' is too short"),
        ("[cachemgr]\nresolve_timeout = 0\n", "option resolve_timeout: '0' is too short"),
        ("[cachemgr]\nwatchdog = 1ms\n", "option watchdog: '1ms' is not a length of time"),
        ("[cachemgr]\nmethods = copy teleport\n", "option methods: there is no method 'teleport'"),
        ("[cache]\npool = /p\n", "all options are in [cachemgr]"),
        ("pool = /p\n", "is not an INI file"),
        ("[cachemgr]\npool = /p\npool = /q\n", "is not an INI file"),
    ],
)
def test_mistake_is_named_with_its_remedy(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(said)):
        config.load(written(tmp_path, text))


def test_every_method_can_be_configured() -> None:
    assert config.config({"methods": " ".join(METHODS)}).methods == tuple(METHODS)


def test_misspelt_variable_is_an_error() -> None:
    with pytest.raises(BadRequest, match="did you mean 'socket'"):
        config.environment_texts({"OUTRIDER_CACHEMGR_SOKET": "/s"})


def test_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="does not exist"):
        config.load(str(tmp_path / "none"))


def test_what_is_shown_reads_back_the_same(tmp_path: Path) -> None:
    found = config.config(
        {"rate": "1Gbit", "methods": "reflink copy", "watchdog": "10m", "user_bytes": "1TiB"}
    )

    assert config.load(written(tmp_path, config.shown(found))) == found


def test_every_option_has_a_field_and_every_field_an_option() -> None:
    fields = [field.name for field in dataclasses.fields(config.NodeConfig)]

    assert sorted(option.field for option in config.OPTIONS) == sorted(fields)


def test_installed_example_is_the_table() -> None:
    assert (ROOT / "cachemgr/units/cachemgr.conf").read_text() == config.example()


def test_page_of_the_daemon_includes_the_installed_example() -> None:
    configuration = (ROOT / "docs/reference/daemon.md").read_text().split("## Configuration\n")[1]

    assert '--8<-- "cachemgr/units/cachemgr.conf"' in configuration.split("\n## ")[0].splitlines()
