"""What the submit filters do with a text takes time in proportion to its length, whatever stands in it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.security.growth.hostile import KINDS
from tests.security.growth.judging import ENOUGH_S, SIZES, Times, superlinear
from tests.unit.plugins.slurm.test_filter_alone import PLUGINS, SLURMS_OWN, interpreter

HERE = Path(__file__).parent


LUAS = [SLURMS_OWN, *(["lua5.4"] if os.environ.get("OUTRIDER_TEST_VERSIONS") == "1" else [])]


def measured(lua: list[str], folder: Path, plugins: Path, names: list[str]) -> Mapping[str, Times]:
    """Seconds of each function and kind of text, by size: once for all, several times for those named."""
    kinds = folder / "kinds"
    kinds.write_text(
        "".join(f"{n}\t{k.head.hex()}\t{k.piece.hex()}\t{k.tail.hex()}\n" for n, k in KINDS.items())
    )
    argv = [*lua, str(HERE / "growth.lua"), str(plugins), str(folder), str(kinds)]
    sizes = ",".join(map(str, SIZES))
    environment = {**os.environ, "OUTRIDER_SOCKET": str(folder / "none")}
    environment.pop("OUTRIDER_SERVER", None)
    done = subprocess.run(
        [*argv, sizes, "3" if names else "1", str(ENOUGH_S), *names],
        capture_output=True, text=True, timeout=600, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    found: dict[str, Times] = {}
    for line in done.stdout.splitlines():
        name, size, seconds = line.split("\t")
        found.setdefault(name, {})[int(size)] = float(seconds)
    return found


@pytest.mark.parametrize("name", LUAS)
@pytest.mark.repeats("tests/security/growth/test_regexes.py::test_time_of_an_expression_grows_as_its_text")
def test_no_function_of_slurms_filters_grows_faster_than_its_text(name: str, tmp_path: Path) -> None:
    lua = interpreter(name)
    first = measured(lua, tmp_path, PLUGINS, [])
    found = superlinear(first, lambda names: measured(lua, tmp_path, PLUGINS, names))

    assert len(first) > 40 * len(KINDS)
    assert found == {}
