"""Many nodes at once, with machines that a test makes up: order, failures, and interrupts."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from outrider.cli.errors import InputError
from outrider.cli.installing.common.nodefiles import NodeKit, conf
from outrider.cli.installing.common.placing import Json
from outrider.cli.installing.common.ports import Ports
from outrider.cli.installing.common.remote import RemoteError
from outrider.cli.installing.deploy import Deployment, NodeResult, deployed, names_in, on_all
from outrider.cli.main import main


class Machines:
    """Nodes that answer as told, and remember what they were asked."""

    def __init__(
        self, states: dict[str, str], *, uid: int = 0, trouble: str = "", is_resized: bool = False
    ) -> None:
        self.states = states
        self.is_resized = is_resized
        self.uid = uid
        self.trouble = trouble
        self.asked: list[Json] = []

    def call(self, node: str, request: Json) -> Json:
        self.asked.append(request)
        if self.trouble:
            raise RemoteError(self.trouble)
        if request["do"] == "look":
            paths = [each["path"] for each in request["files"]]
            states = {path: self.states.get(path, "missing") for path in paths}
            return {"files": states, "uid": self.uid, "has_systemd": False}
        changed = [each["path"] for each in request["files"]]
        done: Json = {"changed": changed, "kept": [], "words": [], "service": "started"}
        return {**done, "is_resized": self.is_resized}


FILES = (
    {"path": "/usr/lib/outrider/hook.py", "content": "aGk=", "digest": "x"},
    {"path": "/etc/systemd/system/cachemgr.service", "content": "aGk=", "digest": "x"},
)
KIT = NodeKit(files=FILES, folders=(), ports=Ports(control=7011, relay=7010))


def deployment(machines: Machines, *, is_dry: bool = False, verdict: str = "") -> Deployment:
    return Deployment(
        remote=machines, kit=KIT, is_dry=is_dry, limit="1GiB", is_started=True, start_command="",
        verify=lambda node: verdict,
    )  # fmt: skip


def test_pool_with_another_limit_is_a_change_and_is_said() -> None:
    paths = {each["path"]: "same" for each in KIT.of("n1")}

    same = deployed(deployment(Machines(paths)), "n1")
    resized = deployed(deployment(Machines(paths, is_resized=True)), "n1")

    assert (same.state, same.words) == ("same", "")
    assert (resized.state, resized.words) == ("changed", "its pool may now have 1GiB")


def test_only_what_differs_is_sent_and_no_unit_without_systemd() -> None:
    machines = Machines({"/usr/lib/outrider/hook.py": "same"})

    result = deployed(deployment(machines), "n1")

    assert result.files == ("/etc/outrider/cachemgr.conf",)
    assert [each["path"] for each in machines.asked[1]["files"]] == ["/etc/outrider/cachemgr.conf"]
    assert all("content" not in each for each in machines.asked[0]["files"])


def test_dry_run_asks_once_and_changes_nothing() -> None:
    machines = Machines({})

    result = deployed(deployment(machines, is_dry=True), "n1")

    assert (result.state, len(machines.asked)) == ("would change", 1)


def test_login_that_is_not_root_is_told_before_anything_is_sent() -> None:
    machines = Machines({}, uid=1000)

    result = deployed(deployment(machines), "n1")

    assert (result.state, result.words, len(machines.asked)) == (
        "failed", "the login there is not root: use --sudo", 1,
    )  # fmt: skip


def test_daemon_that_does_not_answer_afterwards_is_a_failure_with_its_reason() -> None:
    result = deployed(deployment(Machines({}), verdict="the files are there, but: silence"), "n1")

    assert (result.state, result.words) == ("failed", "the files are there, but: silence")


def test_each_node_is_told_its_own_name() -> None:
    assert "node = n7\n" in conf("n7", KIT.ports)


def test_never_more_at_once_than_asked_for() -> None:
    running, most, guard = [0], [0], threading.Lock()
    together = threading.Barrier(3)

    def work(name: str) -> NodeResult:
        with guard:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait(10)
        with guard:
            running[0] -= 1
        return NodeResult(node=name, state="same")

    results = list(on_all([f"n{number}" for number in range(12)], work, 3))

    assert (len(results), most[0]) == (12, 3)


def test_interrupt_lets_those_under_way_end_and_begins_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    begun: list[str] = []
    ended: list[str] = []
    go_on = threading.Event()

    def work(name: str) -> NodeResult:
        begun.append(name)
        if name != "n0":
            assert go_on.wait(60)
        ended.append(name)
        return NodeResult(node=name, state="changed")

    results: Iterator[NodeResult] = on_all([f"n{number}" for number in range(50)], work, 2)
    next(results)
    threading.Timer(0.05, go_on.set).start()
    with pytest.raises(KeyboardInterrupt):
        results.throw(KeyboardInterrupt())  # type: ignore[attr-defined]

    assert sorted(begun) == sorted(ended)
    assert len(begun) < 10
    assert "no further node is begun" in capsys.readouterr().err


def test_nodes_that_cannot_be_read_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError, match=r"n\[1-"):
        names_in("n[1-")
    assert main(["nodes", "deploy", "n[4-"]) == InputError.exit_code
    assert capsys.readouterr().err.count("\n") == 1


def test_listing_of_nodes_is_still_a_command_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nodes", "--help"]) == 0
    assert "list nodes" in capsys.readouterr().out
    assert main(["nodes", "deploy", "--help"]) == 0
    assert "--limit" in capsys.readouterr().out
