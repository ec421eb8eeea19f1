"""Answers as they are kept for whoever asks the same again."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from outrider.service.answers.decision import Decision
from outrider.service.answers.events import OpenWindow
from outrider.service.answers.images import ImageView
from outrider.service.answers.leases import Occurrence, Offer, OptionView
from outrider.service.answers.transfers import PlannedTransfer

VERSION = 1
NOT_KEPT = ("environment", "slots")
"""They follow from the nodes and from what is configured now."""


def write_decision(decision: Decision) -> str:
    plain = {"version": VERSION} | asdict(decision)
    for name in NOT_KEPT:
        del plain[name]
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def read_decision(text: str) -> Decision:
    found: dict[str, Any] = json.loads(text)
    version = found.pop("version")
    if version != VERSION:
        raise ValueError(f"an answer of version {version} is not known: update outriderd")
    found["image"] = ImageView(**found["image"])
    found["transfers"] = tuple(PlannedTransfer(**each) for each in found["transfers"])
    found["remedies"] = tuple(found["remedies"])
    found["notes"] = tuple(found.get("notes", ()))
    found["occurrences"] = tuple(Occurrence(**each) for each in found.get("occurrences", ()))
    found["offers"] = tuple(Offer(**each) for each in found.get("offers", ()))
    found["options"] = tuple(OptionView(**each) for each in found.get("options", ()))
    window = found.get("window")
    if window is not None:
        texts = {name: tuple(window[name]) for name in ("begins", "ends")}
        found["window"] = OpenWindow(**{**window, **texts})
    return Decision(**found)
