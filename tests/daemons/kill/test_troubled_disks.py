"""The store's disk is full, or cannot be written: no promise is made, none is lost, and all is said."""

from __future__ import annotations

from pathlib import Path

from tests.daemons.kill import verdicts
from tests.daemons.kill.conftest import Make
from tests.daemons.kill.loopdisk import fill, mounted, moved, other_namespace, run
from tests.daemons.kill.requests_of_tests import ask_for, names, states
from tests.daemons.kill.victim import Answered, Gone, Victim, is_over

MOST = 400
EVERYTHING = 1 << 30
STORE_FAILS = "store cannot be used"


def ask_until_refused(victim: Victim, image: Path, first: int) -> tuple[list[str], int, Answered]:
    """What was accepted meanwhile; then the number that had no answer, and what was said instead."""
    accepted: list[str] = []
    for number in range(first, first + MOST):
        try:
            answered = ask_for(victim, image, number)
        except Gone as error:
            answered = Answered(status=503, content={"message": str(error)})
        if answered.status != 201:
            return accepted, number, answered
        accepted.append(f"w{number}")
    raise AssertionError("every promise found room")


def said_since(victim: Victim, before: int) -> str:
    return victim.last_words(EVERYTHING)[before:]


def test_full_disk_stops_promises_and_room_lets_them_go_on(make: Make, folder: Path, disk: Path) -> None:
    victim = make(state=disk / "state")
    victim.init()
    victim.start()
    victim.await_ready()
    first = ask_for(victim, folder / "image", 0)
    ballast = fill(disk)
    accepted, number, refused = ask_until_refused(victim, folder / "image", 1)
    victim.eventually("not being ready", lambda: victim.ask("GET", "/readyz").status == 503)
    ballast.unlink()
    victim.await_ready()
    again = ask_for(victim, folder / "image", number)

    assert first.status == again.status == 201
    assert (refused.status, refused.content["code"]) == (503, "unavailable")
    assert f"store {disk}/state/outriderd.sqlite: its disk has no room" in str(refused.content["message"])
    assert names(victim) == sorted(["w0", *accepted, f"w{number}"])


def test_promises_before_a_full_disk_outlive_a_kill_on_it(make: Make, folder: Path, disk: Path) -> None:
    victim = make(state=disk / "state")
    victim.init()
    victim.start()
    victim.await_ready()
    ask_for(victim, folder / "image", 0)
    ballast = fill(disk)
    accepted, number, _ = ask_until_refused(victim, folder / "image", 1)
    victim.kill()
    # What the killed one and its nodes had open and removed is free once they are gone.
    victim.eventually("nothing of it runs", lambda: not victim.daemons())
    fill(disk)
    before = len(victim.last_words(EVERYTHING))
    victim.start()
    # What it writes first may still fit into its journal: then it serves, and promises nothing.
    victim.eventually(
        "its end, or its word", lambda: is_over(victim.pid) or STORE_FAILS in said_since(victim, before)
    )
    code = victim.reap() if is_over(victim.pid) else None
    said = said_since(victim, before)
    is_promising = code is None and victim.asked("GET", "/v1/status").get("is_promising")
    ballast.unlink()
    if code is not None:
        victim.start()
    victim.await_ready()
    again = ask_for(victim, folder / "image", number)

    assert code in (25, None), said
    assert not is_promising
    assert "no room" in said
    assert "Traceback" not in said
    assert again.status == 201
    assert names(victim) == sorted(["w0", *accepted, f"w{number}"])


def test_read_only_disk_is_named_at_the_start(make: Make, disk: Path) -> None:
    victim = make(state=disk / "state")
    victim.init()
    run("mount", "-o", "remount,ro", str(disk))
    code, said = victim.run()
    run("mount", "-o", "remount,rw", str(disk))
    victim.start()
    victim.await_ready()

    assert code == 26, said
    assert f"store {disk}/state/outriderd.sqlite: Read-only file system; see" in said


def test_disk_that_the_kernel_gives_up_is_said_and_costs_no_promise(make: Make, folder: Path) -> None:
    with mounted("ext4", folder) as disk, other_namespace():
        victim = make(state=disk / "state")
        victim.init()
        victim.start()
        victim.await_ready()
        first = ask_for(victim, folder / "image", 0)
        run("mount", "-o", "remount,abort", str(disk))
        accepted, number, refused = ask_until_refused(victim, folder / "image", 1)
        victim.eventually("words about it", lambda: f"store {disk}/state/outriderd" in victim.last_words())
        victim.end()
        moved(folder / "ext4.img", disk)
        victim.start()
        victim.await_ready()
        again = ask_for(victim, folder / "image", number)
        found = names(victim)
        victim.end()

    assert first.status == again.status == 201
    assert refused.status == 503
    assert found == sorted(["w0", *accepted, f"w{number}"])


def test_promise_that_the_batch_system_cannot_note_reaches_it_when_there_is_room(
    make: Make, folder: Path, disk: Path
) -> None:
    victim = make(backend=disk / "e")
    victim.init()
    victim.start()
    victim.await_ready()
    ask_for(victim, folder / "image", 0, start="now+20s")
    victim.eventually("its image there", lambda: states(victim) in (["ready"], ["active"]))
    ballast = fill(disk)
    # Its image takes no more room of the nodes' pools, which lie on that disk, too.
    accepted = ask_for(victim, folder / "image", 1)
    victim.eventually("words about it", lambda: "cannot write" in victim.last_words())
    victim.kill()
    ballast.unlink()
    victim.start()
    victim.eventually("both agree", lambda: verdicts.unsettled(victim) == [])

    assert accepted.status == 201
    assert names(victim) == ["w0", "w1"]
