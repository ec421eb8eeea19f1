"""The filter against a table like Slurm's, under the Lua of a distribution and that of Slurm itself."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.repository import ROOT

HERE = Path(__file__).parent
PLUGINS = ROOT / "plugins" / "slurm"
SLURMS_OWN = "the one of Slurm's plugin"
SEED = os.environ.get("OUTRIDER_FILTER_SEED", "20261122")


def interpreter(name: str) -> list[str]:
    """How a Lua file is run; skipped where that Lua is missing, but not in CI."""
    if name != SLURMS_OWN:
        found = shutil.which(name)
        if found:
            return [found]
    else:
        plugins = sorted(Path("/usr/lib").glob("*/slurm*/job_submit_lua.so"))
        needed = subprocess.run(["ldd", *plugins[:1]], capture_output=True, text=True, timeout=240).stdout
        if found := next(iter(re.findall(r"liblua\S* => (\S+)", needed)), None):
            return [sys.executable, str(HERE / "lua51.py"), found]
    if os.environ.get("CI"):
        pytest.fail(f"{name} is not installed")
    pytest.skip(f"{name} is not installed")


@pytest.fixture(params=["lua5.4", SLURMS_OWN])
def lua(request: pytest.FixtureRequest) -> list[str]:
    return interpreter(str(request.param))


def run(lua: list[str], file: str, plugins: Path = PLUGINS) -> subprocess.CompletedProcess[str]:
    argv = [*lua, str(HERE / file), str(plugins), SEED]
    return subprocess.run(
        argv, capture_output=True, encoding="utf-8", errors="replace", timeout=240, check=False
    )


def test_every_claim_about_the_filter_holds(lua: list[str]) -> None:
    done = run(lua, "unit.lua")

    assert done.stdout.splitlines()[-1].endswith(" 0 do not hold"), done.stdout[-3000:] + done.stderr
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("file", "right", "wrong"),
    [
        ("outrider_submit.lua", "job_desc.begin_time = os.time() + HELD_S", "job_desc.begin_time = 0"),
        ("outrider_submit.lua", 'own .. metadata.TICKET .. "none"', "comment"),
        ("outrider_submit.lua", "if is_judged and not is_managed then", "if true then"),
        ("outrider_submit.lua", 'if comment ~= nil then return "Comment" end', ""),
        ("outrider_submit.lua", "  if why then\n    tell(why)", "  if false then"),
        ("outrider_submit.lua", "job_desc.begin_time = far_s", "job_desc.begin_time = 0"),
        ("outrider_submit.lua", "text:find('\"' .. partition .. '\"'", "text:find(partition"),
        ("outrider_submit.lua", 'or read(job_desc, "priority") == 0 then return', "then return"),
        ("outrider_submit.lua", "if not outrider_hints or", "if"),
        ("outrider_submit.lua", "or metadata.of_variable(variable_of(job_desc)), words", ", words"),
        ("outrider_submit.lua", "for _, each in ipairs(words) do tell(each) end", ""),
        ("outrider_channels.lua", "if all_of(upper, key) ~= all_of(lower, key) then", "if false then"),
        ("outrider_channels.lua", "OF_IMAGE[key] and said.image ~= nil", "false"),
        ("outrider_channels.lua", "metadata.add(upper, entry.at, key, entry.value)", ""),
        ("outrider_channels.lua", "metadata.blame(upper, fault)", "_ = fault"),
        ("outrider_images.lua", "if key and not known[key] then", "if key then"),
        ("outrider_images.lua", "if all > MOST_FURTHER then", "if false then"),
        ("outrider_machines.lua", 'if what and set_text(job_desc, "reservation") then', "if false then"),
        ("outrider_machines.lua", 'if what and set_text(job_desc, "array_inx") then', "if false then"),
        ("outrider_submit.lua", "    or metadata.of_variable(variable_of(job_desc)) ~= nil", ""),
        ("outrider_metadata.lua", 'not text:sub(1, limits.text):find("%S") and', "false and"),
        ("outrider_metadata.lua", "(not command or mark < command)", "true"),
        ("outrider_metadata.lua", "if not command and #script > limits.head", "if false"),
        ("outrider_metadata.lua", "elseif #rest > limits.line then", "elseif false then"),
        ("outrider_metadata.lua", "limits.head - 8", "limits.head - 7"),
        ("outrider_metadata.lua", "if byte == 34 or byte == 92", "if byte == 34"),
        ("outrider_metadata.lua", "low = 0xA0 elseif", "low = 0x80 elseif"),
        ("outrider_metadata.lua", 'comment:find("^[%s,;]", first - 1)', "false"),
    ],
)
def test_planted_fault_is_found(tmp_path: Path, file: str, right: str, wrong: str) -> None:
    lua = interpreter("lua5.4")
    for each in PLUGINS.glob("*.lua"):
        text = each.read_text()
        assert each.name != file or text.count(right) == 1
        (tmp_path / each.name).write_text(text.replace(right, wrong) if each.name == file else text)

    done = run(lua, "unit.lua", tmp_path)

    assert "not so: " in done.stdout
    assert done.returncode == 1


def test_site_sets_its_own_limits_and_none_that_makes_no_sense(tmp_path: Path) -> None:
    script = tmp_path / "limits.lua"
    script.write_text(
        "outrider_limits = { line = 2048, text = 12, head = 'x', searched = 2 ^ 40 }\n"
        f"local limits = dofile('{PLUGINS}/outrider_metadata.lua').limits\n"
        "print(limits.line, limits.text, limits.head, limits.searched)\n"
    )
    done = subprocess.run(
        [*interpreter("lua5.4"), str(script)], capture_output=True, text=True, timeout=240, check=True
    )

    assert done.stdout.split() == ["2048", "4096", "65536", "1048576"]
