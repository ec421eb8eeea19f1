from outrider.cli.arguments import Subparsers


def add(commands: Subparsers) -> None:
    pass
