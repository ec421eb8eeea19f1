"""How a holder job stands for a job whose machine it has: what Slurm is told, by how it shows both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from outrider.core.model import Resources
from outrider.rms.base import JobState, Landing, Refused, Unavailable
from outrider.rms.commands import Account, Output
from outrider.rms.holders import ROOM_S
from outrider.rms.slurm import SlurmCommands, SlurmHolders
from outrider.rms.slurm.jobs import SlurmJob, in_holders
from outrider.rms.slurm.records import JobRecord, NodeWish, comment_of, record_in

NOW_S = 1_000_000
WANTED = Landing(
    job="17", start_s=NOW_S - 600, node="n2", metadata="image: a.qcow2\n", rate_bytes_per_s=9, reason="why"
)
SHOWN = (
    b"JobId=17\n   QOS=normal\n   StdErr=/users/ada/100%\n   StdOut=/users/ada/100%\n   WorkDir=/users/ada\n"
)


def job(key: str, name: str = "x", **changes: object) -> SlurmJob:
    found = SlurmJob(
        key=key, state=JobState.RUNNING, user="ada", uid=7, account="physics", nodes_wanted=1, most_nodes=1,
        resources=Resources.of(cpus=2, memory_mib=512), limit_s=3600, submitted_s=NOW_S - 700, nodes=("n1",),
        start_s=NOW_S - 600, reservation="", comment="", record=JobRecord(metadata="run=vm"), hint="",
        is_managed=True, is_held_by_us=False, wish=NodeWish(), eligible_s=0, partitions=("main",),
        features="", is_batch=True, name=name,
    )  # fmt: skip
    return replace(found, **changes)  # type: ignore[arg-type]


@dataclass
class ShownSlurm:
    """Prints what it shows of the jobs, and remembers what it was told."""

    jobs: dict[str, SlurmJob]
    states: dict[str, str] = field(default_factory=dict)
    submitted_s: int = NOW_S
    told: list[list[str]] = field(default_factory=list)
    shown: bytes = SHOWN
    wanted: str = ""
    """On which node holders want to be."""
    gone: str = ""
    """What has ended by the time that it is told anything."""
    is_stopped: bool = False
    """Whether its user has stopped sbatch."""

    def now_s(self) -> int:
        return NOW_S

    def warning(self, event: str, **fields: object) -> None:
        pass

    def __call__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str],
        timeout_s: float,
        text: bytes = b"",
        account: Account | None = None,
    ) -> Output:
        if argv[0] == "squeue":
            return Output(0, self._printed(list(argv)), "")
        self.told.append(list(argv))
        if argv[0] == "scancel" and argv[-1] == self.gone:
            return Output(
                1, b"", f"scancel: error: Kill job error on job id {argv[-1]}: Invalid job id specified"
            )
        if argv[0] == "sbatch":
            assert account is not None
            assert text == b"#!/bin/sh\nexec /usr/lib/outrider/machine hold 17 9\n"
            if self.is_stopped:
                raise TimeoutError
            return Output(0, b"18\n", "")
        if argv[1] == "show":
            return Output(0, self.shown, "")
        for word in argv:
            if word.startswith("AdminComment=") and "JobId=17" in argv:
                record = record_in(word.partition("=")[2])
                assert record is not None
                self.jobs["17"] = replace(self.jobs["17"], record=record)
        return Output(0, b"", "")

    def _printed(self, argv: list[str]) -> bytes:
        given = dict(word.partition("=")[::2] for word in argv)
        found = self.jobs.get(given.get("--jobs", ""))
        if found is None:
            return b""
        state = self.states.get(found.key, found.state.name)
        nodes = ",".join(found.nodes)
        lines = {
            "%A|%F|%K|%T|%Q|%U|%N|%r|%v": f"{found.key}|{found.key}|N/A|{state}|0|7|{nodes}|None|",
            "%A|%S|%Q": f"{found.key}|{found.start_s}|5",
            "%A|%T|%U|%V|%N|%n|%j": "|".join(
                (found.key, state, "7", str(self.submitted_s), nodes, self.wanted, found.name)
            ),
        }
        return lines[given["--format"]].encode()

    def system(self) -> SlurmHolders:
        return SlurmHolders(
            SlurmCommands(self),
            clock=self,
            log=self,
            account_of=lambda user, uid: Account(user=user, uid=uid, gid=uid, home="/users/ada"),
            read_jobs=lambda now_s: (tuple(self.jobs.values()), ()),
        )


def words(slurm: ShownSlurm, program: str) -> list[list[str]]:
    return [argv for argv in slurm.told if argv[0] == program]


def with_holder(word: str, *, state: str = "RUNNING", is_waiting: bool = False) -> ShownSlurm:
    record = JobRecord(metadata="run=vm", next_holder="18", is_suspended=is_waiting, is_stopped=is_waiting)
    own = job("17", record=record)
    if is_waiting:
        own = replace(own, state=JobState.SUSPENDED, nodes=(), start_s=None)
    holder = job("18", f"outrider-{word}-17", nodes=("n2",), start_s=NOW_S - 5)
    return ShownSlurm({"17": own, "18": holder}, {"17": "PENDING" if is_waiting else "RUNNING", "18": state})


def test_holder_job_is_submitted_as_the_owner_and_like_the_job() -> None:
    slurm = ShownSlurm({"17": job("17")})
    with pytest.raises(Unavailable, match="waits for room on n2"):
        slurm.system().land(WANTED)

    (argv,) = words(slurm, "sbatch")
    wanted = {
        "--nodelist=n2", "--partition=main", "--account=physics", "--qos=normal", "--chdir=/users/ada",
        "--output=/users/ada/100%%", "--error=/users/ada/100%%", "--open-mode=append", "--no-requeue",
        "--time=50", "--cpus-per-task=2", "--mem=512M", "--job-name=outrider-waits-17",
    }  # fmt: skip
    assert wanted <= set(argv)
    assert slurm.jobs["17"].record.next_holder == "18"
    slurm.jobs["18"] = job("18", "outrider-waits-17", state=JobState.PENDING, nodes=())
    with pytest.raises(Unavailable):
        slurm.system().land(WANTED)
    assert len(words(slurm, "sbatch")) == 1


def test_holder_is_charged_to_the_account_that_the_site_names() -> None:
    slurm = ShownSlurm({"17": job("17")})
    with pytest.raises(Unavailable):
        slurm.system().land(replace(WANTED, account="machines"))

    (argv,) = words(slurm, "sbatch")
    assert [word for word in argv if word.startswith("--account=")] == ["--account=machines"]


def test_user_who_stops_sbatch_has_machines_saved_and_is_waited_for_once() -> None:
    """The batch system is asked by one thread: with each attempt everybody would wait."""
    slurm = ShownSlurm({"17": job("17")}, is_stopped=True)
    system = slurm.system()

    assert not system.land(WANTED)
    assert not system.land(WANTED)
    assert len(words(slurm, "sbatch")) == 1


def test_job_whose_errors_go_elsewhere_is_saved() -> None:
    slurm = ShownSlurm(
        {"17": job("17")}, shown=SHOWN.replace(b"StdErr=/users/ada/100%", b"StdErr=/users/ada/e")
    )

    assert not slurm.system().land(WANTED)
    assert words(slurm, "sbatch") == []


def test_job_is_told_to_leave_once_its_holder_is_ready() -> None:
    slurm = with_holder("ready")
    with pytest.raises(Unavailable, match="has not the machine"):
        slurm.system().land(WANTED)

    assert ["scancel", "--batch", "--signal=USR1", "17"] in slurm.told
    assert slurm.jobs["17"].record.is_suspended


@pytest.mark.parametrize(
    ("submitted_s", "is_given_up"), [(NOW_S - ROOM_S, False), (NOW_S - ROOM_S - 1, True)]
)
def test_holder_without_room_is_waited_for_so_long(submitted_s: int, *, is_given_up: bool) -> None:
    slurm = with_holder("waits", state="PENDING")
    slurm.submitted_s = submitted_s
    system = slurm.system()
    if not is_given_up:
        with pytest.raises(Unavailable):
            system.land(WANTED)
        return

    assert not system.land(WANTED)
    assert ["scancel", "18"] in slurm.told
    assert slurm.jobs["17"].record.next_holder == ""


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETED"])
def test_machine_that_has_landed_is_held_and_not_suspended(state: str) -> None:
    """Also one that has ended there by now."""
    slurm = with_holder("has", state=state, is_waiting=True)

    assert slurm.system().land(WANTED)
    record = slurm.jobs["17"].record
    assert (record.holder, record.next_holder) == ("18", "")
    assert (record.is_held, record.is_stopped, record.is_suspended) == (True, True, False)
    assert ["scontrol", "update", "JobId=17", "StdOut=/dev/null"] in slurm.told
    assert slurm.system().land(replace(WANTED, begins=False))


def test_move_to_a_third_node_begins_once_the_end_of_the_one_before_is_noted() -> None:
    """Its service was killed before it had noted that the machine was there."""
    slurm, wanted = with_holder("has", is_waiting=True), replace(WANTED, node="n1", start_s=NOW_S - 5)
    with pytest.raises(Unavailable, match="an earlier move of job 17 has just ended"):
        slurm.system().land(wanted)
    landed = slurm.jobs["17"].record
    with pytest.raises(Unavailable, match="waits for room on n1"):
        slurm.system().land(wanted)

    assert (landed.holder, landed.next_holder, landed.is_suspended) == ("18", "", False)
    assert "--nodelist=n1" in words(slurm, "sbatch")[0]


def test_holder_of_a_move_that_was_given_up_is_not_waited_for() -> None:
    slurm, wanted = with_holder("waits", state="PENDING"), replace(WANTED, node="n3")
    slurm.jobs["18"], slurm.wanted = replace(slurm.jobs["18"], nodes=()), "n2"
    with pytest.raises(Unavailable, match="an earlier move of job 17 has just ended"):
        slurm.system().land(wanted)

    assert words(slurm, "scancel") == [["scancel", "18"]]
    assert slurm.jobs["17"].record.next_holder == ""


def test_holder_that_ends_as_it_is_told_to_save_is_asked_for_again() -> None:
    """Its machine has gone to the next one, which does not say so yet."""
    slurm = with_holder("has", is_waiting=True)
    slurm.jobs["17"] = replace(slurm.jobs["17"], record=JobRecord(metadata="run=vm", holder="18"))
    slurm.gone = "18"
    with pytest.raises(Unavailable, match="the holder job 18 has just ended"):
        slurm.system().save("17", NOW_S - 5, "why", is_kept=True)
    slurm.system().cancel("17", "why")

    assert slurm.told[-2:] == [["scancel", "18"], ["scancel", "17"]]


def test_holder_that_never_says_the_truth_is_not_waited_for_without_end() -> None:
    """Its owner may call it as they like."""
    slurm = with_holder("has")
    slurm.submitted_s = NOW_S - ROOM_S - 600 - 3 * (512 << 20) // 100_000 - 1
    wanted = replace(WANTED, rate_bytes_per_s=100_000)

    assert not slurm.system().land(wanted)
    assert ["scancel", "18"] in slurm.told


def test_machine_that_was_saved_instead_moves_as_others_do() -> None:
    slurm = with_holder("ready", state="FAILED", is_waiting=True)

    assert not slurm.system().land(WANTED)
    assert not slurm.system().land(replace(WANTED, begins=False))
    assert words(slurm, "sbatch") == []


def test_holder_stands_for_the_job_whose_machine_it_has() -> None:
    own = job("17", state=JobState.HELD, nodes=(), start_s=None, record=JobRecord(holder="18"))
    holder = job("18", "outrider-has-17", nodes=("n2",), limit_s=60)
    stranger = replace(job("19", "outrider-has-17"), uid=8)
    (shown, behind, other) = in_holders((own, holder, stranger))

    assert (shown.key, shown.state, shown.nodes, shown.limit_s) == ("17", JobState.RUNNING, ("n2",), 60)
    assert (shown.resources, behind.resources) == (holder.resources, Resources(()))
    assert other is stranger
    named_by_user = (own, replace(holder, uid=8))
    assert in_holders(named_by_user) == named_by_user


@pytest.mark.parametrize("record", [JobRecord(holder="18"), JobRecord(holder="16", next_holder="18")])
def test_what_a_job_names_as_its_holder_is_one_whatever_its_user_calls_it(record: JobRecord) -> None:
    own = job("17", state=JobState.HELD, nodes=(), start_s=None, record=record)
    pretended = job("20", "outrider-has-17", nodes=("n3",))
    (_, holder, other, foreign) = in_holders(
        (own, job("18", "mine", account="machines"), pretended, replace(job("16"), uid=8))
    )

    assert (holder.stands_for, holder.payer, holder.account) == ("17", "physics", "machines")
    assert (other.stands_for, foreign.stands_for) == ("", "")


def test_what_is_asked_for_the_job_is_asked_of_its_holder() -> None:
    slurm = with_holder("has", is_waiting=True)
    slurm.jobs["17"] = replace(slurm.jobs["17"], record=JobRecord(metadata="run=vm", holder="18"))
    system = slurm.system()
    with pytest.raises(Refused, match="runs on n2, in its holder job 18"):
        system.release("17")
    system.signal("17", "USR2", NOW_S - 5)
    system.save("17", NOW_S - 5, "why", is_kept=True)
    record = slurm.jobs["17"].record
    system.cancel("17", "why")

    assert ["scancel", "--batch", "--signal=USR2", "18"] in slurm.told
    assert ["scancel", "--batch", "--signal=USR1", "18"] in slurm.told
    assert record.saved is not None
    assert (record.saved.nodes, record.is_suspended) == (("n2",), True)
    assert slurm.told[-2:] == [["scancel", "18"], ["scancel", "17"]]


@pytest.mark.parametrize(
    ("squeue", "sacct", "had"),
    [
        (b"18|COMPLETED|100|160|4|users\n", None, (60, 4)),
        (b"18|CANCELLED|N/A|160|4|users\n", None, (0, 4)),
        (b"19|COMPLETED|100|160|4|users\n", b"18|CANCELLED by 7|100|190|2|users\n", (90, 2)),
    ],
)
def test_what_a_holder_had_is_said_by_slurm_and_later_by_its_accounting(
    squeue: bytes, sacct: bytes | None, had: tuple[int, int]
) -> None:
    use = printing(squeue, sacct).use_of("18")

    assert (use.end_s - use.start_s, use.cpus, use.group) == (*had, "users")


def test_what_a_holder_had_is_not_guessed() -> None:
    with pytest.raises(Unavailable, match="not known yet"):
        printing(b"18|COMPLETING|100|160|4|users\n", None).use_of("18")
    with pytest.raises(Refused, match="nor in the site's accounting"):
        printing(b"", b"").use_of("18")
    with pytest.raises(Refused, match="accounts for none"):
        printing(b"", None).use_of("18")


def printing(squeue: bytes, sacct: bytes | None) -> SlurmHolders:
    """Slurm that prints that, without accounting if there is none."""
    shown = ShownSlurm({})

    def run(argv: Sequence[str], **rest: object) -> Output:
        if argv[0] == "squeue":
            return Output(0, squeue, "")
        return (
            Output(1, b"", "Slurm accounting storage is disabled") if sacct is None else Output(0, sacct, "")
        )

    system = shown.system()
    return SlurmHolders(
        SlurmCommands(run),
        clock=shown,
        log=shown,
        account_of=system._account_of,
        read_jobs=lambda now_s: ((), ()),
    )


def test_record_keeps_both_holders() -> None:
    record = JobRecord(holder="18", next_holder="20")

    assert record_in(comment_of(record)) == record
