"""What the doctor says of a node's virtual machines by what its daemon answers."""

from __future__ import annotations

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import BadRequest, CacheError, NoDaemon, Unsuitable
from outrider.cli.installing import nodechecks
from outrider.cli.installing.nodechecks import NodeChecks

GIB = 1 << 30


def said(monkeypatch: pytest.MonkeyPatch, answer: dict[str, object] | CacheError) -> list[tuple[str, str]]:
    def ask(*request: object) -> dict[str, object]:
        if isinstance(answer, CacheError):
            raise answer
        return answer

    monkeypatch.setattr(nodechecks, "ask", ask)
    checks = NodeChecks(keys=(), port=1, kit=None, remote=None, clock=SystemClock())
    return [(each.row[0], each.words) for each in checks._machines("n1")]


def test_accelerator_and_its_reason_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {
        "version": "7.2.22",
        "accelerator": "tcg",
        "reason": "there is no /dev/kvm",
        "free_bytes": 3 * GIB,
    }

    assert said(monkeypatch, facts) == [
        ("ok", "QEMU 7.2.22 by emulation, which is slow: there is no /dev/kvm; 3.0 GiB beside the pool")
    ]
    assert said(monkeypatch, {**facts, "accelerator": "kvm", "reason": "faster"}) == [
        ("ok", "QEMU 7.2.22 by KVM: faster; 3.0 GiB beside the pool")
    ]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Unsuitable("x"), [("ok", "no QEMU is installed: jobs cannot run in virtual machines there")]),
        (BadRequest("there is no verb 'machines'"), []),
        (NoDaemon("nobody answers"), [("warning", "nobody answers")]),
    ],
)
def test_node_without_an_answer_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, error: CacheError, expected: list[tuple[str, str]]
) -> None:
    assert said(monkeypatch, error) == expected
