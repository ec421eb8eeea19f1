"""`outriderd`: options, the configuration, signals, and the exit code.

What the service is made of is imported after its options were understood, so that --help and
faults of the command line come at once, and a missing library is named.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from cachemgr.base.clock import SystemClock
from outrider import __version__
from outrider.collector import collector_paused
from outrider.service.daemon.errors import (
    EXIT_OK,
    MissingLibraryError,
    ServiceError,
    ServiceInputError,
    exit_code_lines,
)
from outrider.store.errors import StoreError

if TYPE_CHECKING:
    from outrider.service.daemon.configuration.model import Config
    from outrider.service.daemon.life import Orders, Providers

DEFAULT_FILE = "/etc/outrider/outriderd.yaml"
LIBRARIES = ("fastapi", "prometheus_client", "pydantic", "uvicorn", "yaml")
"""What a service needs. To look whether they are there imports none, and not each order needs all."""

_EPILOG = f"""A store is never made unasked: an empty one in the place of one that was lost would
forget every promise. So a new site says --init once, before the service is started.

examples:
  outriderd --check                  what is wrong with the configuration, line by line
  outriderd --init                   make the state folder and an empty store
  outriderd                          serve, until SIGTERM; SIGHUP reads the policies again
  outriderd --config try.yaml --init-if-empty

exit codes:
{exit_code_lines()}
"""


class _Parser(argparse.ArgumentParser):
    """Faults of options are errors like all others."""

    def error(self, message: str) -> NoReturn:
        raise ServiceInputError(f"{message} (see outriderd --help)")


def main(
    argv: Sequence[str] | None = None,
    environment: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
    providers: Providers | None = None,
) -> int:
    """Run a command line and return its exit code; errors are lines on stderr."""
    environment = os.environ if environment is None else environment
    stream = stream or sys.stderr
    try:
        _run(_parser().parse_args(argv), environment, stream, providers)
    except SystemExit as finished:  # argparse, after --help and --version
        return finished.code if isinstance(finished.code, int) else EXIT_OK
    except (ServiceError, StoreError) as error:
        stream.write("".join(f"outriderd: {line}\n" for line in str(error).splitlines()))
        return error.exit_code
    except Exception:  # noqa: BLE001 - the outermost loop: whatever it is, say it and exit
        stream.write(traceback.format_exc())
        return ServiceError.exit_code
    return EXIT_OK


def run() -> None:
    """The console script. What hangs in a thread does not hold up the end."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(code)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="outriderd",
        description="The advance-reservation service: promises nodes with their images, and keeps it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"outriderd {__version__}")
    parser.add_argument(
        "--config",
        metavar="FILE",
        default=DEFAULT_FILE,
        help=f"read this, and conf.d/*.yaml beside it, instead of {DEFAULT_FILE}",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--check", action="store_true", help="check configuration and policies, and end")
    instead.add_argument(
        "--schema", action="store_true", help="print the configuration's JSON Schema, and end"
    )
    instead.add_argument(
        "--example", action="store_true", help="print a file with every key as a comment, and end"
    )
    instead.add_argument("--init", action="store_true", help="make an empty store, and end")
    parser.add_argument(
        "--init-if-empty",
        action="store_true",
        help="make a store if the state folder is empty or missing, and serve",
    )
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="open a store whose log is gone, although the last promises may be missing",
    )
    return parser


def _run(
    arguments: argparse.Namespace, environment: Mapping[str, str], stream: TextIO, providers: Providers | None
) -> None:
    if arguments.schema:
        _print_schema()
        return
    if arguments.example:
        _print_example()
        return
    with _named_libraries():
        config = _configuration(Path(arguments.config), environment)
    if arguments.check:
        _check_more(config)
        sys.stdout.write(f"{arguments.config}: site {config.site}, backend {config.backend.kind}\n")
        return
    if arguments.init or arguments.init_if_empty:
        with _named_libraries():
            from outrider.service.daemon.lead.keeping import create_store
        create_store(config, only_if_empty=not arguments.init)
    if not arguments.init:
        _serve(config, providers, environment, stream, accepts_loss=arguments.accept_loss)


@contextmanager
def _named_libraries() -> Iterator[None]:
    """What is imported here may be missing. Modules and models by the hundred stay, too."""
    try:
        if missing := next((name for name in LIBRARIES if find_spec(name) is None), None):
            raise ImportError(name=missing)
        with collector_paused():
            yield
    except ImportError as error:
        if (error.name or "").startswith("outrider"):
            raise
        raise MissingLibraryError(
            f"outriderd needs {error.name}: in a clone of Outrider, pip install '.[service]'"
        ) from error


def _print_schema() -> None:
    with _named_libraries():
        from outrider.metadata.validation import json_schema
        from outrider.service.daemon.configuration.model import Config

    sys.stdout.write(f"{json.dumps(json_schema(Config), indent=2)}\n")


def _print_example() -> None:
    with _named_libraries():
        from outrider.service.daemon.configuration.table import example

    sys.stdout.write(example())


def _configuration(main_file: Path, environment: Mapping[str, str]) -> Config:
    from outrider.metadata.errors import MetadataError
    from outrider.service.daemon.configuration.files import files_of, load_config

    try:
        return load_config(files_of(main_file), environment)
    except MetadataError as error:
        raise ServiceInputError(str(error)) from error
    except OSError as error:
        raise ServiceInputError(f"{main_file.parent}/conf.d cannot be read: {error.strerror}") from error


def _check_more(config: Config) -> None:
    """What the file alone does not show: the policies, and whether users and groups are known."""
    from outrider.service.daemon.configuration.policies import read_policy_book
    from outrider.service.daemon.world.catalogue import catalogue_of

    read_policy_book(config)
    catalogue_of(config)


def _serve(
    config: Config,
    providers: Providers | None,
    environment: Mapping[str, str],
    stream: TextIO,
    *,
    accepts_loss: bool,
) -> None:
    with _named_libraries():
        from outrider.service.daemon.capabilities import lacking
        from outrider.service.daemon.life import Orders, serve
        from outrider.service.daemon.log import make_log
        from outrider.service.daemon.world.backends import real_providers

    orders = Orders()
    _obey_signals(orders)
    clock = SystemClock()
    log = make_log(
        stream, level=config.log.level, format=config.log.format, clock=clock, environment=environment
    )
    if names := lacking():
        log.error("capabilities missing", lacking=",".join(names), remedy="run outrider doctor")
    serve(config, providers or real_providers(), orders, log, environment, accepts_loss=accepts_loss)


def _obey_signals(orders: Orders) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: orders.stop.set())
    signal.signal(signal.SIGHUP, lambda *_: orders.reload.set())


if __name__ == "__main__":
    run()
