"""Jobs of the embedded backend under a service of root: as their user, and with nothing of the service's."""

from __future__ import annotations

import os
import pwd
import stat

import pytest

from tests.daemons.node.daemons import needs_root
from tests.security.siege import ALICE, BOB, NAMELESS, Siege, Web, eventually, siege, workspace

LOOK = r"""
id -u; id -g; id -G
pwd; umask
echo env: $(env | cut -d= -f1 | sort)
echo fds: $(ls /proc/self/fd | sort -n)
grep -E '^(SigIgn|CapPrm|CapEff|CapInh|CapAmb)' /proc/self/status
echo session: $(cut -d' ' -f6 /proc/$$/stat) $$
echo END
"""


@pytest.fixture(scope="module")
def seen(service: Siege) -> list[str]:
    """What a job of Alice's sees of itself."""
    status, answer = service.submit(ALICE, "/bin/sh", "-c", LOOK)
    assert status == 201, answer
    return service.output(answer["job"]).splitlines()


def test_job_is_its_user_with_their_groups(seen: list[str]) -> None:
    user = pwd.getpwuid(ALICE)
    gids = sorted(os.getgrouplist(user.pw_name, user.pw_gid))

    assert seen[:2] == [str(user.pw_uid), str(user.pw_gid)]
    assert sorted(map(int, seen[2].split())) == gids


def test_job_inherits_no_variable_no_file_and_no_capability(seen: list[str]) -> None:
    variables = next(each for each in seen if each.startswith("env:")).split()[1:]
    numbers = next(each for each in seen if each.startswith("fds:")).split()[1:]
    capabilities = [each.split()[1] for each in seen if each.startswith("Cap")]

    ours = {"HOME", "LANG", "LOGNAME", "OUTRIDER_JOB", "OUTRIDER_NODES", "PATH", "USER"}
    shells = {"PWD", "OLDPWD", "SHLVL", "_"}
    assert set(variables) - shells == ours
    # The last is the folder that `ls` looks into.
    assert numbers == ["0", "1", "2", "3"]
    assert capabilities == ["0" * 16] * 4


def test_job_has_its_own_session_and_the_usual_signals(seen: list[str]) -> None:
    session, process = next(each for each in seen if each.startswith("session:")).split()[1:]
    ignored = next(each for each in seen if each.startswith("SigIgn")).split()[1]

    assert session == process
    # Those above 31 are the C library's own, and as whoever started the tests has left them.
    assert int(ignored, 16) & 0x7FFFFFFF == 0
    assert seen[4] == "0022"


def test_output_is_for_its_user_alone(service: Siege, seen: list[str]) -> None:
    path = service.folder / "s" / "embedded" / "jobs" / "1.out"
    found = path.stat()

    assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (ALICE, 0o600)
    assert service.work(ALICE, lambda: path.read_text().startswith(str(ALICE)))
    with pytest.raises(OSError, match="Permission"):
        service.work(BOB, path.read_text)
    with pytest.raises(OSError, match="Permission"):
        service.work(BOB, lambda: os.listdir(path.parent))


def test_arguments_pass_no_shell(service: Siege) -> None:
    words = ["$(id)", "`id`", "; id", "a\nb", "-rf", "*", "~", "é", ""]
    status, answer = service.submit(BOB, "/usr/bin/printf", "[%s]", *words, "END")
    text = service.output(answer["job"])

    assert status == 201
    assert text == "".join(f"[{word}]" for word in [*words, "END"])


def test_job_can_neither_signal_nor_read_the_service_and_jobs_of_others(service: Siege) -> None:
    assert service.process is not None
    _, alices = service.submit(ALICE, "/bin/sh", "-c", "echo $$ END; sleep 30")
    pid = service.output(alices["job"]).split()[0]
    script = f"""
    for each in {service.process.pid} {pid}; do
        kill -0 $each 2>/dev/null && echo signalled $each
        cat /proc/$each/environ >/dev/null 2>&1 && echo read $each
        ls /proc/$each/fd >/dev/null 2>&1 && echo listed $each
    done
    cat {service.folder}/s/embedded/jobs/{alices["job"]}.out {service.folder}/s/outriderd.sqlite 2>/dev/null
    echo END
    """
    _, bobs = service.submit(BOB, "/bin/sh", "-c", script)

    assert service.output(bobs["job"]) == "END\n"


def test_user_without_a_name_runs_nothing(service: Siege) -> None:
    status, answer = service.submit(NAMELESS, "/bin/true")

    assert status == 422
    assert "no user with uid" in answer["message"]


def test_words_of_a_web_server_do_not_reach_a_terminal_or_forge_a_line_of_the_log() -> None:
    needs_root()
    with siege() as service, Web(100, get=404, words="\x1b[2Jgone\x9b31m") as web:
        digest = f"sha256:{'1' * 64}"
        text = workspace(web.uri(), digest=digest, start="now+30s")
        decision = service.accepted(BOB, text)

        def words() -> str:
            return str(
                service.ask(0, "GET", f"/v1/reservations/{decision['name']}")[1]["staging"][0]["words"]
            )

        eventually(lambda: "404" in words(), "the node's report", service.log.read_text)
        log = service.log.read_text()

    assert "transfer fails" in log
    assert "\x1b" not in log
    assert "\x9b" not in log
    assert all(line.split()[0] in ("info", "warning", "error") for line in log.splitlines())
