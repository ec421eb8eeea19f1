"""The starter: a job starts as Grid Engine would start it, whatever the mode; its input was recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemons.gridengine.hooks.node import Node, node
from tests.daemons.node.daemons import needs_root

TELLS = 'echo "$# $1 $2 $-"; shopt -q login_shell && echo login; readlink "/proc/$$/fd/0"\n'


@pytest.fixture(scope="module")
def bare() -> Iterator[Node]:
    needs_root()
    with node() as found:
        script = found.folder / "job_scripts" / "17"
        script.parent.mkdir()
        script.write_text(f"#!/bin/bash\n{TELLS}")
        script.chmod(0o755)
        yield found


@pytest.fixture
def script(bare: Node) -> str:
    return str(bare.folder / "job_scripts" / "17")


def mode(name: str, job_script: str, shell: str = "/bin/bash", login: str = "true") -> dict[str, str]:
    return {
        "SGE_STARTER_SHELL_START_MODE": name,
        "SGE_STARTER_SHELL_PATH": shell,
        "SGE_STARTER_USE_LOGIN_SHELL": login,
        "JOB_SCRIPT": job_script,
        "PATH": "/usr/bin:/bin",
    }


@pytest.mark.parametrize("login", ["true", "false"])
def test_script_is_read_by_the_jobs_shell(bare: Node, script: str, login: str) -> None:
    lines = bare.start(
        script, "a", "b  c", **mode("posix_compliant", script, login=login)
    ).stdout.splitlines()

    assert lines[0] == "2 a b  c hB"
    assert ("login" in lines) == (login == "true")


def test_script_starts_itself(bare: Node, script: str) -> None:
    done = bare.start(script, "a", "b  c", **mode("unix_behavior", script, "/bin/sh"))

    assert done.stdout.splitlines()[0] == "2 a b  c hB"
    assert "login" not in done.stdout


def test_script_without_an_interpreter_is_the_shells(bare: Node) -> None:
    plain = bare.folder / "job_scripts" / "18"
    plain.write_text('echo "$1"\n')
    plain.chmod(0o755)
    done = bare.start(str(plain), "a", JOB_ID="18", **mode("unix_behavior", str(plain), "/bin/sh"))

    assert (done.returncode, done.stdout) == (0, "a\n")


def test_script_comes_by_standard_input(bare: Node, script: str) -> None:
    given = Path(script).read_text()
    done = bare.start("-s", "a", "b  c", given=given, **mode("script_from_stdin", script))

    assert done.stdout.splitlines()[0] == "2 a b  c hBs"


@pytest.mark.parametrize("name", ["posix_compliant", "unix_behavior"])
def test_command_is_the_shells_unless_that_is_unwanted(bare: Node, name: str) -> None:
    words = ("/bin/echo", "a", "b  c", "/et[c]")
    by_shell = bare.start(*words, no_shell="0", **mode(name, "/bin/echo"))
    itself = bare.start(*words, no_shell="1", **mode(name, "/bin/echo"))

    assert by_shell.stdout == "a b c /etc\n"
    assert itself.stdout == "a b  c /et[c]\n"


def test_command_is_not_read_as_a_script(bare: Node) -> None:
    done = bare.start(
        "-s", "a", "b  c", no_shell="0", given="binary\0", **mode("script_from_stdin", "/bin/echo")
    )

    assert (done.stdout, done.stderr) == ("a b c\n", "")


def test_command_of_qrsh_is_for_the_users_shell(bare: Node) -> None:
    words = mode("unix_behavior", "QRSH", shell="", login="false") | {"SHELL": "/bin/bash"}
    one = bare.start('echo "$0"; echo two', **words)
    several = bare.start("echo", "a", "b", **words)

    assert one.stdout == "/bin/bash\ntwo\n"
    assert several.stdout == "a b\n"


def test_status_is_the_jobs(bare: Node) -> None:
    done = bare.start("/bin/sh", "-c", "exit 7", **mode("posix_compliant", "/bin/sh"))

    assert done.returncode == 7
