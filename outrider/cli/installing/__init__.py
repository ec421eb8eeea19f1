"""What an administrator installs with: `outrider init`, `outrider doctor`, `outrider nodes deploy`."""

from __future__ import annotations

from outrider.cli.arguments import Subparsers


def add(commands: Subparsers) -> None:
    from outrider.cli.installing import deploy, doctor, init

    init.add(commands)
    deploy.add(commands)
    doctor.add(commands)
