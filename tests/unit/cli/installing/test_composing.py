"""Outrider's hooks and filters beside those of a site: shell and Lua run them here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from outrider.cli.installing.slurm.facts import file_system, shown, version_of
from outrider.cli.installing.slurm.files import hook_files
from outrider.cli.installing.slurm.hooks import (
    EPILOG,
    HOOKS,
    PROLOG,
    PROLOG_SLURMCTLD,
    TASK_PROLOG,
    ComposedHook,
    Hook,
    composed,
)
from outrider.cli.installing.slurm.lua import SUBMIT, with_ours
from outrider.cli.installing.slurm.marking import SLURM, restored
from outrider.cli.installing.slurm.plan import SiteTexts, plan
from outrider.cli.installing.slurm.timeouts import timeouts
from tests.unit.cli.installing.sites import ALL, CONF, VERSION, planned, site

OURS = "/usr/lib/outrider/slurm/prolog"
NAMED = "/etc/outrider/slurm/prolog"


def prolog(line: str, *, can_be_several: bool = False) -> ComposedHook:
    return composed(PROLOG, site(f"{line}\n"), can_be_several=can_be_several)


def test_hook_that_is_not_set_is_set() -> None:
    assert prolog("Epilog=/e").value == NAMED
    assert prolog("Prolog=(null)").value == NAMED


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
@pytest.mark.parametrize("line", ["", "{key}=none", "{key}={ours}", "{key}=/etc/outrider/slurm/{name}"])
def test_slurm_conf_never_names_a_file_of_our_folder(tmp_path: Path, hook: Hook, line: str) -> None:
    text = line.format(key=hook.key, ours=hook.ours, name=hook.name)
    found = composed(hook, site(f"{text}\n"), can_be_several=False)
    (installed,) = hook_files([found])
    script = found.wrapper.replace(hook.ours, str(tmp_path / "missing"))

    assert found.value in (None, f"/etc/outrider/slurm/{hook.name}")
    assert (installed["path"], installed["mode"]) == (f"/etc/outrider/slurm/{hook.name}", 0o755)
    assert run(script, tmp_path, SLURM_JOB_ID="7", SLURM_JOB_COMMENT="mine") == (0, "")


@pytest.mark.parametrize("line", ["Prolog=/a\nProlog=/b", "Prolog=/etc/*/prolog"])
def test_what_an_administrator_is_told_to_name_is_there_and_outside_of_our_folder(line: str) -> None:
    found = prolog(line, can_be_several=True)
    (installed,) = hook_files([found])

    assert installed["path"] == NAMED
    assert NAMED in found.trouble
    assert OURS not in found.trouble


@pytest.mark.parametrize(("mark", "is_failed"), [("PURGE_COMP=1366-14:17:00", True), ("", False)])
def test_job_without_lines_in_our_reservation_fails_where_ours_cannot_be_run(
    tmp_path: Path, mark: str, is_failed: bool
) -> None:
    slurms = program(tmp_path / "scontrol", f"echo ReservationName=$4 Flags=IGNORE_JOBS,{mark}")
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_UID": str(os.getuid()), "SLURM_JOB_RESERVATION": "render-1"}
    script = broken(tmp_path, PROLOG, "missing").replace("PATH=/usr/sbin", f"PATH={slurms.parent}:/usr/sbin")
    code, _ = run(script, tmp_path, **job)

    assert code == 0
    assert (tmp_path / "run" / "failed" / "7").exists() is is_failed


@pytest.mark.parametrize(
    ("pattern", "link"),
    [
        ("/etc/slurm/prolog.d/*", "/etc/slurm/prolog.d/50-outrider"),
        ("/etc/slurm/prolog.d/*.sh", "/etc/slurm/prolog.d/50-outrider.sh"),
        ("prolog.d/P-*", "/etc/slurm/prolog.d/P-50-outrider"),
    ],
)
def test_pattern_gets_one_more_name(pattern: str, link: str) -> None:
    found = prolog(f"Prolog={pattern}")

    assert (found.value, found.link, found.trouble) == (None, link, "")


@pytest.mark.parametrize("pattern", ["/etc/slurm/prolog.d/[0-9][0-9]*", "/etc/*/prolog", "/x/prolog-?"])
def test_pattern_for_which_no_name_can_be_made_is_told(pattern: str) -> None:
    found = prolog(f"Prolog={pattern}")

    assert f"{CONF}:1" in found.trouble
    assert "--without-prolog" in found.trouble


def test_several_programs_are_left_to_the_administrator_where_each_line_adds_one() -> None:
    lines = "Prolog=/a\nProlog=/b"

    assert "add one more line, Prolog=" in prolog(lines, can_be_several=True).trouble
    assert '\n/b "$@" || exit' in prolog(lines).wrapper
    assert "add one more line" in prolog("Prolog=/a,/b").trouble


def run(script: str, folder: Path, *words: str, **variables: str) -> tuple[int, str]:
    path = folder / "wrapper"
    path.write_text(script.replace("/run/outrider", str(folder / "run")))
    done = subprocess.run(
        ["/bin/sh", str(path), *words],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={"PATH": "/usr/bin:/bin", **variables},
    )
    return done.returncode, done.stdout


def program(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def wrapper(folder: Path, *, of_epilog: bool = False, site_code: int = 0) -> str:
    """A wrapper round a program of the site's in a folder with a blank, ours being in the same."""
    (folder / "it's ours").mkdir()
    theirs = program(folder / "it's ours" / "theirs", f'echo "theirs $1"; exit {site_code}')
    ours = program(folder / "ours", "echo ours")
    hook = EPILOG if of_epilog else PROLOG
    found = composed(hook, site(f'{hook.key}="{theirs}"\n'), can_be_several=False)
    return found.wrapper.replace(hook.ours, str(ours))


def test_prolog_of_the_site_runs_first_and_gets_its_arguments(tmp_path: Path) -> None:
    assert run(wrapper(tmp_path), tmp_path, "one") == (0, "theirs one\nours\n")


def test_failure_of_the_sites_prolog_is_the_failure_of_both(tmp_path: Path) -> None:
    assert run(wrapper(tmp_path, site_code=7), tmp_path) == (7, "theirs \n")


def test_epilog_of_the_site_runs_last_and_its_exit_status_counts(tmp_path: Path) -> None:
    assert run(wrapper(tmp_path, of_epilog=True, site_code=7), tmp_path, "x") == (7, "ours\ntheirs x\n")


UNABLE = ("missing", "not executable", "without its interpreter")


def broken(folder: Path, hook: Hook, how: str) -> str:
    """A wrapper where ours cannot be run."""
    theirs = program(folder / "theirs", "echo theirs")
    ours = program(folder / "ours", "echo ours")
    if how == "missing":
        ours.unlink()
    elif how == "not executable":
        ours.chmod(0o644)
    else:
        ours.write_text("#!/nowhere/sh\n")
    found = composed(hook, site(f"{hook.key}={theirs}\n"), can_be_several=False)
    return found.wrapper.replace(hook.ours, str(ours))


@pytest.mark.parametrize("how", UNABLE)
@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_job_without_an_image_passes_where_ours_cannot_be_run(tmp_path: Path, hook: Hook, how: str) -> None:
    script = broken(tmp_path, hook, how)
    code, said = run(script, tmp_path, SLURM_JOB_ID="7", SLURM_JOB_UID="0", SLURM_JOB_COMMENT="mine")

    assert (code, said) == (0, "theirs\n")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook.name)
def test_program_that_a_sites_pattern_matches_depends_on_no_file_of_ours(tmp_path: Path, hook: Hook) -> None:
    found = composed(hook, site(f"{hook.key}=/etc/slurm/{hook.name}.d/*\n"), can_be_several=False)
    (installed,) = hook_files([found])
    script = found.wrapper.replace(hook.ours, str(tmp_path / "missing"))

    assert (installed["path"], installed["mode"]) == (f"/etc/slurm/{hook.name}.d/50-outrider", 0o755)
    assert run(script, tmp_path, SLURM_JOB_ID="7", SLURM_JOB_COMMENT="mine") == (0, "")


@pytest.mark.parametrize("how", UNABLE)
def test_job_with_an_image_fails_alone_where_ours_cannot_be_run(tmp_path: Path, how: str) -> None:
    job = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_UID": str(os.getuid()),
        "SLURM_JOB_COMMENT": "x outrider-ticket=1.abc",
    }
    prolog_code, _ = run(broken(tmp_path, PROLOG, how), tmp_path, **job)
    task_code, said = run(broken(tmp_path, TASK_PROLOG, how), tmp_path, **job)
    epilog_code, _ = run(broken(tmp_path, EPILOG, how), tmp_path, **job)

    assert (prolog_code, task_code, epilog_code) == (0, 3, 0)
    assert "print outrider: Outrider's own files on this node cannot be run" in said
    assert not list((tmp_path / "run" / "failed").iterdir())


@pytest.mark.parametrize("job", ["", "../7", "7 8", "x"])
def test_number_of_a_job_that_is_none_names_no_file(tmp_path: Path, job: str) -> None:
    script = broken(tmp_path, PROLOG, "missing")
    code, _ = run(script, tmp_path, SLURM_JOB_ID=job, SLURM_JOB_COMMENT="outrider-ticket=1.abc")

    assert code == 0
    assert not (tmp_path / "run").exists()


def test_refusal_of_ours_on_the_head_is_the_wrappers(tmp_path: Path) -> None:
    theirs, ours = program(tmp_path / "theirs", "true"), program(tmp_path / "ours", "exit 1")
    found = composed(
        PROLOG_SLURMCTLD, site(f"PrologSlurmctld={theirs}\n"), can_be_several=False
    ).wrapper.replace(PROLOG_SLURMCTLD.ours, str(ours))

    assert run(found, tmp_path)[0] == 1


SITES_LUA = {
    "with a return": "function slurm_job_submit(d) d.seen = 'site'; return d.code end\n"
    "function slurm_job_modify() return slurm.SUCCESS end\nreturn slurm.SUCCESS\n",
    "without": "slurm_job_submit = function(d) d.seen = 'site'; return d.code end\n"
    "slurm_job_modify = function() return slurm.SUCCESS end",
    "with comments below": "function slurm_job_submit(d) d.seen = 'site' return d.code end\n"
    "function slurm_job_modify() end\nreturn slurm.SUCCESS; -- the end\n\n-- vim: ft=lua\n",
    "with none": "",
}
TRY = """
slurm = {SUCCESS = 0, ERROR = -1, log_error = function() end, log_user = function() end}
local code = assert(loadfile(arg[1]))()
assert(code == nil or code == slurm.SUCCESS)
local good, bad = {code = 0}, {code = 2043}
print(slurm_job_submit(good, {}, 0), good.ours, slurm_job_submit(bad, {}, 0), bad.ours,
      slurm_job_modify({}, {}, {}, 0))
"""


OURS_LUA = """
function outrider_job_submit(d) d.ours = d.seen or 'alone'; return slurm.SUCCESS end
function outrider_job_modify() return slurm.ERROR end
function slurm_job_submit() error("this one is for sites without rules") end
slurm_job_modify = slurm_job_submit
"""


def lua() -> str:
    for name in ("lua5.4", "lua5.3", "lua"):
        if found := shutil.which(name):
            return found
    if os.environ.get("CI"):
        pytest.fail("no lua is installed")
    pytest.skip("no lua is installed")


@pytest.mark.parametrize("name", SITES_LUA)
def test_sites_functions_run_before_ours_whatever_the_file_looks_like(name: str, tmp_path: Path) -> None:
    text = with_ours(SITES_LUA[name], SUBMIT, "x.lua").replace(SUBMIT.ours, str(tmp_path / "ours.lua"))
    (tmp_path / "ours.lua").write_text(OURS_LUA)
    (tmp_path / "job_submit.lua").write_text(text)
    (tmp_path / "try.lua").write_text(TRY)

    done = subprocess.run(
        [lua(), "try.lua", "job_submit.lua"], cwd=tmp_path, capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip

    # Where the site says nothing, both jobs are ours to judge.
    expected = "0 alone 0 alone -1" if name == "with none" else "0 site 2043 nil -1"
    assert done.stdout.split() == expected.split(), done.stderr


def test_where_our_filter_is_gone_only_jobs_that_need_it_are_refused(tmp_path: Path) -> None:
    text = with_ours("", SUBMIT, "x.lua").replace(SUBMIT.ours, str(tmp_path / "gone.lua"))
    (tmp_path / "job_submit.lua").write_text(text)
    (tmp_path / "try.lua").write_text(
        "slurm = {SUCCESS = 0, ERROR = -1, log_user = function(form, words) end}\n"
        "dofile('job_submit.lua')\n"
        "print(slurm_job_submit({script = '#OUTRIDER image: x'}), slurm_job_submit({comment = 'outrider:x'}),"
        " slurm_job_submit({}), slurm_job_modify({}))\n"
    )

    done = subprocess.run(
        [lua(), "try.lua"], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )

    assert done.stdout.split() == ["-1", "-1", "0", "0"], done.stderr


def test_site_that_calls_our_filter_itself_is_left_alone() -> None:
    own = "function slurm_job_submit(...) return outrider_job_submit(...) end\n"

    assert with_ours(own, SUBMIT, "x.lua") == own


def test_spank_plugin_is_added_to_a_stack_and_never_required() -> None:
    own = "required /x/y.so\n"
    texts = SiteTexts(submit=None, cli=None, plugstack=own)

    found = plan(site(""), texts, frozenset(), VERSION, has_spank=True)

    text = {each.path: each.after for each in found.edits}["/etc/slurm/plugstack.conf"]
    assert "optional /usr/lib/outrider/slurm/spank_outrider.so\n" in text
    assert restored(text, SLURM, "plugstack.conf") == own


def test_filter_of_the_client_is_left_out_unless_it_is_wanted() -> None:
    without, wanted = planned(site("")), planned(site(""), parts=ALL | {"cli-filter"})

    assert "CliFilterPlugins" not in dict(without.settings)
    assert dict(wanted.settings)["CliFilterPlugins"] == "cli_filter/lua"
    assert "/etc/slurm/cli_filter.lua" in {each.path for each in wanted.edits}


def test_what_a_controller_shows_is_read_on_every_version() -> None:
    found = shown("Prolog[0]   = /a\nProlog[1]  = /b\nTaskProlog  = (null)\nBatchStartTimeout = 10 sec\n")

    assert found == {"prolog": "/a,/b", "taskprolog": "", "batchstarttimeout": "10 sec"}
    assert version_of("slurm-wlm 22.05.8") == (22, 5, 8)


def test_network_file_system_of_slurm_conf_is_recognised() -> None:
    mounts = "/dev/a / ext4 rw 0 0\nserver:/x /etc/slurm nfs4 rw 0 0\n"

    assert file_system("/etc/slurm/slurm.conf", mounts) == "nfs4"
    assert file_system("/etc/slurmy/slurm.conf", mounts) == ""


def test_lua_that_lies_there_unused_is_not_woken() -> None:
    plan = planned(site("JobSubmitPlugins=all_partitions\n"), submit="function slurm_job_submit() end\n")

    assert "it would come into force" in plan.troubles[0].replace("with Outrider ", "")


def test_lua_of_the_site_in_use_is_no_trouble() -> None:
    text = "function slurm_job_submit() end\n"

    assert planned(site("JobSubmitPlugins=lua\n"), submit=text).troubles == ()
    assert planned(site("JobSubmitPlugins=x,job_submit/lua\n"), submit=text).troubles == ()


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ("", "BatchStartTimeout (10 s) is not above the 60 s"),
        ("PrologEpilogTimeout=65534\nBatchStartTimeout=30\n", "set BatchStartTimeout=120"),
        ("PrologEpilogTimeout=30\nBatchStartTimeout=61\n", "a prolog may take 30 s, but Outrider's 60 s"),
        ("PrologEpilogTimeout=600\n", "BatchStartTimeout (10 s) is not above the 60 s"),
        ("PrologEpilogTimeout=600\nBatchStartTimeout=60\n", "set BatchStartTimeout=660"),
        ("PrologTimeout=90\nPrologEpilogTimeout=5\nBatchStartTimeout=60\n", "set BatchStartTimeout=150"),
    ],
)
def test_trap_of_the_timeouts_is_named_with_its_numbers(lines: str, word: str) -> None:
    found = timeouts(site(lines).value)

    assert len(found) == 1
    assert word in found[0]


def test_limit_of_the_sites_own_prolog_asks_for_no_longer_start() -> None:
    assert timeouts(site("PrologEpilogTimeout=3600\nBatchStartTimeout=600\n").value) == []


def test_timeout_that_the_site_has_not_set_is_set_above_what_a_prolog_takes() -> None:
    assert dict(planned(site("")).settings)["BatchStartTimeout"] == "120"
    assert dict(planned(site("PrologEpilogTimeout=600\n")).settings)["BatchStartTimeout"] == "660"
    assert "BatchStartTimeout" not in dict(planned(site("BatchStartTimeout=5\n")).settings)


def test_timeouts_that_fit_are_no_matter() -> None:
    assert timeouts(site("PrologEpilogTimeout=600\nBatchStartTimeout=660\n").value) == []
