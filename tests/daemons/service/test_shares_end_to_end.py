"""Who takes what, from a real node's daemon through the service to whoever asks."""

from __future__ import annotations

from typing import Any

from tests.daemons.service.test_outriderd_program import WORKSPACE, Program, image_in, program
from tests.unit.service.daemon.fakes import eventually

__all__ = ["program"]


def test_what_a_user_has_on_nodes_reaches_the_administrator(program: Program) -> None:
    text = program.file.read_text()
    program.file.write_text(text.replace("sight: 20s}", "sight: 20s, reconcile: 1s}"))
    image = image_in(program.folder)
    program.start()
    body = {"workspace": WORKSPACE.format(image=image), "file": "ws.yaml", "zone": "UTC"}
    program.ask("POST", "/v1/reservations", body, key="k1")

    def on_nodes() -> list[Any]:
        shares = program.ask("GET", "/v1/shares?nodes=n%5B1-2%5D")[1]["shares"]
        return [each["where"] for each in shares if each["thing"] == "images"]

    eventually(lambda: sorted(on_nodes()) == ["n1", "n2"], f"both nodes\n{program.log.read_text()}")
    found = program.ask("GET", "/v1/shares?thing=images")[1]["shares"]

    assert [(each["nodes"], each["held_in_all"]) for each in found] == [(2, 2)]
