"""docs/tutorial/install-gridengine.md, followed to the letter on a private cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from testbed.gridengine import VARIABLES, GridEngineCluster
from tests.daemons.installing.follow import COMMAND_S, follow, steps
from tests.daemons.installing.grids import grid, objects
from tests.daemons.installing.machines import tree
from tests.repository import ROOT

PAGE = (ROOT / "docs/tutorial/install-gridengine.md").read_text()
SHIM = (Path(__file__).with_name("systemctl.sh")).read_text()
HOSTS = ("head", "n1", "n2", "images")
WHERE = ("/etc/outrider", "/etc/systemd", "/usr/lib/outrider", "/usr/sbin", "/usr/lib/systemd")


@pytest.fixture
def cluster(installed: Path) -> Iterator[GridEngineCluster]:
    """Two nodes, with what stands for systemd."""
    with grid(installed, 2) as made:
        for host in ("head", "n1", "n2"):
            made.run(host, ["mkdir", "-p", "/run/systemd/system", "/etc/systemd/system"])
            made.write(host, "/usr/local/bin/systemctl", SHIM, mode=0o755)
        lines = "".join(f"{key}={value}\n" for key, value in VARIABLES.items())
        made.write("head", "/etc/systemd/environment", lines)
        yield made


@pytest.mark.long
def test_page_is_followed_to_the_letter_and_back(cluster: GridEngineCluster) -> None:
    before = {host: tree(cluster, host, *WHERE) for host in ("head", "n1", "n2")}
    had = objects(cluster)

    def type_(prompt: str, line: str) -> CompletedProcess[str]:
        host, user = (prompt, "root") if prompt in HOSTS else ("head", prompt)
        return cluster.run(host, ["sh", "-c", line], user=user, check=False, timeout_s=COMMAND_S)

    count = follow(PAGE, type_)

    assert count > 10
    assert objects(cluster) == had
    assert {host: tree(cluster, host, *WHERE) for host in ("head", "n1", "n2")} == before


def test_every_prompt_of_the_page_is_a_host_or_a_user() -> None:
    assert {each.prompt for each in steps(PAGE)} == {"head", "images", "ada"}
