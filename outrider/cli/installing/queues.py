"""`outrider queues`: whose jobs Outrider starts, given back to the batch system and taken over.

Both work whether the service lives or not: what they write is read by the submit filters at each submission
and by the service at each look, and held jobs are let go by the batch system's own commands.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from outrider.cli.arguments import Parser, Subparsers, add_command
from outrider.cli.errors import (
    InputError,
    MissingPartError,
    NotAllowedError,
    OutputError,
    UnavailableError,
)
from outrider.cli.output import print_json

if TYPE_CHECKING:
    from outrider.rms.base import BatchSystem, RmsJob
    from outrider.service.daemon.configuration.jobs import ScheduleSection
    from outrider.service.daemon.configuration.model import Config

CONFIG = "/etc/outrider/outriderd.yaml"
_QUEUES = """examples:
  outrider queues
  outrider queues hand-back
  outrider queues take-over
"""
_HAND_BACK = """For root on the head, with or without the service. From now on the batch system starts all
jobs: new ones are not held for their turn, and those that wait for it without an image are released. Jobs
with an image go on waiting for that: the service brings it, and they start when it is there.

examples:
  outrider queues hand-back
"""
_TAKE_OVER = """For root on the head. Jobs of the queues in jobs.schedule of outriderd.yaml are held from now
on, and the service starts them.

examples:
  outrider queues take-over
"""


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "queues", help="which queues' jobs Outrider starts; give them back, take them over",
        description="which queues' jobs Outrider starts; give them back, take them over.", epilog=_QUEUES,
    )  # fmt: skip
    _add_options(parser)
    parser.set_defaults(command=show)
    below = parser.add_subparsers(metavar="COMMAND", title="commands", parser_class=Parser)
    for name, command, words, epilog in (
        ("hand-back", hand_back, "let the batch system start all jobs again", _HAND_BACK),
        ("take-over", take_over, "let Outrider start the jobs of its queues", _TAKE_OVER),
    ):
        _add_options(add_command(below, name, command, words, epilog))


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="PATH", default=CONFIG, help=f"the service's file ({CONFIG})")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def show(arguments: argparse.Namespace) -> None:
    """Which queues are whose now."""
    from outrider.service.daemon.world.turns import queues_in

    section = _section(_config(arguments.config))
    try:
        ours = queues_in(Path(section.file))
    except (OSError, ValueError) as error:
        raise InputError(f"{section.file} cannot be read: {error}") from error
    is_ours = set(section.queues) <= set(ours)
    if arguments.json:
        print_json({"queues": section.queues, "taken_over": is_ours})
        return
    names = ", ".join(section.queues)
    print(f"{names}: {'Outrider starts their jobs' if is_ours else 'handed back to the batch system'}")


def hand_back(arguments: argparse.Namespace) -> None:
    """Empty the file first, so that nobody holds anything more; then let go what is held."""
    from outrider.rms.base import RmsError

    config = _config(arguments.config)
    section = _section(config)
    rms, before = _batch_system(config), []
    with suppress(RmsError):
        before = _held(rms, section)
    _write(section, ())
    released, kept, failed = _release(rms, section, before)
    if arguments.json:
        print_json({"queues": section.queues, "released": released, "with_image": kept, "failed": failed})
    else:
        names = ", ".join(section.queues)
        print(f"{names}: handed back; {released} jobs are released, {kept} wait for their images")
    if failed:
        raise UnavailableError(f"{len(failed)} jobs could not be released: {failed[0]}; run it again")


def take_over(arguments: argparse.Namespace) -> None:
    """Write the queues into the file."""
    config = _config(arguments.config)
    section = _section(config)
    kind = config.backend.kind
    is_default = kind == "gridengine" and config.backend.gridengine.work_queue in section.queues
    from outrider.rms.base import RmsError
    from outrider.service.daemon.world.turns import NO_QUEUE, unknown_queues

    try:
        words = unknown_queues(section, _batch_system(config).look())
    except RmsError as error:
        raise UnavailableError(str(error)) from error
    if words:
        raise InputError(words)
    _write(section, (*section.queues, *([NO_QUEUE] if is_default else ())))
    if arguments.json:
        print_json({"queues": section.queues})
    else:
        print(f"{', '.join(section.queues)}: Outrider starts their jobs, as soon as outriderd runs")


def _release(
    rms: BatchSystem, section: ScheduleSection, before: Sequence[RmsJob]
) -> tuple[int, int, list[str]]:
    """Let go what waits for its turn alone; how many, how many have an image to wait for, and what failed.

    `before` is what was held when the queues were handed back: what the service lets go counts, too.
    """
    from outrider.rms.base import RmsError

    try:
        held = _held(rms, section)
    except RmsError as error:
        raise UnavailableError(
            f"new jobs are not held any more, but those that are stay so: {error}"
        ) from error
    failed = {}
    for job in held:
        if job.metadata is None:
            try:
                rms.release(job.key)
            except RmsError as error:
                failed[job.key] = str(error)
    in_turn = {job.key for job in (*before, *held) if job.metadata is None}
    kept = sum(job.metadata is not None for job in held)
    return len(in_turn - failed.keys()), kept, list(failed.values())


def _held(rms: BatchSystem, section: ScheduleSection) -> list[RmsJob]:
    """What Outrider holds in the queues whose jobs it starts."""
    from outrider.rms.base import JobState

    return [
        job
        for job in rms.look().jobs
        if job.queue in section.queues and job.state is JobState.HELD and job.is_held_by_us
    ]


def _config(path: str) -> Config:
    from outrider.metadata.errors import MetadataError

    try:
        from outrider.service.daemon.configuration.files import files_of, load_config
    except ModuleNotFoundError as error:
        raise MissingPartError(
            f"it needs {error.name}, as the service does: use the outrider of outriderd's environment"
        ) from error
    try:
        return load_config(files_of(Path(path)), os.environ)
    except MetadataError as error:
        raise InputError(str(error)) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error


def _section(config: Config) -> ScheduleSection:
    section = config.jobs.schedule
    if not section.queues:
        raise InputError(
            "the batch system starts all jobs: name queues in jobs.schedule.queues of outriderd.yaml first"
        )
    return section


def _write(section: ScheduleSection, queues: tuple[str, ...]) -> None:
    from cachemgr.base.disk import RealDisk, replace_file
    from outrider.service.daemon.world.turns import text_of

    if os.geteuid() != 0:
        raise NotAllowedError("only root can do that")
    try:
        replace_file(RealDisk(), section.file, text_of(queues).encode(), mode=0o644)
    except OSError as error:
        raise OutputError(f"{section.file} cannot be written: {error.strerror}") from error


def _batch_system(config: Config) -> BatchSystem:
    from cachemgr.base.clock import SystemClock
    from cachemgr.base.steady import SteadyClock
    from outrider.service.daemon.errors import ServiceError
    from outrider.service.daemon.log import make_log
    from outrider.service.daemon.world.cluster import CLUSTERS

    if config.backend.kind not in CLUSTERS:
        raise InputError("the batch system is the service's own: stop naming queues in jobs.schedule instead")
    try:
        clock = SystemClock()
        log = make_log(sys.stderr, level="error", format="text", clock=clock, environment={})
        return CLUSTERS[config.backend.kind](config.backend, SteadyClock(clock), log)
    except ServiceError as error:
        raise MissingPartError(str(error)) from error
