"""docs/tutorial/install-slurm.md, followed to the letter on a private cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from testbed.slurm import SlurmCluster
from tests.daemons.installing.follow import COMMAND_S, follow, matches, steps
from tests.daemons.installing.machines import site, tree
from tests.repository import ROOT

PAGE = (ROOT / "docs/tutorial/install-slurm.md").read_text()
SHIM = (Path(__file__).with_name("systemctl.sh")).read_text()
HOSTS = ("head", "n1", "n2", "images")
WHERE = ("/etc", "/usr/lib/outrider", "/usr/sbin", "/usr/lib/systemd")


@pytest.fixture
def cluster(installed: Path) -> Iterator[SlurmCluster]:
    """Two nodes, with what stands for systemd."""
    with site(installed, 2) as made:
        for host in ("head", "n1", "n2"):
            made.run(host, ["mkdir", "-p", "/run/systemd/system", "/etc/systemd/system"])
            made.write(host, "/usr/local/bin/systemctl", SHIM, mode=0o755)
        yield made


def type_on(cluster: SlurmCluster, prompt: str, line: str) -> CompletedProcess[str]:
    host, user = (prompt, "root") if prompt in HOSTS else ("head", prompt)
    return cluster.run(host, ["sh", "-c", line], user=user, check=False, timeout_s=COMMAND_S)


@pytest.mark.repeats(
    "tests/daemons/walks/test_commands_of_pages.py::test_command_of_a_page_is_one_that_there_is"
)
def test_page_is_followed_to_the_letter_and_back(cluster: SlurmCluster) -> None:
    before = {host: tree(cluster, host, *WHERE) for host in ("head", "n1", "n2")}

    def type_(prompt: str, line: str) -> CompletedProcess[str]:
        return type_on(cluster, prompt, line)

    count = follow(PAGE, type_)

    assert count > 10
    assert {host: tree(cluster, host, *WHERE) for host in ("head", "n1", "n2")} == before


def test_every_prompt_of_the_page_is_a_host_or_a_user() -> None:
    assert {each.prompt for each in steps(PAGE)} == {"head", "images", "ada"}


@pytest.mark.parametrize(
    ("printed", "screen", "is_same"),
    [
        ("a\nb\n", "a\nb", True),
        ("a\nb\n", "a", False),
        ("a 1 c\n", "a … c", True),
        ("a\nx\ny\nb\n", "a\n…\nb", True),
        ("a\nb\n", "a\n…\nb", True),
        ("a.b\n", "axb", False),
    ],
)
def test_screens_are_compared_line_by_line(printed: str, screen: str, is_same: bool) -> None:
    assert matches(printed, screen) is is_same
