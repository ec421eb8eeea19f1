"""Commands that ask the service over its socket, and print what it answers."""

from __future__ import annotations

from outrider.cli.arguments import Subparsers


def add(commands: Subparsers) -> None:
    from outrider.cli.asking import (
        administration,
        configuration,
        jobs,
        listing,
        reservations,
        reserve,
        submit,
        timeline,
        top,
        watch,
    )

    for module in (
        reserve,
        reservations,
        jobs,
        watch,
        top,
        timeline,
        listing,
        submit,
        configuration,
        administration,
    ):
        module.add(commands)
