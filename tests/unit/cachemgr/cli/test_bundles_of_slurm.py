"""`cachemgr bundle`: what Slurm has written for a container's runtime gets the image of its job."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from cachemgr.base.errors import NotInPool, Unsuitable
from cachemgr.cli.main import main
from cachemgr.cli.verbs.bundling import for_user, image_of, with_image


def test_image_comes_with_its_own_settings_and_slurms_task() -> None:
    script = {"destination": "/tmp/slurm/startup", "source": "/spool/script"}
    given = {
        "process": {
            "args": ["/tmp/slurm/startup"],
            "env": ["PATH=/job", "SLURM_JOB_ID=7"],
            "terminal": False,
        },
        "root": {"path": "/empty/rootfs"},
        "mounts": [script],
    }
    own = {
        "process": {"args": ["/entry"], "env": ["PATH=/image"], "cwd": "/inside"},
        "root": {"path": "rootfs"},
        "mounts": [{"destination": "/tmp", "type": "tmpfs"}],
    }

    found = with_image(given, own, "/pool/tree")

    assert found["root"]["path"] == "/pool/tree/rootfs"
    assert found["process"]["args"] == ["/tmp/slurm/startup"]
    assert found["process"]["cwd"] == "/inside"
    assert sorted(found["process"]["env"]) == ["PATH=/image", "SLURM_JOB_ID=7"]
    # The script lies below a folder that is mounted: so that comes first.
    places = [each["destination"] for each in found["mounts"]]
    assert (places[0], places[-1]) == ("/tmp", script["destination"])


@pytest.mark.parametrize(
    ("spaces", "uid", "is_mapped"), [([], 1000, True), ([], 0, False), ([{"type": "user"}], 1000, False)]
)
def test_ordinary_users_are_root_of_their_container(
    spaces: list[dict[str, str]], uid: int, is_mapped: bool
) -> None:
    found: dict[str, Any] = {"linux": {"namespaces": list(spaces)}}

    for_user(found, uid, 100)

    mapped = [{"containerID": 0, "hostID": uid, "size": 1}]
    assert found["linux"].get("uidMappings") == (mapped if is_mapped else None)
    assert ({"type": "user"} in found["linux"]["namespaces"]) is (is_mapped or bool(spaces))


def test_job_without_a_bundle_is_told_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "7").write_text(f"{tmp_path}/disk.qcow2\n")
    (tmp_path / "8").write_text("")

    with pytest.raises(NotInPool, match="job 9 has no image on this node: write #OUTRIDER image"):
        image_of("9", str(tmp_path))
    with pytest.raises(NotInPool, match="job 8 has no image"):
        image_of("8", str(tmp_path))
    with pytest.raises(Unsuitable, match="is not an OCI bundle: write #OUTRIDER format: bundle"):
        image_of("7", str(tmp_path))


def test_bundle_that_names_an_image_itself_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"process": {"args": ["x"]}, "root": {"path": "/its/own"}}))

    code = main(["bundle", str(tmp_path), "--job", "7"])

    found = json.loads(path.read_text())
    assert code == 0
    assert found["root"]["path"] == "/its/own"
    assert ("uidMappings" in found["linux"]) is (os.geteuid() != 0)


def test_empty_bundle_says_that_its_image_is_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bundle", "--empty"]) == 0
    assert json.loads(capsys.readouterr().out)["annotations"] == {"outrider.image": "of the job"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["bundle"], "say which bundle and whose it is"),
        (["bundle", "/x", "--job", "../7"], "say which bundle and whose it is"),
        (["bundle", "/nowhere", "--job", "7"], "cannot be read as the configuration of a bundle"),
    ],
)
def test_what_is_missing_is_said(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) != 0
    assert said in capsys.readouterr().err


def test_runtimes_folder_of_somebody_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text('{"root": {"path": "/x"}}')
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs").chmod(0o777)
    (tmp_path / "link").symlink_to(tmp_path)
    words = ["bundle", str(tmp_path), "--job", "7", "--state"]

    assert main([*words, str(tmp_path / "own")]) == 0
    assert main([*words, str(tmp_path / "own")]) == 0
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    for name in ("theirs", "link"):
        assert main([*words, str(tmp_path / name)]) != 0
        assert "is not this user's alone" in capsys.readouterr().err
