"""What an administrator installs with: `outrider init`, `doctor`, `queues`, `deploy`."""

from __future__ import annotations

from outrider.cli.arguments import Subparsers


def add(commands: Subparsers) -> None:
    from outrider.cli.installing import deploy, doctor, init, queues

    init.add(commands)
    deploy.add(commands)
    doctor.add(commands)
    queues.add(commands)
