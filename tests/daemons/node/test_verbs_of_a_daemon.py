"""The same verbs asked of a daemon: waiting, not waiting, interrupting; and which daemon is asked."""

from __future__ import annotations

import os
import pty
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cachemgr.cli.progress import CLEAR
from tests.unit.cachemgr.cli.outcomes import Node, Outcome, environment, missing, until
from tools.pyz import pack

SLOW = ("--rate", "1MB/s")
SIZE_BYTES = 8 << 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    # The path of a socket has to be short.
    with tempfile.TemporaryDirectory(prefix="node") as short:
        folder = tmp_path_factory.mktemp("node")
        found = Node(folder)
        found.config.write_text(f"[cachemgr]\npool = {folder}/pool\nsocket = {short}/socket\n")
        assert found.run("init", "--limit", "100MiB").code == 0
        with found.served():
            yield found


@pytest.fixture
def image(node: Node, request: pytest.FixtureRequest) -> Path:
    """An image of 8 MiB of the test's own, with a name that can be read off."""
    path = node.folder / f"{request.node.name[:40]}.img"
    path.write_bytes(request.node.name.encode().ljust(100) * (SIZE_BYTES // 100))
    return path


def states(node: Node) -> dict[str, str]:
    """The transfers' states by the last part of their addresses."""
    rows = [line.split() for line in node.run("transfers", "-n").out.splitlines()]
    return {row[-1].rpartition("/")[2]: row[1] for row in rows}


def test_ping_tells_which_pool_is_served(node: Node) -> None:
    said = node.run("ping")

    assert said.code == 0
    assert f"has served {node.folder}/pool" in said.out


def test_add_waits_until_the_image_is_there(node: Node, image: Path) -> None:
    added = node.run("add", str(image))

    assert added.out.startswith("sha256:")
    assert Path(node.run("find", image.name).out.strip()).read_bytes() == image.read_bytes()


def test_interrupted_add_goes_on_in_the_daemon_and_can_be_cancelled(node: Node, image: Path) -> None:
    with node.begun("add", str(image), *SLOW) as waiting:
        until(lambda: states(node).get(image.name) == "running", lambda: node.run("transfers"))
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate(timeout=240)

        assert waiting.returncode == 130
    number = said.split("transfer ")[1].split()[0]
    assert "continues in the daemon" in said
    assert f"`cachemgr transfer {number} --cancel` ends it" in said
    assert states(node)[image.name] == "running"
    assert node.run("transfer", number, "--cancel").out.split(" ", 1)[1].strip() in (
        "cancelled",
        "is being cancelled",
    )
    until(lambda: states(node)[image.name] == "cancelled", lambda: node.run("transfers"))


def test_transfer_that_is_not_waited_for_can_be_paused_changed_and_resumed(node: Node, image: Path) -> None:
    number = node.run("add", str(image), *SLOW, "--no-wait", "--deadline", "+1h").out.strip()
    until(lambda: states(node)[image.name] == "running", lambda: node.run("transfers"))

    assert node.run("transfer", number, "--pause").out == f"{number} paused\n"
    arriving = next(line for line in node.run("ls").out.splitlines() if line.endswith(image.name))
    assert arriving.split()[1].endswith("%")
    assert node.run("transfer", number, "--rate", "0", "--resume").code == 0
    until(lambda: states(node)[image.name] == "done", lambda: node.run("transfers"))
    assert node.run("transfer", number, "--pause").code == 3
    assert node.run("transfer", number).code == 2


def test_failed_transfer_stays_in_the_list_with_its_reason(node: Node, image: Path) -> None:
    refused = node.run("add", str(image), "--digest", "0" * 64)

    assert refused.code == 6
    assert states(node)[image.name] == "failed(wrong-bytes)"


def test_terminal_shows_how_far_it_is_and_is_clean_in_the_end(node: Node, image: Path) -> None:
    ours, theirs = pty.openpty()
    command = node.command("add", str(image), "--rate", "5MB/s")
    with subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=theirs) as waiting:
        os.close(theirs)
        shown = b"".join(read_all(ours)).decode()
    os.close(ours)

    *lines, last = shown.split(CLEAR)
    assert waiting.returncode == 0
    assert any(re.match(rf"{image.name}: \d+ %, \d\.\d MiB of 8\.0 MiB, ", line) for line in lines)
    assert "\n" not in "".join(lines)
    assert re.fullmatch(rf"cachemgr: {image.name} \(\w+\), 8\.0 MiB, is in the pool after \d s\s+", last)


def read_all(file: int) -> Iterator[bytes]:
    """What comes from a terminal until its other side is closed, which it reports as an error."""
    while True:
        try:
            yield os.read(file, 4096)
        except OSError:
            return


def test_limits_are_told_and_changed(node: Node) -> None:
    assert node.run("limits", "--rate", "80Mbit").code == 0
    assert node.run("limits").out == "rate        9.5 MiB/s\nrelay rate  no limit\n"
    assert node.run("limits", "--rate", "0").out.splitlines()[0] == "rate        no limit"


def test_metrics_are_prometheus_text(node: Node) -> None:
    lines = node.run("metrics").out.splitlines()

    assert f"outrider_pool_limit_bytes {100 << 20}" in lines
    assert "# TYPE outrider_pool_limit_bytes gauge" in lines


def test_daemon_of_another_pool_is_not_asked(node: Node, tmp_path: Path) -> None:
    made = node.run("--pool", str(tmp_path / "other"), "init", "--limit", "1MiB")
    listed = node.run("--pool", str(tmp_path / "other"), "-v", "ls")

    assert made.code == listed.code == 0
    assert "asking this process" in listed.err
    assert "asking the daemon" in node.run("--pool", str(node.folder / "pool"), "-v", "ls").err


def test_socket_that_was_asked_for_is_the_only_way(node: Node) -> None:
    refused = node.run("--socket", str(node.folder / "nobody"), "ls")

    assert refused.code == 13
    assert "nobody" in refused.err


def test_init_under_a_running_daemon_says_that_it_has_to_be_restarted(node: Node) -> None:
    changed = node.run("init", "--policy", "lru")

    assert "until it is restarted" in changed.err
    assert node.run("init", "--policy", "lru").err == ""


def test_second_daemon_refuses_with_a_sentence(node: Node) -> None:
    refused = node.run("serve")

    assert refused.code == 9
    assert "another daemon listens" in refused.err


@pytest.fixture(scope="module")
def public(node: Node) -> Iterator[list[str]]:
    """A command that every user can run: an interpreter and a file that everybody can read."""
    if os.geteuid() != 0:
        missing("the right to become another user")
    with tempfile.TemporaryDirectory(prefix="public") as folder:
        os.chmod(folder, 0o755)
        pack(Path(folder) / "cachemgr.pyz")
        for python in (sys.executable, "/usr/bin/python3"):
            program = "import sys, encodings.ascii; sys.exit(sys.version_info < (3, 9))"
            try:
                found = subprocess.run(
                    [python, "-IS", "-c", program], user="nobody", stderr=subprocess.DEVNULL
                )
            except PermissionError:
                continue
            if found.returncode == 0:
                break
        else:
            missing("a Python that every user can run")
        socket = str(node.run("config", "--json").json["socket"])
        os.chmod(os.path.dirname(socket), 0o755)
        yield [python, "-IS", f"{folder}/cachemgr.pyz", "--config", os.devnull, "--socket", socket]


def as_user(user: str, command: list[str], *words: str) -> Outcome:
    done = subprocess.run(
        [*command, *words], user=user, group=pwd.getpwnam(user).pw_gid, extra_groups=[], cwd="/",
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr)


def test_ordinary_user_adds_a_file_that_only_the_user_can_read(public: list[str], image: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="user") as folder:
        own = Path(folder) / "own.img"
        shutil.copy(image, own)
        for path in (Path(folder), own):
            os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
            path.chmod(0o700)
        added = as_user("nobody", public, "add", str(own), "--private")

    assert added.code == 0
    assert added.out.startswith("sha256:")
    assert as_user("nobody", public, "find", "own.img").code == 0


def test_ordinary_user_cannot_add_what_only_root_can_read(public: list[str], image: Path) -> None:
    image.chmod(0o600)
    refused = as_user("nobody", public, "add", str(image))

    assert refused.code == 8
    assert "Permission denied" in refused.err


@pytest.mark.parametrize("verb", [["check"], ["evict", "--need", "1"], ["limits", "--rate", "1MB/s"]])
def test_ordinary_user_does_not_steer_the_node(public: list[str], verb: list[str]) -> None:
    assert as_user("nobody", public, *verb).code == 8


def test_without_a_daemon_an_ordinary_user_is_told_who_may(node: Node, public: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="pool") as folder:
        os.chmod(folder, 0o755)
        pool = f"{folder}/pool"
        assert node.run("--pool", pool, "init", "--limit", "1MiB").code == 0
        refused = as_user("nobody", public, "--pool", pool, "--no-daemon", "ls")

    assert refused.code == 13
    assert refused.err.endswith(f"the pool {pool} is for root alone\n")


def test_root_makes_a_pool_that_is_all_its_user_s(public: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="pool") as folder:
        os.chmod(folder, 0o755)
        pool, image = Path(folder) / "pool", Path(folder) / "a.img"
        image.write_bytes(b"a" * 100)
        made = as_user(
            "root", public, "--pool", str(pool), "--no-daemon", "init", "--limit", "1MiB", "--user", "nobody"
        )
        added = as_user("root", public, "--pool", str(pool), "--no-daemon", "add", str(image))
        image.chmod(0o600)
        image.write_bytes(b"b" * 100)
        as_user("root", public, "--pool", str(pool), "--no-daemon", "forget", str(image))
        refused = as_user("root", public, "--pool", str(pool), "--no-daemon", "add", str(image))
        owners = {path.stat().st_uid for path in [pool, *pool.rglob("*")]}

    assert made.code == added.code == 0
    assert "of nobody" in made.out
    assert owners == {pwd.getpwnam("nobody").pw_uid}
    assert refused.code == 7
    assert "the pool's user who has to be able to read it" in refused.err


def test_daemon_of_root_becomes_the_user_whose_pool_it_serves(public: list[str]) -> None:
    owner = pwd.getpwnam("nobody").pw_uid
    with tempfile.TemporaryDirectory(prefix="pool") as folder:
        os.chown(folder, owner, -1)
        os.chmod(folder, 0o755)
        (Path(folder) / "a.img").write_bytes(b"a" * 100)
        (Path(folder) / "a.img").chmod(0o644)
        command = [*public, "--socket", f"{folder}/socket", "--pool", f"{folder}/pool"]
        assert as_user("root", command, "init", "--limit", "1MiB", "--user", "nobody").code == 0
        with subprocess.Popen([*command, "serve"], stderr=subprocess.PIPE, text=True) as daemon:
            try:
                until(lambda: as_user("root", command, "ping").code == 0, daemon.poll)
                added = as_user("root", command, "add", f"{folder}/a.img")
            finally:
                daemon.terminate()
            _, said = daemon.communicate(timeout=240)
        owners = {path.stat().st_uid for path in (Path(folder) / "pool").rglob("*")}

    assert added.code == daemon.returncode == 0
    assert owners == {owner}
    assert "nobody" in said


def test_shares_tell_who_takes_what(node: Node, image: Path) -> None:
    number = node.run("add", str(image), *SLOW, "--no-wait").out.strip()
    lines = [line.split() for line in node.run("shares").out.splitlines()]
    node.run("transfer", number, "--cancel")
    me = pwd.getpwuid(os.geteuid()).pw_name

    assert lines[0] == ["THING", "USER", "HELD", "MOST", "REFUSED"]
    assert ["transfers", me, "1", "32", "0"] in lines
    assert any(line[:2] == ["connections", me] for line in lines)
