"""What an installation would change in a Grid Engine, worked out from objects as qconf prints them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outrider.cli.installing.gridengine.checks import too_much_memory
from outrider.cli.installing.gridengine.plan import (
    COMPLEX_LINE,
    EPILOG,
    PARTS,
    PROLOG,
    STARTER,
    GridWishes,
    hook,
    plan,
)
from outrider.cli.installing.gridengine.proof import heard_s
from outrider.cli.installing.gridengine.site import GridSite

WORK = """qname all.q
hostlist @allhosts
slots 1,[n1=4],[n2=4]
pe_list make
prolog {prolog}
epilog NONE
starter_method NONE
subordinate_list NONE
complex_values NONE
"""
MAKE = "pe_name make\nallocation_rule $round_robin\ncontrol_slaves TRUE\nstart_proc_args NONE\n"
WISHES = GridWishes(account="outrider", reservation_queue="outrider.q", parts=frozenset(PARTS))


def site(*, prolog: str = "NONE", reserved: str | None = None, configuration: str = "") -> GridSite:
    queues = {"all.q": WORK.format(prolog=prolog)}
    if reserved is not None:
        queues["outrider.q"] = f"qname outrider.q\nprolog {reserved}\nepilog {EPILOG}\n"
    return GridSite(
        version="8.1.9",
        work_queue="all.q",
        configuration=configuration,
        host_hooks=(),
        queues=queues,
        environments={"make": MAKE},
        complexes="",
        managers=frozenset(),
        reservers=frozenset(),
        hosts=("n1", "n2"),
        duration_offset_s=5,
    )


def prologs(found: GridSite, wishes: GridWishes = WISHES) -> dict[str, tuple[str | None, str | None]]:
    return {
        each.name: (each.before, each.after) for each in plan(found, wishes).hooks if each.key == "prolog"
    }


def test_prolog_of_the_reservation_queue_is_told_that_all_its_jobs_are_reserved() -> None:
    assert prologs(site()) == {
        "all.q": ("NONE", PROLOG),
        "outrider.q": ("NONE", f"{PROLOG} reserved"),
    }


def test_prolog_of_an_earlier_installation_gets_the_word_and_is_no_foreign_one() -> None:
    found = site(prolog=PROLOG, reserved=PROLOG)

    assert prologs(found) == {"outrider.q": (PROLOG, f"{PROLOG} reserved")}
    assert plan(found, WISHES).troubles == ()


def test_what_is_installed_is_not_changed_again() -> None:
    assert prologs(site(prolog=PROLOG, reserved=f"{PROLOG} reserved")) == {}


@pytest.mark.parametrize(
    ("found", "culprit", "remedy"),
    [
        (site(prolog="/site/prolog"), "queue all.q has its own prolog /site/prolog", "$host as root, too"),
        (site(reserved="/site/prolog"), "queue outrider.q has its own prolog", "$host reserved as root, too"),
        (
            site(configuration="prolog /site/all"),
            "the site has its own prolog /site/all",
            "word reserved for",
        ),
        (site(configuration="epilog /site/all"), "the site has its own epilog", "--without-epilog"),
    ],
    ids=["work queue", "reservation queue", "site's prolog", "site's epilog"],
)
def test_hook_of_the_sites_own_is_kept_and_named_with_what_it_has_to_call(
    found: GridSite, culprit: str, remedy: str
) -> None:
    (trouble,) = plan(found, WISHES).troubles

    assert trouble.startswith(culprit)
    assert remedy in trouble


def test_part_that_is_not_wanted_is_left_alone() -> None:
    wishes = GridWishes(
        account="outrider", reservation_queue="outrider.q", parts=WISHES.parts - {"prolog", "starter"}
    )
    planned = plan(site(prolog="/site/prolog"), wishes)

    assert {each.key for each in planned.hooks} == {
        "shepherd_cmd", "epilog", "start_proc_args", "jsv_allowed_mod", "jsv_url",
    }  # fmt: skip
    assert planned.troubles == ()


def test_reservation_queue_is_made_with_twice_the_slots_and_whole_node_environments() -> None:
    planned = plan(site(), WISHES)
    made = {each.name: each.after or "" for each in planned.objects if each.kind in ("queue", "environment")}
    queue = dict(line.split(" ", 1) for line in made["outrider.q"].splitlines())

    assert queue["slots"] == "2,[n1=8],[n2=8]"
    assert queue["pe_list"].split() == ["make", "outrider1", "outrider4"]
    assert queue["complex_values"] == "outrider_reservation=TRUE"
    assert planned.environments == ((1, "outrider1"), (4, "outrider4"))
    assert "allocation_rule 4" in made["outrider4"]
    assert any(each.after == COMPLEX_LINE for each in planned.objects)


def test_queue_of_parts_is_beneath_the_queue_of_whole_nodes_and_beside_that_of_jobs() -> None:
    wishes = replace(WISHES, parts_queue="parts.q")
    half = "pe_name half\nallocation_rule 2\n"
    found = replace(site(), environments={"make": MAKE, "half": half})

    planned = plan(found, wishes)
    made = {each.name: each.after or "" for each in planned.objects if each.kind == "queue"}
    lists = [(each.name, each.after) for each in planned.objects if each.key == "subordinate_list"]

    assert "subordinate_list outrider.q=1" in made["parts.q"].splitlines()
    assert "complex_values outrider_reservation=TRUE" in made["parts.q"].splitlines()
    assert lists == [("all.q", "outrider.q=1"), ("outrider.q", "all.q=1,parts.q=1")]
    assert planned.environments == ((1, "outrider1"), (2, "half"), (4, "outrider4"))
    assert prologs(found, wishes)["parts.q"] == ("NONE", f"{PROLOG} reserved")
    assert [queue for queue in made if queue not in ("outrider.q", "parts.q")] == []


@pytest.mark.parametrize(
    ("limit", "is_kept"),
    [("2G", True), ("2147483648", True), ("1.5G,[n1=2G]", True), ("2G,[n1=3G]", False), ("3g", False),
     ("INFINITY", False), ("1G,[n1=INFINITY]", False)],
)  # fmt: skip
def test_doctor_names_queues_whose_slots_have_more_memory_than_reservations_count_with(
    limit: str, is_kept: bool
) -> None:
    found = list(too_much_memory({"all.q": f"qname all.q\nh_vmem {limit}\n"}, "2GiB"))

    assert len(found) == (not is_kept)
    assert all("queue all.q has h_vmem" in words and "qconf -mq all.q" in words for words in found)


def test_hooks_are_what_guards_and_scripts_are_called_by() -> None:
    assert hook("starter", "outrider.q", WISHES) == STARTER
    assert hook("epilog", "outrider.q", WISHES) == EPILOG


INTERACTIVE = "qname {name}\nqtype BATCH INTERACTIVE\nprolog NONE\n"
UNSHIELDED = GridWishes(
    account="outrider", reservation_queue="outrider.q", parts=frozenset(PARTS) - {"shepherd"}
)


def interactive(configuration: str = "") -> GridSite:
    queues = {name: INTERACTIVE.format(name=name) for name in ("all.q", "outrider.q")}
    return replace(site(configuration=configuration), queues=queues)


def test_shepherd_comes_before_the_hooks_that_it_shields() -> None:
    keys = [each.key for each in plan(interactive(), WISHES).hooks]

    assert keys.index("shepherd_cmd") == 0
    assert "prolog" in keys


def test_queue_of_interactive_jobs_gets_no_hooks_that_nothing_shields() -> None:
    planned = plan(interactive(), UNSHIELDED)

    assert {"prolog", "epilog", "starter_method"}.isdisjoint(each.key for each in planned.hooks)
    assert [each.partition(" takes")[0] for each in planned.advice] == ["queue all.q", "queue outrider.q"]


def test_queue_of_batch_jobs_alone_gets_its_hooks_without_a_shield() -> None:
    assert prologs(site(), UNSHIELDED).keys() == {"all.q", "outrider.q"}


def test_shepherd_of_the_sites_own_is_kept_and_named_with_what_it_has_to_call() -> None:
    found = interactive("shepherd_cmd /site/shepherd")

    (trouble,) = plan(found, WISHES).troubles
    chained = plan(found, UNSHIELDED)

    assert "/site/shepherd" in trouble
    assert "--without-shepherd" in trouble
    assert (chained.troubles, chained.advice) == ((), ())
    assert "prolog" in {each.key for each in chained.hooks}


@pytest.mark.parametrize(
    ("params", "after"),
    [
        ("none", "DURATION_OFFSET=5"),
        ("MONITOR=1", "MONITOR=1,DURATION_OFFSET=5"),
        ("MONITOR=1 duration_offset=60", "MONITOR=1 DURATION_OFFSET=5"),
    ],
)
def test_long_offset_of_a_new_site_becomes_short(params: str, after: str) -> None:
    found = replace(site(), duration_offset_s=60, scheduler=f"algorithm default\nparams {params}\n")
    planned = plan(found, WISHES)

    assert [(each.before, each.after) for each in planned.objects if each.kind == "scheduler"] == [
        (params, after)
    ]
    assert planned.duration_offset_s == 5
    assert not any("DURATION_OFFSET" in each for each in planned.advice)


def test_offset_by_which_there_are_reservations_stays_and_is_named() -> None:
    found = replace(site(reserved=PROLOG), duration_offset_s=60, scheduler="params none\n")
    planned = plan(found, WISHES)

    assert [each for each in planned.objects if each.kind == "scheduler"] == []
    assert planned.duration_offset_s == 60
    assert any("DURATION_OFFSET is 60 s" in each for each in planned.advice)


@pytest.mark.parametrize(("said", "seconds"), [("00:00:40", 45), ("0:1:0", 65), ("2", 7), ("", 5)], ids=str)
def test_change_is_heard_of_after_one_load_report(said: str, seconds: int) -> None:
    assert heard_s(site(configuration=f"load_report_time {said}")) == seconds


def environment(name: str, slots: int, controls: str) -> str:
    return f"pe_name {name}\nallocation_rule {slots}\ncontrol_slaves {controls}\nuser_lists NONE\n"


def with_environments(**found: str) -> GridSite:
    texts = {name: environment(name, 4, controls) for name, controls in found.items()}
    return replace(site(), queues={"all.q": WORK.replace("1,[n1=4],[n2=4]", "4").format(prolog="NONE")},
                   environments=texts)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "chosen"),
    [
        ({"mpi": "TRUE"}, "mpi"),
        ({"loose": "FALSE", "mpi": "TRUE"}, "mpi"),
        ({"outrider4": "TRUE", "mpi": "TRUE"}, "mpi"),
        ({"loose": "FALSE"}, "loose"),
        ({}, "outrider4"),
    ],
    ids=str,
)
def test_whole_nodes_are_reserved_by_the_sites_environment_that_lets_programs_start_others(
    found: dict[str, str], chosen: str
) -> None:
    assert plan(with_environments(**found), WISHES).environments == ((4, chosen),)


@pytest.mark.parametrize(
    ("found", "named"),
    [({"loose": "FALSE"}, ["loose"]), ({"loose": "FALSE", "mpi": "TRUE"}, []), ({"outrider4": "FALSE"}, [])],
    ids=str,
)
def test_environment_that_lets_no_program_start_others_is_named_with_its_remedy(
    found: dict[str, str], named: list[str]
) -> None:
    told = [each for each in plan(with_environments(**found), WISHES).advice if "control_slaves" in each]

    assert [each.split()[1].rstrip(",") for each in told] == named
    assert all("qconf -mp loose" in each for each in told)


def test_environment_that_is_made_lets_programs_start_others() -> None:
    (made,) = [each for each in plan(with_environments(), WISHES).objects if each.kind == "environment"]

    assert made.after is not None
    assert "control_slaves TRUE" in made.after.splitlines()


def test_environment_of_an_earlier_installation_is_changed() -> None:
    changes = plan(with_environments(outrider4="FALSE"), WISHES).objects

    assert [(each.name, each.after) for each in changes if each.key == "control_slaves"] == [
        ("outrider4", "TRUE")
    ]


def test_scheduler_that_looks_seldom_is_spoken_of_and_is_no_fault() -> None:
    seldom = plan(replace(site(), schedule_interval_s=15), WISHES)
    often = plan(replace(site(), schedule_interval_s=1), WISHES)

    assert often.pace == ()
    (words,) = seldom.pace
    assert "schedule_interval is 15 s" in words
    assert "starts up to 15 s later" in words
    assert "qconf -msconf, schedule_interval 0:0:1" in words
    assert seldom.advice == often.advice, "which the doctor warns of"


def test_machines_are_saved_by_a_checkpoint_object_that_both_queues_name() -> None:
    changes = plan(site(reserved="NONE"), WISHES).objects
    made = [each.kind for each in changes if each.name == "outrider_machine"]
    named = {each.name: each.after for each in changes if each.key == "ckpt_list"}
    theirs = site(reserved="NONE")
    theirs = replace(
        theirs,
        checkpoints=frozenset({"outrider_machine", "own"}),
        queues={name: f"{text}ckpt_list own outrider_machine\n" for name, text in theirs.queues.items()},
    )

    assert made == ["checkpoint"]
    assert named == {"all.q": "outrider_machine", "outrider.q": "outrider_machine"}
    assert not any(
        "ckpt_list" in each.key or each.kind == "checkpoint" for each in plan(theirs, WISHES).objects
    )
