"""Commands that ask the service over its socket, and print what it answers."""

from __future__ import annotations

from outrider.cli.arguments import Subparsers


def add(commands: Subparsers) -> None:
    from outrider.cli.asking import (
        administration,
        configuration,
        jobs,
        listing,
        page,
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
        page,
        listing,
        submit,
        configuration,
        administration,
    ):
        module.add(commands)
