"""The verbs on a pool without a daemon, as its user types them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cachemgr.cli.outcomes import Run

DIGEST_OF_IMAGE = hashlib.sha256(b"outrider\n" * 111 + b"!").hexdigest()


def test_first_init_needs_a_limit_and_says_so(bare: Run, site: Path) -> None:
    refused = bare("init")

    assert refused.code == 2
    assert "--limit" in refused.err
    assert not (site / "pool").exists()


def test_init_makes_the_folders_above_the_pool(bare: Run, site: Path) -> None:
    made = bare("--pool", "a/b/pool", "init", "--limit", "1MB", "--policy", "lru", "--json")

    assert made.json == {
        "pool": str(site / "a/b/pool"), "limit_bytes": 1_000_000, "policy": "lru",
        "owner_uid": os.geteuid(), "used_bytes": 0, "is_new": True,
    }  # fmt: skip
    assert json.loads((site / "a/b/pool/pool.json").read_text())["limit_bytes"] == 1_000_000


def test_result_that_cannot_be_written_is_an_error_with_a_sentence() -> None:
    environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with open("/dev/full", "w", encoding="ascii") as full:
        done = subprocess.run(
            [sys.executable, "-m", "cachemgr", "version"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            timeout=240,
        )

    assert done.returncode == 14
    assert done.stderr == "cachemgr: the result cannot be written: No space left on device\n"


def test_limit_of_nothing_is_refused_and_not_passed_over(cachemgr: Run) -> None:
    done = cachemgr("init", "--limit", "0")

    assert done.code == 2
    assert "give a limit above 0" in done.err


def test_folder_is_no_image_and_nobody_is_told_to_make_it_readable(cachemgr: Run, site: Path) -> None:
    done = cachemgr("add", str(site))

    assert done.code == 7
    assert done.err.strip().endswith("it is not a regular file")


def test_lease_that_is_over_already_is_named_as_it_was_asked_for(cachemgr: Run, image: Path) -> None:
    cachemgr("add", str(image))
    done = cachemgr("instance", image.name, "--owner", "job", "--until", "2020-01-01T00:00Z")

    assert done.code == 2
    assert "an instance's lease must expire after now" in done.err


def test_init_again_changes_what_is_said_and_nothing_else(cachemgr: Run) -> None:
    assert "nothing to change" in cachemgr("init").out
    assert "policy lfu -> lru" in cachemgr("init", "--policy", "lru").out
    changed = cachemgr("init", "--limit", "2MiB")

    assert "limit 1.0 MiB -> 2.0 MiB" in changed.out
    assert "policy" not in changed.out
    assert cachemgr("init", "--json").json["policy"] == "lru"


def test_limit_below_what_is_there_says_what_follows(cachemgr: Run, image: Path) -> None:
    cachemgr("add", str(image))
    changed = cachemgr("init", "--limit", "600")

    assert changed.code == 0
    assert "400 B more than its limit" in changed.err
    assert "evict --need 1" in changed.err
    assert cachemgr("evict", "--need", "1").out == f"evicted {DIGEST_OF_IMAGE[:12]}\n"


def test_init_writes_torn_settings_again_and_keeps_the_images(cachemgr: Run, image: Path, site: Path) -> None:
    cachemgr("add", str(image))
    (site / "pool/pool.json").write_text('{"limit')

    assert cachemgr("ls").code == 12
    assert cachemgr("init").code == 2
    assert cachemgr("init", "--limit", "2MiB").code == 0
    assert cachemgr("find", DIGEST_OF_IMAGE).code == 0


def test_init_leaves_the_settings_of_a_newer_version_alone(cachemgr: Run, site: Path) -> None:
    newer = '{"format": "outrider-pool", "version": 9, "limit_bytes": 1, "policy": "new"}'
    (site / "pool/pool.json").write_text(newer)

    assert cachemgr("init", "--limit", "2MiB").code == 12
    assert (site / "pool/pool.json").read_text() == newer


def test_init_of_a_folder_with_other_things_in_it_is_refused(bare: Run, site: Path, image: Path) -> None:
    refused = bare("--pool", str(site), "init", "--limit", "1GiB")

    assert refused.code == 2
    assert "not empty" in refused.err
    assert sorted(path.name for path in site.iterdir()) == ["empty.conf", "tools.img"]


def test_a_pool_that_is_not_there_is_named_with_the_way_to_make_it(bare: Run, site: Path) -> None:
    refused = bare("ls")

    assert refused.code == 3
    assert f"cachemgr --pool {site}/pool init" in refused.err


def test_add_prints_the_digest_alone_on_stdout(cachemgr: Run, image: Path) -> None:
    added = cachemgr("add", "tools.img")

    assert added.out == f"sha256:{DIGEST_OF_IMAGE}\n"
    assert added.err == f"cachemgr: tools.img ({DIGEST_OF_IMAGE[:12]}), 1000 B, is in the pool\n"
    assert cachemgr("-q", "add", "tools.img").err == ""


def test_add_of_a_wrong_digest_has_its_own_exit_code_and_leaves_nothing(
    cachemgr: Run, image: Path, site: Path
) -> None:
    refused = cachemgr("add", str(image), "--digest", "0" * 64)

    assert refused.code == 6
    assert DIGEST_OF_IMAGE in refused.err
    assert list((site / "pool/ingest").iterdir()) == list((site / "pool/images").iterdir()) == []


def test_add_of_a_missing_file_names_it(cachemgr: Run, site: Path) -> None:
    refused = cachemgr("add", "no-such.img")

    assert refused.code == 7
    assert f"{site}/no-such.img" in refused.err


def test_add_with_a_pin_holds_the_image(cachemgr: Run, image: Path) -> None:
    added = cachemgr("add", str(image), "--pin", "job-17", "--for", "2h", "--json")
    pins = cachemgr("show", "tools.img", "--json").json["pin_list"]

    assert added.json["pins"] == 1
    assert isinstance(pins, list)
    assert [(pin["owner"], pin["kind"]) for pin in pins] == [("job-17", "hold")]
    assert cachemgr("evict", "tools.img").code == 9


def test_dry_run_tells_what_would_go_and_changes_nothing(cachemgr: Run, image: Path, site: Path) -> None:
    cachemgr("init", "--limit", "1500")
    other = site / "other.img"
    other.write_bytes(b"o" * 900)

    assert cachemgr("add", str(image), "--dry-run").out == "it would fit, and nothing would be evicted\n"
    cachemgr("add", str(image))
    assert cachemgr("add", str(image), "--dry-run").out == "it is in the pool already\n"
    assert cachemgr("add", "other.img", "--dry-run").out == (
        f"it would fit after evicting\n  {DIGEST_OF_IMAGE[:12]}  1000 B\n"
    )
    cachemgr("pin", "tools.img", "--owner", "me", "--for", "1h")
    assert cachemgr("add", "other.img", "--dry-run").code == 4
    other.write_bytes(b"o" * 1600)
    assert cachemgr("add", "other.img", "--dry-run").code == 5
    assert len(cachemgr("ls", "-n").out.splitlines()) == 1


def test_ls_is_a_table_whose_columns_can_be_counted(cachemgr: Run, image: Path) -> None:
    cachemgr("add", str(image))
    header, row = cachemgr("ls").out.splitlines()
    alone = cachemgr("ls", "--noheader").out.split()

    assert header.split() == ["DIGEST", "STATE", "SIZE", "FORMAT", "PINS", "USES", "IDLE", "ADDRESS"]
    assert row.split()[:6] == [DIGEST_OF_IMAGE[:12], "here", "1000B", "file", "0", "0"]
    assert row.split()[7] == f"file://{image}"
    # A second may have passed, by which it is idle for longer.
    assert (alone[:6], alone[7:]) == (row.split()[:6], row.split()[7:])


def test_an_image_is_found_by_address_digest_and_unmistakable_parts(cachemgr: Run, image: Path) -> None:
    cachemgr("add", str(image))
    names = [
        str(image), f"file://{image}", "./tools.img", "tools.img", DIGEST_OF_IMAGE,
        f"sha256:{DIGEST_OF_IMAGE}", DIGEST_OF_IMAGE[:4], f"sha256:{DIGEST_OF_IMAGE[:9]}",
    ]  # fmt: skip

    paths = {cachemgr("find", name).out.strip() for name in names}
    assert len(paths) == 1
    assert Path(paths.pop()).read_bytes() == image.read_bytes()
    assert cachemgr("find", DIGEST_OF_IMAGE[:3]).code == 3
    assert cachemgr("find", "tools").code == 3


def test_a_name_that_means_two_images_is_refused_with_both(cachemgr: Run, image: Path, site: Path) -> None:
    (site / "other").mkdir()
    (site / "other/tools.img").write_bytes(b"another")
    cachemgr("add", str(image))
    cachemgr("add", "other/tools.img")
    refused = cachemgr("show", "tools.img")

    assert refused.code == 2
    assert DIGEST_OF_IMAGE[:12] in refused.err
    assert hashlib.sha256(b"another").hexdigest()[:12] in refused.err


def test_private_image_tells_its_readers(cachemgr: Run, image: Path) -> None:
    cachemgr("add", str(image), "--reader", "root", "--reader-group", "7")
    shown = cachemgr("show", "tools.img", "--json").json

    assert shown["is_public"] is False
    assert shown["readers"] == {"uids": [0], "gids": [7]}
    assert "group 7" in cachemgr("show", "tools.img").out
    assert cachemgr("ls", "-n").out.split()[1] == "private"


def test_instance_is_the_same_when_asked_again_and_gone_when_released(cachemgr: Run, image: Path) -> None:
    cachemgr("add", str(image))
    words = ("instance", "tools.img", "--owner", "job-17", "--method", "copy", "--for", "2h")
    path = Path(cachemgr(*words).out.strip())

    assert path.read_bytes() == image.read_bytes()
    assert Path(cachemgr(*words).out.strip()) == path
    assert cachemgr("instances", "-n").out.split()[1:3] == ["job-17", "-"]
    assert "instance  job-17 (copy) until" in cachemgr("show", "tools.img").out
    assert cachemgr("release", "job-17").out == "1 instance and 0 pins of job-17 removed\n"
    assert cachemgr("release", "job-17").out == "0 instances and 0 pins of job-17 removed\n"
    assert not path.exists()


def test_context_that_is_no_json_is_named(cachemgr: Run, image: Path, site: Path) -> None:
    cachemgr("add", str(image))
    (site / "context").write_text("hostname: n1\n")
    refused = cachemgr("instance", "tools.img", "--owner", "me", "--for", "1h", "--context", "context")

    assert refused.code == 2
    assert "context" in refused.err


def test_pin_and_unpin_tell_what_they_did(cachemgr: Run, image: Path) -> None:
    cachemgr("add", str(image))

    assert "is pinned for me until" in cachemgr("pin", "tools.img", "--owner", "me", "--for", "1h").out
    expected = cachemgr(
        "pin", "tools.img", "--owner", "class", "--kind", "expect", "--from", "+1h", "--for", "2h"
    )
    assert "is expected for class until" in expected.out
    assert cachemgr("ls", "-n").out.split()[4] == "1"
    assert cachemgr("unpin", "tools.img", "--owner", "me").out == "the pin of me is gone\n"
    assert cachemgr("unpin", "tools.img", "--owner", "me").out == "me had no pin on it\n"
    assert cachemgr("evict", DIGEST_OF_IMAGE[:8]).code == 0


def test_forget_makes_an_address_mean_nothing_and_leaves_the_image(cachemgr: Run, image: Path) -> None:
    cachemgr("add", str(image))

    assert cachemgr("forget", str(image)).code == 0
    assert cachemgr("find", str(image)).code == 3
    assert cachemgr("find", DIGEST_OF_IMAGE).code == 0


def test_check_has_an_exit_code_of_its_own_until_everything_is_mended(cachemgr: Run, site: Path) -> None:
    assert cachemgr("check").out == "nothing is wrong\n"
    (site / "pool/trash/left").mkdir()
    (site / "pool/holiday.jpg").write_text("")

    found = cachemgr("check")
    assert found.code == 12
    assert "2 findings are not mended: run `cachemgr check --fix`" in found.err
    fixed = cachemgr("check", "--fix", "-n")
    assert fixed.code == 12
    assert "1 finding is left: look at it and move it elsewhere" in fixed.err
    assert sorted(line.split()[0] for line in fixed.out.splitlines()) == ["found", "mended"]
    (site / "pool/holiday.jpg").unlink()
    assert cachemgr("check", "--digests").code == 0


def test_check_of_digests_finds_a_changed_byte(cachemgr: Run, image: Path) -> None:
    cachemgr("add", str(image))
    path = Path(cachemgr("find", "tools.img").out.strip())
    path.chmod(0o600)
    path.write_bytes(b"X" + path.read_bytes()[1:])

    assert cachemgr("check").code == 0
    assert "wrong bytes" in cachemgr("check", "--digests").out
    assert cachemgr("check", "--digests", "--fix").code == 0
    assert cachemgr("find", DIGEST_OF_IMAGE).code == 3


@pytest.mark.parametrize(
    "verb", [["transfers"], ["transfer", "t1", "--pause"], ["limits"], ["metrics"], ["ping"]]
)
def test_what_only_a_daemon_does_says_so(cachemgr: Run, verb: list[str]) -> None:
    refused = cachemgr(*verb)

    assert refused.code == 13
    assert f"`cachemgr {verb[0]}` needs a running daemon" in refused.err


def test_not_waiting_needs_a_daemon_that_goes_on(cachemgr: Run, image: Path) -> None:
    assert cachemgr("add", str(image), "--no-wait").code == 13


def test_stats_tell_what_the_pool_holds(cachemgr: Run, image: Path) -> None:
    cachemgr("add", str(image))
    found = cachemgr("stats", "--json").json

    assert found["outrider_pool_images"] == 1
    assert found["outrider_pool_used_bytes"] == 1000
    assert re.search(r"^pool used +1000 B$", cachemgr("stats").out, re.MULTILINE)


def test_configuration_that_holds_is_one_that_can_be_read_again(bare: Run, site: Path) -> None:
    (site / "site.conf").write_text("[cachemgr]\nrate = 100Mbit\ntransfers = 2\n")
    shown = bare("--config", "site.conf", "config")
    (site / "again.conf").write_text(shown.out)

    assert shown.code == 0
    assert "rate = 12500000\n" in shown.out
    assert bare("--config", "again.conf", "config").out == shown.out
    assert bare("--config", "site.conf", "config", "--json").json["transfers"] == 2
    (site / "example.conf").write_text(bare("config", "--example").out)
    assert bare("--config", "example.conf", "config").out == bare("config").out


def test_verbose_says_who_was_asked(cachemgr: Run, site: Path) -> None:
    said = cachemgr("-v", "ls").err

    assert "asking this process" in said
    assert str(site / "pool") in said


def test_what_time_brings_is_no_fault_of_the_pool(cachemgr: Run, image: Path) -> None:
    cachemgr("add", str(image))
    cachemgr("evict", str(image))

    found = cachemgr("check", "-n")
    assert found.code == 0
    assert found.out.startswith("stale ")
    assert cachemgr("check", "--fix", "-n").out.startswith("mended ")
    assert cachemgr("check").out == "nothing is wrong\n"
