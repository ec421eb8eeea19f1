"""Commands that run as another user: who they are then, and what happens where there is no such command."""

from __future__ import annotations

import os

import pytest

from outrider.rms import commands
from outrider.rms.commands import Account, run_process

NOBODY = Account(user="nobody", uid=65534, gid=65533, groups=(65533, 65532))
SHOWN = ("/bin/sh", "-c", "grep -E '^(Uid|Gid|Groups):' /proc/self/status; pwd; cat; exit 7")
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")


@pytest.mark.parametrize("has_setpriv", [True, False])
def test_command_is_the_user_with_its_groups_and_nothing_of_roots(
    monkeypatch: pytest.MonkeyPatch, has_setpriv: bool
) -> None:
    if not has_setpriv:
        monkeypatch.setattr(commands, "SETPRIV", None)

    done = run_process(
        SHOWN, environment={"PATH": commands.PATH}, timeout_s=60, text=b"given", account=NOBODY
    )

    lines = done.text.decode().splitlines()
    assert lines[0].split() == ["Uid:", *["65534"] * 4]
    assert lines[1].split() == ["Gid:", *["65533"] * 4]
    assert sorted(lines[2].split()[1:]) == ["65532", "65533"]
    assert lines[3:] == ["/", "given"]
    assert done.code == 7


def test_user_without_further_groups_has_none_of_roots() -> None:
    alone = Account(user="nobody", uid=65534, gid=65533)

    done = run_process(SHOWN, environment={"PATH": commands.PATH}, timeout_s=60, account=alone)

    assert done.text.decode().splitlines()[2].split() == ["Groups:"]


@pytest.mark.parametrize("has_setpriv", [True, False])
def test_command_that_is_not_there_is_told_as_that(
    monkeypatch: pytest.MonkeyPatch, has_setpriv: bool
) -> None:
    if not has_setpriv:
        monkeypatch.setattr(commands, "SETPRIV", None)

    with pytest.raises(FileNotFoundError):
        run_process(("no-such-command",), environment={"PATH": commands.PATH}, timeout_s=60, account=NOBODY)
