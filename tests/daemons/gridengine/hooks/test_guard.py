"""The guard: whatever is in a job's environment, root's scripts see none of it, and no status gets out."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons.gridengine.hooks.node import Node, compiled_guard, needs_compiler, node
from tests.daemons.node.daemons import eventually, needs_root

FAILED = 100
TELLS = "#!/bin/sh\nenv\n"
# Each ends a shell, or any program of the C library, or makes one read what a user has written.
HOSTILE = {
    "OPTIND": "x",
    "GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=999999999999999",
    "MALLOC_TOP_PAD_": "999999999999999",
    "PATH": "/tmp/hostile",
    "PYTHONPATH": "/tmp/hostile",
    "PYTHONHOME": "/tmp/hostile",
    "PYTHONSTARTUP": "/tmp/hostile",
    "PERL5LIB": "/tmp/hostile",
    "BASH_ENV": "/tmp/hostile",
    "ENV": "/tmp/hostile",
    "IFS": "/",
    "PS4": "$(touch /tmp/gh-owned)",
    "LD_PRELOAD": "/tmp/hostile.so",
    "LD_LIBRARY_PATH": "/tmp/hostile",
    "LC_ALL": "/tmp/hostile",
    "LOCPATH": "/tmp/hostile",
    "GCONV_PATH": "/tmp/hostile",
    "OUTRIDER_SHEPHERD": "1",
    "SGE_ROOTS": "/tmp/hostile",
    "BASH_FUNC_exit%%": "() { echo owned; }",
    "JOB_NAME": "a\nb\n'\"$(touch /tmp/gh-owned)",
}


@pytest.fixture(scope="module")
def telling() -> Iterator[Node]:
    """A node whose prolog tells its environment."""
    needs_root()
    with node() as found:
        found.scripts["prolog"].write_text(TELLS)
        yield found


def variables(text: str) -> set[str]:
    return {line.partition("=")[0] for line in text.splitlines()}


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_variable_of_a_job_does_not_reach_root(telling: Node, name: str) -> None:
    prolog = telling.run_in("prolog", {name: HOSTILE[name]})

    assert (prolog.returncode, prolog.stderr) == (0, "")
    assert variables(prolog.stdout) == {"PATH", "LC_ALL", "PWD"}
    assert "PATH=/usr/sbin:/usr/bin:/sbin:/bin" in prolog.stdout.splitlines()
    assert not Path("/tmp/gh-owned").exists()


def test_same_variables_end_the_script_alone_with_a_status_that_disables_queues(telling: Node) -> None:
    script = telling.scripts["prolog"]
    ends = [
        subprocess.run([script], env={name: HOSTILE[name]}, capture_output=True, timeout=240).returncode
        for name in ("OPTIND", "GLIBC_TUNABLES", "MALLOC_TOP_PAD_")
    ]

    # If this fails, the shell has learnt something, and the guard is needed for less.
    assert not set(ends) & {0, 99, 100}


def test_what_is_handed_on_is_cut_off(telling: Node) -> None:
    given = {"OUTRIDER_TICKET": "t" * 100_000, "SGE_ROOT": "/opt/sge", "SGE_CELL": "main", "SGE_ARCH": "lx"}
    prolog = telling.run_in("prolog", given)
    lines = prolog.stdout.splitlines()

    assert prolog.returncode == 0
    assert {len(line) for line in lines if line.startswith("OUTRIDER_TICKET=")} == {512}
    assert {"SGE_ROOT=/opt/sge", "SGE_CELL=main", "SGE_ARCH=lx"} <= set(lines)


def test_huge_environment_is_no_trouble(telling: Node) -> None:
    given = {f"V{number}": "x" * 120_000 for number in range(12)}
    prolog = telling.run_in("prolog", given)

    assert prolog.returncode == 0
    assert variables(prolog.stdout) == {"PATH", "LC_ALL", "PWD"}


@pytest.mark.parametrize(
    ("ending", "status"),
    [
        ("exit 0", 0),
        ("exit 99", 99),
        ("exit 100", 100),
        ("exit 1", FAILED),
        ("exit 255", FAILED),
        ("kill -9 $$", FAILED),
        ("kill -15 $$", FAILED),
        ("exec /nowhere", FAILED),
    ],
)
def test_status_is_one_of_three(telling: Node, ending: str, status: int) -> None:
    script = telling.scripts["epilog"]
    other = telling.scripts["pe-start"]
    for each in (script, other):
        each.write_text(f"#!/bin/sh\n{ending}\n")

    assert telling.run_in("pe-start", {}).returncode == status
    assert telling.run_in("epilog", {}).returncode == 0


def test_what_a_script_leaves_running_ends_with_it(telling: Node) -> None:
    telling.scripts["pe-start"].write_text("#!/bin/sh\nsleep 600 >/dev/null 2>&1 &\necho $!\nexit 0\n")
    done = telling.run_in("pe-start", {})
    left = Path(f"/proc/{done.stdout.strip()}")

    eventually("it is gone", lambda: not left.exists() or "(sleep) Z" in (left / "stat").read_text())
    assert done.returncode == 0


def test_shepherd_is_named_by_its_number(telling: Node) -> None:
    telling.scripts["pe-start"].write_text('#!/bin/sh\necho "$@"\n')
    done = telling.run_in("pe-start", {}, "file", "a b", "", "--shepherd=1", *"0123456789")

    assert done.stdout.startswith("--shepherd=")
    assert done.stdout.split(" ", 1)[1] == "file a b  --shepherd=1 0 1 2 3 4 5 6 7 8 9\n"


@pytest.mark.parametrize("name", ["guard", "prologue", "sh", "..", "prolog.sh"])
def test_guard_starts_nothing_under_another_name(tmp_path: Path, name: str) -> None:
    needs_compiler()
    compiled_guard(tmp_path / "made", str(tmp_path))
    done = subprocess.run([name], executable=tmp_path / "made", capture_output=True, text=True, timeout=240)

    assert done.returncode == FAILED
    assert "and nothing else" in done.stdout


def test_guard_needs_no_library(tmp_path: Path) -> None:
    needs_compiler()
    compiled_guard(tmp_path / "made", str(tmp_path))

    # No interpreter is named in it, so that the kernel starts it and nobody else.
    assert b"ld-linux" not in (tmp_path / "made").read_bytes()
