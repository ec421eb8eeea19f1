"""Putting files on a machine and taking them away again, stopped at every point."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from outrider.cli.installing.common import placing
from outrider.cli.installing.common.findings import Level, of_states
from outrider.cli.installing.common.placing import Json, PlacingError, carry_out, quietly

MANIFEST = "/lib/manifest.json"


def file(path: str, text: str, **about: object) -> Json:
    content = text.encode()
    return {
        "path": path, "content": base64.b64encode(content).decode(),
        "digest": hashlib.sha256(content).hexdigest(), **about,
    }  # fmt: skip


def request(root: Path, do: str, *files: Json, **more: object) -> Json:
    folders = [{"path": "/lib", "mode": 0o755}, {"path": "/etc/deep/er", "mode": 0o750}]
    return carry_out(
        {"do": do, "root": str(root), "manifest": MANIFEST, "folders": folders, "files": files, **more}
    )


def contents(root: Path) -> dict[str, tuple[int, str]]:
    """Everything below a folder, with modes."""
    return {
        str(path.relative_to(root)): (
            path.lstat().st_mode,
            os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else "",
        )
        for path in root.rglob("*")
    }


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A machine with a file where one of ours is to be."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "theirs").write_text("theirs")
    (tmp_path / "etc" / "theirs").chmod(0o640)
    return tmp_path


WANTED = (
    file("/lib/program", "one", mode=0o755),
    {"path": "/lib/link", "link": "/lib/program"},
    file("/etc/theirs", "ours"),
    file("/etc/deep/er/key", "secret", mode=0o600),
    file("/etc/conf", "default", is_config=True),
)


def test_what_is_put_is_there_and_removal_leaves_the_machine_as_it_was(root: Path) -> None:
    before = contents(root)

    put = request(root, "put", *WANTED)
    there = contents(root)
    removed = request(root, "remove")

    assert sorted(put["changed"]) == sorted(each["path"] for each in WANTED)
    assert there["lib/program"] == (0o100755, "one")
    assert there["etc/deep/er/key"] == (0o100600, "secret")
    assert there["lib/link"][1] == "/lib/program"
    assert removed["kept"] == []
    assert contents(root) == before


def test_second_time_nothing_is_changed(root: Path) -> None:
    request(root, "put", *WANTED)
    before = {path: (root / path).lstat().st_ino for path in contents(root)}

    again = request(root, "put", *WANTED)

    assert again["changed"] == []
    assert {path: (root / path).lstat().st_ino for path in contents(root)} == before


def test_only_what_is_new_is_changed_and_the_sites_file_still_comes_back(root: Path) -> None:
    before = contents(root)
    request(root, "put", *WANTED)

    put = request(
        root, "put", *WANTED[1:2], file("/lib/program", "two", mode=0o755), file("/etc/theirs", "new")
    )
    looked = request(root, "look", *WANTED)["files"]
    request(root, "remove")

    assert put["changed"] == ["/lib/program", "/etc/theirs"]
    assert (looked["/lib/program"], looked["/lib/link"], looked["/etc/conf"]) == ("older", "same", "same")
    assert contents(root) == before


def test_configuration_that_somebody_has_changed_or_made_stays(root: Path) -> None:
    request(root, "put", *WANTED)
    (root / "etc/conf").write_text("mine")
    (root / "etc/other").write_text("before")

    put = request(
        root, "put", file("/etc/conf", "new", is_config=True), file("/etc/other", "x", is_config=True)
    )
    removed = request(root, "remove")

    assert (put["changed"], put["kept"]) == ([], ["/etc/conf", "/etc/other"])
    assert removed["kept"] == ["/etc/conf"]
    assert (root / "etc/conf").read_text() == "mine"
    assert (root / "etc/other").read_text() == "before"


def test_mode_that_was_changed_is_mended(root: Path) -> None:
    request(root, "put", *WANTED)
    (root / "etc/deep/er/key").chmod(0o644)

    assert request(root, "put", *WANTED)["changed"] == ["/etc/deep/er/key"]
    assert (root / "etc/deep/er/key").stat().st_mode == 0o100600


def test_what_others_can_write_to_or_read_is_named(root: Path) -> None:
    request(root, "put", *WANTED)
    before = request(root, "look", *WANTED)["too_open"]
    for name, mode in {
        "lib": 0o777,
        "lib/program": 0o757,
        "etc/deep": 0o1777,
        "etc/deep/er/key": 0o644,
    }.items():
        (root / name).chmod(mode)

    found = request(root, "look", *WANTED)["too_open"]

    assert before == []
    assert found == [
        {"path": "/etc/deep/er/key", "mode": "0644", "by": "read"},
        {"path": "/lib", "mode": "0777", "by": "written"},
        {"path": "/lib/program", "mode": "0757", "by": "written"},
    ]


def test_content_that_came_changed_is_put_nowhere(root: Path) -> None:
    before = contents(root)
    broken = {**WANTED[0], "digest": "0" * 64}

    with pytest.raises(PlacingError, match="did not arrive as it was sent"):
        carry_out({"do": "put", "root": str(root), "manifest": MANIFEST, "folders": [], "files": [
            {**broken, "path": "/etc/new"}]})  # fmt: skip

    assert contents(root) == before


class Stopped(BaseException):
    """The machine goes down here."""


CALLS = ("replace", "fsync", "link", "unlink", "makedirs", "symlink", "rmdir")


def stopping(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """From the so-manyth call on nothing is done any more."""
    left = [after]

    def stop(real: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise Stopped
            return real(*arguments, **options)

        return call

    for name in CALLS:
        monkeypatch.setattr(os, name, stop(getattr(os, name)))


@pytest.mark.parametrize("do", ["put", "remove"])
def test_stopped_anywhere_it_can_be_done_again_and_undone(
    do: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(200):
        root = tmp_path / str(number)
        (root / "etc").mkdir(parents=True)
        (root / "etc" / "theirs").write_text("theirs")
        before = contents(root)
        if do == "remove":
            request(root, "put", *WANTED)
        with monkeypatch.context() as patch:
            stopping(patch, number)
            try:
                request(root, do, *(WANTED if do == "put" else ()))
                is_whole = True
            except Stopped:
                is_whole = False
        for each in WANTED:
            path = root / each["path"].lstrip("/")
            allowed = (
                ("theirs", "ours")
                if each["path"] == "/etc/theirs"
                else (base64.b64decode(each.get("content", "")).decode(),)
            )
            assert not path.is_file() or path.is_symlink() or path.read_text() in allowed
        request(root, "put", *WANTED)
        request(root, "remove")
        # The folder of the manifest cannot be noted in it before it is there.
        quietly(os.rmdir, str(root / "lib"))
        assert contents(root) == before, number
        if is_whole:
            assert number > 10
            return
    pytest.fail("it never came to its end")


def test_program_runs_alone_as_a_node_runs_it(root: Path) -> None:
    """As ssh does: the source on stdin, then the request."""
    source = Path(placing.__file__).read_bytes()
    asked = json.dumps({"do": "look", "root": str(root), "files": []}).encode()
    reader = "import sys; exec(sys.stdin.buffer.read(int(sys.argv[1])))"

    done = subprocess.run(
        ["/usr/bin/python3", "-I", "-S", "-c", reader, str(len(source))], input=source + asked,
        capture_output=True, timeout=240, check=True,
    )  # fmt: skip

    assert json.loads(done.stdout)["files"] == {}
    assert done.stderr == b""


def test_program_is_written_for_the_oldest_python_of_nodes() -> None:
    tree = ast.parse(Path(placing.__file__).read_text(), feature_version=(3, 9))

    imported = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert "outrider" not in {name.partition(".")[0] for name in imported}


def test_owner_that_is_not_there_is_named(root: Path) -> None:
    with pytest.raises(PlacingError, match="there is no user or group nobody-here"):
        request(root, "put", file("/etc/x", "x", owner="nobody-here"))


@pytest.mark.parametrize("path", ["lib/program", "lib"])
def test_program_that_cannot_be_run_is_a_fault_to_the_doctor(root: Path, path: str) -> None:
    request(root, "put", *WANTED)
    (root / path).chmod(0o700 if path == "lib" else 0o644)
    looked = request(root, "look", *WANTED)["files"]
    findings = of_states("n1", looked, "deploy")

    assert looked["/lib/program"] == "unusable"
    (found,) = [each for each in findings if "/lib/program" in each.words]
    assert found.level is Level.FAULT
    assert "0755" in found.words
