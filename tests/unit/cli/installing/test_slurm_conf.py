"""Reading slurm.conf as Slurm does, and changing it so that it can be changed back to the byte."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.cli.errors import InputError
from outrider.cli.installing.slurm.files import in_force
from outrider.cli.installing.slurm.marking import LUA, SLURM, changed, restored
from outrider.cli.installing.slurm.slurmconf import settings
from tests.unit.cli.installing.sites import ALL, CONF, after, planned, site, site_of


def pairs(text: str) -> list[tuple[str, str]]:
    return [(each.key, each.value) for each in settings(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Prolog=/a\n", [("Prolog", "/a")]),
        ("  prolog = /a   Epilog=/b # both\n", [("prolog", "/a"), ("Epilog", "/b")]),
        ("Prolog=/a#/b\n", [("Prolog", "/a")]),
        ("Prolog=/a\\#b\n", [("Prolog", "/a#b")]),
        ('Prolog="/a b" Epilog=/c\n', [("Prolog", "/a b"), ("Epilog", "/c")]),
        ("JobSubmitPlugins=a,\\\nlua\nEpilog=/b\n", [("JobSubmitPlugins", "a,lua"), ("Epilog", "/b")]),
        ("JobSubmitPlugins=a \\  \n  Epilog=/b\n", [("JobSubmitPlugins", "a"), ("Epilog", "/b")]),
        ("A=1 # not continued \\\nB=2\n", [("A", "1"), ("B", "2")]),
        ("A=1\r\nB=2\r\n", [("A", "1"), ("B", "2")]),
        ("NodeName=n1 Prolog=/no\nProlog=/a\n", [("NodeName", "n1"), ("Prolog", "/a")]),
        ("PartitionName=p Nodes=n1 \\\n GraceTime=3\n", [("PartitionName", "p")]),
        ("A=1 nonsense B=2\n", [("A", "1")]),
        ("A=1", [("A", "1")]),
        ("A=1 \\", [("A", "1")]),
        ("", []),
    ],
)
def test_settings_are_what_slurm_reads(text: str, found: list[tuple[str, str]]) -> None:
    assert pairs(text) == found


def test_last_of_several_counts_over_all_included_files() -> None:
    found = site("ClusterName=Alpha\nProlog=/a\ninclude %c.conf\n", alpha="PROLOG=/b\nEpilog=/e\n")

    assert found.value("prolog") == "/b"
    assert [each.path for each in found.files] == [CONF, "/etc/slurm/alpha.conf"]
    assert found.last("Epilog").place == "/etc/slurm/alpha.conf:2"  # type: ignore[union-attr]


def test_include_that_is_not_there_is_named_with_the_file_that_wants_it() -> None:
    with pytest.raises(InputError, match=r"/etc/slurm/gone\.conf, which /etc/slurm/slurm\.conf includes,"):
        site("Include gone.conf\n")


def test_file_that_includes_itself_is_refused() -> None:
    with pytest.raises(InputError, match="includes itself"):
        site_of({CONF: "include slurm.conf\n"})


TEXT = st.text(
    st.sampled_from('abAB19 \t\r\n\n\\\\#"=,/-_.') | st.characters(exclude_categories=["Cs"]), max_size=60
)
LINES = st.lists(
    st.one_of(
        TEXT,
        st.sampled_from(
            [
                "Prolog=/site/prolog", "prolog = /etc/slurm/prolog.d/*", 'JobSubmitPlugins="all_partitions"',
                "JobSubmitPlugins=a,\\\n  b", "Epilog=/e TaskProlog=/t # both", "TaskProlog=/t\r",
                "PrologSlurmctld=/c \\\n PrologFlags=Alloc", "NodeName=n[1-4] CPUs=2", "JobSubmitPlugins=lua",
            ]
        ),
    ),
    max_size=8,
).map("\n".join)  # fmt: skip


@given(text=LINES, has_end=st.booleans())
@example(text="Prolog=/a", has_end=False)
@example(text="Prolog=/a \\", has_end=False)
@example(text="", has_end=False)
@example(text="JobSubmitPlugins=a \\\n  Prolog=/p \\\n", has_end=True)
def test_changes_can_be_taken_out_to_the_byte(text: str, has_end: bool) -> None:
    own = text + "\n" * has_end
    if "include" in own.lower() or "outrider" in own:
        return

    plan = planned(site(own))

    assert restored(after(plan), SLURM, CONF) == own


@given(text=LINES)
def test_doing_it_again_changes_nothing(text: str) -> None:
    if "include" in text.lower() or "outrider" in text:
        return
    once = after(planned(site(text)))

    again = planned(site(once))

    assert [each.path for each in again.edits if each.path == CONF] == []
    assert restored(once, SLURM, CONF) == text


@given(text=LINES)
def test_slurm_reads_from_the_result_what_was_wanted_and_nothing_else_new(text: str) -> None:
    if "include" in text.lower() or "outrider" in text:
        return
    before, plan = site(text), planned(site(text))
    # What comes after text that Slurm cannot read on its line is not looked at.
    wanted = dict(plan.settings)

    read = {key.lower(): value for key, value in pairs(after(plan))}

    assert {key: read.get(key.lower()) for key in wanted} == wanted
    others = {each.setting.key.lower() for each in before.located} - {key.lower() for key in wanted}
    assert {key: read.get(key) for key in others} == {key: before.value(key) for key in others}


def test_line_says_what_it_was_and_what_it_is_now() -> None:
    plan = planned(site("# Ours\nJobSubmitPlugins=all_partitions  # keep\nProlog=/p Epilog=/e\n"))

    assert after(plan).split("\n")[:5] == [
        "# Ours",
        "#outrider-was:JobSubmitPlugins=all_partitions  # keep",
        "JobSubmitPlugins=all_partitions,lua #outrider-now",
        "#outrider-was:Prolog=/p Epilog=/e",
        "Prolog=/etc/outrider/slurm/prolog Epilog=/etc/outrider/slurm/epilog #outrider-now",
    ]


def test_edits_of_an_administrator_between_and_below_our_lines_stay() -> None:
    changed = after(planned(site("ClusterName=a\nProlog=/p\n")))

    edited = changed.replace("ClusterName=a", "ClusterName=b") + "MessageTimeout=30\n"

    assert restored(edited, SLURM, CONF) == "ClusterName=b\nProlog=/p\nMessageTimeout=30\n"


def test_our_lines_without_their_end_are_told_with_their_place() -> None:
    with pytest.raises(InputError, match=r"slurm\.conf:2: Outrider's lines begin here and have no end"):
        restored("A=1\n# outrider: begin\nProlog=/x\n", SLURM, CONF)


def test_setting_in_an_included_file_is_changed_there() -> None:
    plan = planned(site("include hooks.conf\n", hooks="Prolog=/p\n"))

    assert "Prolog=/etc/outrider/slurm/prolog #outrider-now" in after(plan, "/etc/slurm/hooks.conf")
    assert "Prolog=" not in after(plan).replace("TaskProlog=", "").replace("PrologSlurmctld=", "")


def test_lua_file_is_restored_to_the_byte() -> None:
    own = "function slurm_job_submit() return slurm.SUCCESS end\nreturn slurm.SUCCESS\n"
    plan = planned(site("JobSubmitPlugins=lua\n"), submit=own)

    text = after(plan, "/etc/slurm/job_submit.lua")

    assert restored(text, LUA, "job_submit.lua") == own
    assert text.endswith("-- outrider: end\nreturn slurm.SUCCESS\n")


def test_prolog_of_slurmctld_is_left_out_unless_it_is_wanted() -> None:
    wanted = planned(site(""), parts=ALL | {"prolog-slurmctld"})

    assert "PrologSlurmctld" not in dict(planned(site("")).settings)
    assert dict(wanted.settings)["PrologSlurmctld"] == "/etc/outrider/slurm/prolog-slurmctld"


@pytest.mark.parametrize(
    ("own", "line", "is_in_force"),
    [
        ("", "PrologSlurmctld=/usr/lib/outrider/slurm/prolog-slurmctld", True),
        ("", "PrologSlurmctld=/etc/outrider/slurm/prolog-slurmctld", True),
        ("PrologSlurmctld=/site\n", "", False),
        ("PrologSlurmctld=/etc/slurm/ctld.d/*\n", "", False),
        ("", "", False),
    ],
)
def test_prolog_of_slurmctld_that_is_in_force_is_seen(own: str, line: str, is_in_force: bool) -> None:
    text = changed(own, SLURM, added=[line]) if line else own

    assert ("prolog-slurmctld" in in_force(site(text))) is is_in_force


def test_what_is_left_out_is_not_planned() -> None:
    plan = planned(site(""), parts=ALL - {"submit-filter"})

    assert [key for key, _ in plan.settings] == ["BatchStartTimeout", "Epilog", "Prolog", "TaskProlog"]
