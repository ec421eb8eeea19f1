"""Pyxis' importer against a real pool: the contract, many steps at once, deaths, refusals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemons.node.daemons import DEADLINE_S, eventually, pythons
from tests.daemons.pyxis import conformance
from tests.daemons.pyxis.site import ALICE, BOB, Site, path_of, squashfs, start
from tests.unit.cachemgr.fetch.servers import Server

UBUNTU = "docker://ubuntu:24.04"
MANY = 10


def test_importer_keeps_the_published_contract(site: Site) -> None:
    words = [
        site.step().importer,
        UBUNTU,
        "docker://missing",
        f"--uid={ALICE}",
        f"--runtime={site.folder}/run",
    ]

    tried = subprocess.run(
        [sys.executable, conformance.__file__, *words], capture_output=True, text=True, timeout=240
    )

    assert (tried.returncode, tried.stderr) == (0, ""), tried.stdout + site.log()
    assert "0 failed" in tried.stdout
    assert site.pins() == []


def test_ten_steps_at_once_share_one_transfer(site: Site, web: Server, downloads: Callable[[], int]) -> None:
    steps = [site.step(number, uid=(ALICE, BOB)[number % 2]) for number in range(MANY)]

    paths = {path_of(each.end()) for each in start(steps, f"docker://{web.uri('/a.sqsh')}")}

    assert len(paths) == 1
    assert downloads() == 1
    assert len(site.pins()) == MANY


def test_ten_steps_of_a_user_share_one_conversion(site: Site) -> None:
    gate = site.gate()
    begun = start([site.step(number) for number in range(MANY)], UBUNTU)
    eventually("one converts", site.imported, site.log)
    gate.unlink()

    paths = {path_of(each.end()) for each in begun}

    assert len(paths) == 1
    assert site.imported() == [UBUNTU]
    assert site.left() == []


def test_all_users_share_one_conversion_of_the_sites(site: Site) -> None:
    site.start_converter()
    gate = site.gate()
    begun = start([site.step(number, uid=(ALICE, BOB)[number % 2]) for number in range(MANY)], UBUNTU)
    eventually("one converts", site.imported, site.log)
    gate.unlink()

    paths = {path_of(each.end()) for each in begun}

    assert len(paths) == 1
    assert site.imported() == [UBUNTU]
    assert f"by {os.getuid() or 65534}\n".encode() in paths.pop().read_bytes()


def test_user_sees_nothing_of_what_another_has_converted(site: Site) -> None:
    hers = path_of(site.step(0, uid=ALICE).get(UBUNTU))
    his = path_of(site.step(1, uid=BOB).get(UBUNTU))

    assert site.imported() == [UBUNTU, UBUNTU]
    assert hers != his
    assert conformance.head_of(site.step(uid=BOB), str(hers)) == ""
    assert conformance.head_of(site.step(uid=BOB), str(his)) == "hsqs"


def test_user_who_converts_the_bytes_of_anothers_private_image_keeps_a_copy(site: Site) -> None:
    path_of(site.step(0, ALICE).get("docker://same"))
    called = site.step(1, BOB).get("docker://same")

    assert path_of(called) == site.folder / f"run/{BOB}/outrider-step-4711.1.squashfs"
    assert "is here, but private" in called.log
    assert site.step(1, BOB).release().status == 0
    assert site.left(BOB) == []


def test_second_step_of_a_user_converts_nothing(site: Site) -> None:
    site.step(0).get(UBUNTU)
    site.step(0).release()
    site.step(1).get("docker://ubuntu:24.04")

    assert site.imported() == [UBUNTU]
    assert site.pins() == [f"uid:{ALICE}:step-4711.1"]


def test_image_in_the_pool_is_pinned_before_its_path_is_told(site: Site, web: Server) -> None:
    path = path_of(site.step().get(f"docker://{web.uri()}"))

    assert site.pins() == [f"uid:{ALICE}:step-4711.0"]
    assert not os.access(path, os.W_OK, effective_ids=True) or path.stat().st_mode & 0o222 == 0
    assert path.stat().st_mode & 0o222 == 0


def test_name_that_the_administrator_gave_is_found_for_everybody(site: Site) -> None:
    image = site.folder / "image"
    image.write_bytes(squashfs(b"of the site"))
    site.daemon.ask(
        "add",
        uri="docker:nvcr.io/nvidia/pytorch:24.01-py3",
        sources=[f"file://{image}"],
        format="squashfs",
        wait=True,
    )

    paths = [
        path_of(site.step(0, uid).get("docker://nvcr.io#nvidia/pytorch:24.01-py3")) for uid in (ALICE, BOB)
    ]

    assert [path.read_bytes() for path in paths] == [squashfs(b"of the site")] * 2
    assert site.imported() == []


def test_image_of_a_named_user_is_never_taken_from_what_others_share(site: Site) -> None:
    site.start_converter()
    site.step(0, BOB).get(UBUNTU)
    path_of(site.step(1).get("docker://alice@ubuntu:24.04"))

    assert site.imported() == [UBUNTU, "docker://alice@ubuntu:24.04"]
    assert "alice@" not in (site.folder / "converter.log").read_text()


def test_lost_release_ends_with_the_lease(site: Site, web: Server) -> None:
    site.configure(lease="4s")
    path_of(site.step().get(f"docker://{web.uri()}"))
    digest = site.images()[0]["digest"]

    eventually("the pin holds nothing", lambda: site.images()[0]["pins"] == 0, site.log)
    assert site.daemon.ask("evict", name=digest)["evicted"] != []


def test_kill_in_the_middle_of_a_transfer_leaves_the_transfer_to_the_next(
    site: Site, web: Server, downloads: Callable[[], int]
) -> None:
    site.daemon.ask("limits", rate_bytes_per_s=100_000)
    begun = start([site.step()], f"docker://{web.uri()}")[0]
    eventually("it arrives", downloads, site.log)
    begun.process.kill()
    begun.process.communicate(timeout=DEADLINE_S)
    site.daemon.ask("limits", rate_bytes_per_s=0)

    path_of(site.step(1).get(f"docker://{web.uri()}"))

    assert downloads() == 1
    assert site.step().release().status == 0
    assert site.pins() == [f"uid:{ALICE}:step-4711.1"]


def test_kill_in_the_middle_of_a_conversion_leaves_nothing(site: Site) -> None:
    gate = site.gate()
    begun = start([site.step()], UBUNTU)[0]
    eventually("it converts", site.imported, site.log)
    begun.process.kill()
    begun.process.communicate(timeout=DEADLINE_S)
    gate.unlink()

    assert path_of(site.step().get(UBUNTU)).read_bytes().startswith(b"hsqs")
    assert site.left() == []


def test_terminated_conversion_takes_its_processes_along(site: Site) -> None:
    gate = site.gate()
    begun = start([site.step()], UBUNTU)[0]
    eventually("it converts", site.imported, site.log)
    begun.process.send_signal(signal.SIGTERM)

    assert begun.end().status == 128 + signal.SIGTERM
    eventually("no process is left", lambda: str(gate.parent / "enroot") not in command_lines())
    assert site.left() == []


def command_lines() -> str:
    found = []
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(each.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


def test_without_a_daemon_the_step_goes_on_and_is_told_so(site: Site) -> None:
    site.daemon.end()
    called = site.step().get(UBUNTU)

    assert path_of(called) == site.folder / f"run/{ALICE}/outrider-step-4711.0.squashfs"
    assert "start cachemgr.service" in called.log
    assert site.step().release().status == 0
    assert site.left() == []


def test_without_a_daemon_and_without_fallback_the_step_fails(site: Site) -> None:
    site.daemon.end()
    site.configure(fallback="no")
    called = site.step().get(UBUNTU)
    released = site.step().release()

    assert (called.status, called.line) == (13, "")
    assert "start cachemgr.service" in called.log
    assert released.status == 0
    assert "lease will end" in released.log
    assert site.imported() == []


def test_without_the_converter_each_user_converts_alone(site: Site) -> None:
    site.configure(converter=str(site.folder / "nobody"))
    called = site.step().get(UBUNTU)

    assert path_of(called).is_relative_to(site.folder / "pool")
    assert "for this user alone" in called.log


def test_without_enroot_the_step_is_told_what_to_install(site: Site) -> None:
    site.configure(import_command="/nonexistent/enroot import --output {output} {uri}")
    called = site.step().get(UBUNTU)

    assert (called.status, called.line) == (2, "")
    assert "import_command" in called.log


def test_pool_without_room_does_not_stop_a_step(site: Site) -> None:
    site.daemon.end()
    site.daemon.path.write_text(f"{site.daemon.path.read_text()}user_bytes = 1000\n")
    site.daemon = type(site.daemon)(site.folder, sweep_interval="1s", watchdog="0", user_bytes="1000")
    called = site.step().get(UBUNTU)

    assert path_of(called).name == "outrider-step-4711.0.squashfs"
    assert "user_bytes" in called.log
    site.step().release()
    assert site.left() == []


@pytest.mark.parametrize("image", ["docker://missing", "docker://text", "http://127.0.0.1:1/x.sqsh"])
def test_what_cannot_be_had_fails_with_a_sentence(shared: Site, image: str) -> None:
    called = shared.step().get(image)

    assert (called.status != 0, called.line) == (True, "")
    assert called.log.startswith("outrider: ")
    assert "Traceback" not in called.log
    assert shared.step().release().status == 0
    assert shared.left() == []


def test_file_that_is_no_squashfs_is_refused(shared: Site) -> None:
    before = shared.images()
    called = shared.step().get("file:///etc/passwd")

    assert (called.status, called.line) == (10, "")
    assert shared.images() == before


@pytest.mark.parametrize(("mode", "public"), [(0o644, True), (0o600, False)], ids=["for all", "private"])
def test_file_of_the_user_comes_into_the_pool_with_its_rights(site: Site, mode: int, public: bool) -> None:
    image = site.folder / "own.sqsh"
    image.write_bytes(squashfs(b"own"))
    os.chown(image, ALICE, ALICE)
    image.chmod(mode)

    path = path_of(site.step().get(f"docker://file://{image}"))
    refused = site.step(1, BOB).get(f"docker://file://{image}")

    assert path.read_bytes() == squashfs(b"own")
    assert path.is_relative_to(site.folder / "pool")
    assert (refused.status == 0) is public


HOSTILE = [
    "docker://$(id)",
    "docker://`id`",
    "docker://a;id",
    "docker://a b",
    "docker://a\nb",
    "docker://../../etc/passwd",
    "docker://a/../b",
    "docker://-o",
    "docker://a:--output",
    "docker://a@sha256:zz",
    "docker://evil@@b",
    "docker://reg#ist#ry",
    "docker://\u202eabc",
    "docker://" + "a" * 2000,
    "docker://dockerd://$(id)",
    "docker://outrider://../../s",
    "docker://file://relative",
    "--output",
    "",
]


@pytest.mark.parametrize("image", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_name_reaches_neither_shell_nor_disk(shared: Site, image: str) -> None:
    before = shared.imported()
    called = shared.step().get(image)

    assert called.status in (2, 3), called
    assert called.line == ""
    assert "Traceback" not in called.log
    assert shared.imported() == before
    assert shared.left() == []


@pytest.mark.parametrize(("job", "step"), [("../1", "0"), ("1", "../../0")])
def test_hostile_step_gets_nothing_and_its_release_fails_nothing(shared: Site, job: str, step: str) -> None:
    importer = shared.step().importer
    environment = {"SLURM_JOB_ID": job, "SLURM_STEP_ID": step}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [importer, *words], env=environment, capture_output=True, text=True, timeout=DEADLINE_S
        )

    got, released = run("get", UBUNTU), run("release")

    assert (got.returncode, got.stdout) == (2, "")
    assert (released.returncode, released.stdout) == (0, "")


def test_environment_of_the_job_cannot_bring_code_into_the_importer(shared: Site) -> None:
    trap = shared.folder / "trap"
    trap.mkdir()
    (trap / "json.py").write_text("raise SystemExit(77)")
    (trap / "sitecustomize.py").write_text("raise SystemExit(77)")
    given = {**shared.step().environment(), "PYTHONPATH": str(trap), "PYTHONHOME": str(trap)}
    called = subprocess.run(
        [shared.step().importer, "release"], env=given, cwd=trap, capture_output=True, timeout=DEADLINE_S
    )

    assert (called.returncode, called.stderr) == (0, b"")


def test_importer_runs_with_the_oldest_and_the_newest_python(shared: Site) -> None:
    step = shared.step()
    ends = {}
    for python in {pythons()[0], pythons()[-1]}:
        command = [python, "-IS", step.importer, "release"]
        ended = subprocess.run(command, env=step.environment(), capture_output=True, timeout=DEADLINE_S)
        ends[python] = (ended.returncode, ended.stderr)

    assert ends != {}
    assert set(ends.values()) == {(0, b"")}


def test_step_cannot_give_back_what_another_user_holds(site: Site, web: Server) -> None:
    path_of(site.step(0, ALICE).get(f"docker://{web.uri()}"))
    site.step(0, BOB).release()

    assert site.pins() == [f"uid:{ALICE}:step-4711.0"]


def test_folder_that_others_can_write_to_is_not_used(site: Site) -> None:
    (site.folder / f"run/{ALICE}").chmod(0o777)
    called = site.step().get(UBUNTU)

    assert called.status == 14
    assert "of yours alone" in called.log
    assert site.imported() == []


def test_job_of_root_is_served(site: Site) -> None:
    (site.folder / "run/0").mkdir(mode=0o700)
    first = path_of(site.step(0, uid=0).get(UBUNTU))
    again = path_of(site.step(1, uid=0).get(UBUNTU))

    assert first == again
    assert site.imported() == [UBUNTU]
    assert site.pins() == ["step-4711.0", "step-4711.1"]
