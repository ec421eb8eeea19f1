"""The installer on a real Slurm, beside what the site has already, and away from it again to the byte."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from testbed.slurm import SlurmCluster
from tests.daemons.installing.machines import outrider, site, tree
from tests.daemons.installing.ownhooks import FILES, LINES

START = "/usr/sbin/cachemgr serve >/var/log/cachemgr.log 2>&1 &"
CONF = "/etc/slurm/slurm.conf"
WHERE = ("/etc/slurm", "/etc/outrider", "/etc/systemd", "/usr/lib/outrider", "/usr/sbin", "/run/outrider")


@pytest.fixture(scope="module")
def found() -> dict[str, CompletedProcess[str]]:
    """What the commands of the installation said, by their name."""
    return {}


@pytest.fixture(scope="module")
def before() -> dict[str, dict[str, str]]:
    return {}


@pytest.fixture(scope="module")
def cluster(
    installed: Path, found: dict[str, CompletedProcess[str]], before: dict[str, dict[str, str]]
) -> Iterator[SlurmCluster]:
    """A site with hooks of its own, installed as the page says."""
    with site(installed, 2, LINES, FILES) as made:
        before.update({host: tree(made, host, *WHERE) for host in ("head", "n1", "n2")})
        found["show"] = outrider(made, "init", "slurm", "--json")
        found["tree after show"] = CompletedProcess([], 0, json.dumps(tree(made, "head", *WHERE)), "")
        found["early"] = outrider(made, "init", "slurm", "--apply")
        found["conf after early"] = CompletedProcess([], 0, made.read("head", CONF), "")
        found["deploy"] = outrider(
            made, "nodes", "deploy", "n[1-2]", "--limit", "1GiB", "--start-command", START
        )
        found["apply"] = outrider(made, "init", "slurm", "--apply")
        for node in ("n1", "n2"):
            made.write(node, CONF, made.read("head", CONF))
        made.run("head", ["scontrol", "reconfigure"])
        yield made


def test_showing_changes_nothing(
    cluster: SlurmCluster, found: dict[str, CompletedProcess[str]], before: dict[str, dict[str, str]]
) -> None:
    assert json.loads(found["tree after show"].stdout) == before["head"]
    assert json.loads(found["show"].stdout)["is_applied"] is False


def test_slurm_conf_stays_until_the_nodes_have_the_hooks(
    cluster: SlurmCluster, found: dict[str, CompletedProcess[str]]
) -> None:
    assert "would drain\nn[1-2]" in found["early"].stdout.replace("would drain n", "would drain\nn")
    assert "outrider-now" not in found["conf after early"].stdout
    assert "lines in /etc/slurm/slurm.conf:" in found["apply"].stdout


def test_hooks_of_the_site_run_beside_ours_and_no_node_drains(cluster: SlurmCluster) -> None:
    done = cluster.run("head", ["srun", "-N2", "sh", "-c", 'echo "$SITE"'])
    cluster.wait_idle()

    assert done.stdout == "yes\nyes\n"
    for node in ("n1", "n2"):
        assert cluster.read(node, "/var/log/site-hooks").splitlines()[-2:] == ["prolog", "epilog"]
        assert "\n/usr/lib/outrider/slurm/epilog " in cluster.read(node, "/etc/slurm/epilog.d/50-outrider")


@pytest.mark.parametrize(
    "loss", ["mv /usr/lib/outrider /usr/lib/away", "chmod 600 /usr/lib/outrider/slurm/*"]
)
def test_loss_of_our_folder_drains_no_node_and_stops_no_job_without_an_image(
    cluster: SlurmCluster, loss: str
) -> None:
    modes = cluster.run("n1", ["sh", "-c", "stat -c '%a %n' /usr/lib/outrider/slurm/*"]).stdout.splitlines()
    cluster.run("n1", ["sh", "-c", loss])
    try:
        done = cluster.run("head", ["srun", "-wn1", "sh", "-c", 'echo "$SITE"'])
        cluster.wait_idle()
        sound = cluster.run("head", ["sinfo", "-h", "-N", "-n", "n1", "-o", "%T"]).stdout.split()
    finally:
        cluster.run("n1", ["sh", "-c", "[ ! -d /usr/lib/away ] || mv /usr/lib/away /usr/lib/outrider"])
        for line in modes:
            cluster.run("n1", ["chmod", *line.split()])

    assert done.stdout == "yes\n"
    assert set(sound) == {"idle"}


def test_site_still_decides_about_jobs_and_ours_are_held(cluster: SlurmCluster) -> None:
    def sbatch(comment: str) -> CompletedProcess[str]:
        words = ["sbatch", f"--comment={comment}", "--wrap=true"]
        return cluster.run("head", words, user="ada", check=False)

    refused, held = sbatch("no"), sbatch("outrider:image=http://images:8000/a.raw")
    job = held.stdout.split()[-1]

    assert "the site says no" in refused.stderr
    assert refused.returncode == 1
    shown = cluster.run("head", ["scontrol", "show", "job", job]).stdout
    assert "Reason=BeginTime" in shown or "Reason=JobHeldAdmin" in shown
    assert '{"outrider":1' in shown
    cluster.run("head", ["scancel", job])


def test_new_version_of_the_filter_comes_into_force_at_once(cluster: SlurmCluster) -> None:
    path = "/usr/lib/outrider/slurm/outrider_submit.lua"
    words = ["sbatch", "--hold", "--comment=outrider:image=http://images:8000/a.raw", "--wrap=true"]
    # An older version, which slurmctld has read.
    older = cluster.read("head", path).replace('"outrider: "', '"older: "')
    cluster.write("head", path, older)
    # slurmctld reads it again if it is younger than the second of the last reading.
    cluster.run("head", ["touch", "--date=1 second", "/etc/slurm/job_submit.lua"])
    first = cluster.run("head", words, user="ada").stderr

    outrider(cluster, "init", "slurm", "--apply")
    second = cluster.run("head", words, user="ada").stderr

    cluster.run("head", ["scancel", "--user=ada"])
    assert "older: " in first
    assert "outrider: " in second


def test_second_deployment_sends_nothing_and_restarts_nothing(cluster: SlurmCluster) -> None:
    pid = cluster.run("n1", ["pidof", "-x", "cachemgr"], check=False).stdout

    again = outrider(cluster, "nodes", "deploy", "n[1-2]", "--json", "--start-command", START)

    nodes = json.loads(again.stdout)["nodes"]
    assert [(each["state"], each["files"], each["service"]) for each in nodes] == [
        ("same", [], "running")
    ] * 2
    assert cluster.run("n1", ["pidof", "-x", "cachemgr"], check=False).stdout == pid


def test_what_was_changed_on_a_node_is_mended_but_configuration_is_left(cluster: SlurmCluster) -> None:
    cluster.run(
        "n1", ["sh", "-c", "echo >>/usr/lib/outrider/hook.py; echo '# x' >>/etc/outrider/cachemgr.conf"]
    )
    cluster.run("n1", ["chmod", "644", "/etc/outrider/site.key"])

    done = outrider(cluster, "nodes", "deploy", "n1", "--json", "--start-command", START)

    result = json.loads(done.stdout)["nodes"][0]
    assert sorted(result["files"]) == ["/etc/outrider/site.key", "/usr/lib/outrider/hook.py"]
    assert "left as somebody has changed it: /etc/outrider/cachemgr.conf" in result["words"]
    assert cluster.run("n1", ["stat", "-c", "%a", "/etc/outrider/site.key"]).stdout == "600\n"


def test_node_that_cannot_be_reached_fails_alone(cluster: SlurmCluster) -> None:
    cluster.kill("n2", "sshd", "TERM")

    done = outrider(cluster, "nodes", "deploy", "n[1-2],nowhere", "--json", "--no-start", check=False)

    states = {each["node"]: each["state"] for each in json.loads(done.stdout)["nodes"]}
    assert done.returncode == 11
    assert states == {"n1": "same", "n2": "failed", "nowhere": "failed"}
    cluster.start("n2", ["/usr/sbin/sshd", "-D", "-e", "-f", "/etc/ssh/outrider-testbed/config"], name="sshd")


def test_host_key_that_is_not_known_gets_nothing(cluster: SlurmCluster) -> None:
    done = outrider(cluster, "nodes", "deploy", "n1", "--known-hosts", "/dev/null", "--json", check=False)

    assert done.returncode == 11
    assert "its host key is not known" in json.loads(done.stdout)["nodes"][0]["words"]


def doctor(cluster: SlurmCluster, *words: str) -> tuple[int, dict[tuple[str, str], list[tuple[str, str]]]]:
    """The exit code, and what was found by where and what."""
    done = outrider(cluster, "doctor", "--json", *words, check=False)
    lines: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for each in json.loads(done.stdout)["findings"]:
        lines.setdefault((each["where"], each["what"]), []).append((each["level"], each["words"]))
    return done.returncode, lines


def test_doctor_finds_what_is_right(cluster: SlurmCluster) -> None:
    code, found = doctor(cluster)

    wrong = {key: each for key, lines in found.items() for each in lines if each[0] != "ok"}
    # No service runs here, and a configuration was changed by a test above.
    assert set(wrong) == {("head", "outriderd"), ("n1", "files")}
    assert code == 2


def test_doctor_names_each_planted_fault(cluster: SlurmCluster) -> None:
    planted = {
        "head": "chmod 640 /etc/outrider/site.key; echo 'if' >/usr/lib/outrider/slurm/outrider_submit.lua;"
        " chmod g+w /usr/lib/outrider/slurm",
        "n1": "rm /usr/lib/outrider/slurm/prolog; echo MessageTimeout=33 >>/etc/slurm/slurm.conf;"
        " chmod 777 /usr/lib/outrider; chmod 644 /etc/outrider/site.key",
        "n2": "kill $(python3 -IS /usr/lib/outrider/hook.py ping --json | tr -dc 0-9,a-z: |"
        " sed 's/.*pid:\\([0-9]*\\).*/\\1/')",
    }
    for host, command in planted.items():
        cluster.run(host, ["sh", "-c", command])

    _, found = doctor(cluster)
    outrider(cluster, "nodes", "deploy", "n[1-2]", "--start-command", START)
    cluster.run("head", ["sh", "-c", "chmod 600 /etc/outrider/site.key; chmod g-w /usr/lib/outrider/slurm"])
    cluster.run("n1", ["chmod", "755", "/usr/lib/outrider"])
    cluster.write("n1", CONF, cluster.read("head", CONF))
    outrider(cluster, "init", "slurm", "--apply")
    _, mended = doctor(cluster)

    levels = {key: max(level for level, _ in lines) for key, lines in found.items()}
    assert "can be read by others" in found["head", "key"][0][1]
    assert "is not valid Lua" in found["head", "filter"][0][1]
    assert "can be written to by others" in found["head", "folders"][0][1]
    assert any("prolog is missing: outrider nodes deploy n1" in words for _, words in found["n1", "files"])
    assert found["n1", "folders"] == [
        ("fault", "/usr/lib/outrider can be written to by others than root (0777): chown root, chmod go-w")
    ]
    assert found["n1", "key"][0][0] == "fault"
    assert "/etc/outrider/site.key is a secret and can be read by others (0644)" in found["n1", "key"][0][1]
    assert "differs from the head's" in found["n1", "slurm.conf"][0][1]
    assert found["n2", "daemon"][0][0] == "fault"
    assert levels["n2", "files"] == "ok"
    assert {key for key, lines in mended.items() for each in lines if each[0] == "fault"} == {
        ("head", "outriderd")
    }


@pytest.mark.parametrize("version", ["24.11", "26.05"])
@pytest.mark.skipif(not os.environ.get("OUTRIDER_TEST_VERSIONS"), reason="OUTRIDER_TEST_VERSIONS is not set")
def test_other_versions_take_the_lines_and_let_go_of_them(installed: Path, version: str) -> None:
    with site(installed, 1, LINES, FILES, version) as made:
        before = tree(made, "head", *WHERE)
        outrider(made, "init", "slurm", "--apply", "--nodes-are-ready", "--with-cli-filter")
        outrider(made, "nodes", "deploy", "n1", "--limit", "1GiB", "--start-command", START)
        for name in ("slurm.conf", "cli_filter.lua"):
            made.write("n1", f"/etc/slurm/{name}", made.read("head", f"/etc/slurm/{name}"))
        made.run("head", ["scontrol", "reconfigure"])
        code, found = doctor(made)
        made.wait_idle()
        ran = made.run("head", ["srun", "sh", "-c", 'echo "$SITE"'], user="ada")
        held = made.run(
            "head", ["sbatch", "--comment=outrider:image=http://images:8000/a.raw", "--wrap=true"], user="ada"
        )
        made.wait_idle()
        removed = outrider(made, "init", "slurm", "--remove")
        outrider(made, "nodes", "deploy", "n1", "--remove")

        wrong = {key for key, lines in found.items() for each in lines if each[0] != "ok"}
        assert (code, wrong) == (2, {("head", "outriderd")})
        assert (ran.stdout, held.returncode) == ("yes\n", 0)
        assert f"jobs {held.stdout.split()[-1]} wait for images forever now" in removed.stdout
        assert tree(made, "head", *WHERE) == before


def test_removal_leaves_every_file_as_it_was(
    cluster: SlurmCluster, before: dict[str, dict[str, str]]
) -> None:
    # Of what the tests before this one have installed.
    assert "/usr/lib/outrider/hook.py" in tree(cluster, "n1", *WHERE)
    outrider(cluster, "init", "slurm", "--remove")
    for node in ("n1", "n2"):
        cluster.write(node, CONF, cluster.read("head", CONF))
    cluster.run("head", ["scontrol", "reconfigure"])
    cluster.run("n1", ["rm", "/etc/outrider/cachemgr.conf"])
    done = outrider(cluster, "nodes", "deploy", "n[1-2]", "--remove", "--json")

    assert {host: tree(cluster, host, *WHERE) for host in ("head", "n1", "n2")} == before
    assert [each["state"] for each in json.loads(done.stdout)["nodes"]] == ["removed", "removed"]
    assert cluster.run("head", ["srun", "-N2", "sh", "-c", 'echo "$SITE"']).stdout == "yes\nyes\n"
