"""`outrider sim convert`: a workload from any form to Outrider's own or to SWF."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.errors import InputError, OutputError
from outrider.cli.output import check_writable, say
from outrider.cli.quantities import positive

if TYPE_CHECKING:
    from outrider.sim.workload.trace import Trace

OUTPUTS = (".jsonl", ".jsonl.gz", ".swf", ".swf.gz")

_EPILOG = """forms read: .swf, .trace (the thesis), .xml and .lwf (Haizea), .jsonl; any with .gz
forms written: .jsonl, .swf; either with .gz

examples:
  outrider sim convert log.swf.gz log.jsonl --limit 5000
  outrider sim convert leases.xml leases.jsonl
  outrider sim convert log.swf.gz moldable.jsonl --moldable amdahl --limit 1000
"""


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "convert", convert, "convert a workload to .jsonl or .swf", _EPILOG)
    parser.add_argument("source", metavar="IN", help="a workload of any form")
    parser.add_argument("target", metavar="OUT", help="what to write, named .jsonl or .swf")
    parser.add_argument("--limit", type=positive, metavar="N", help="keep the first N submissions")
    parser.add_argument(
        "--processors-per-instance", type=positive, metavar="N", help="of a log: how many make one instance"
    )
    parser.add_argument("--duration", type=positive, metavar="SECONDS",
                        help="of a .trace: this instead of every duration in the file")  # fmt: skip
    parser.add_argument(
        "--serial",
        action="store_true",
        default=None,
        help="schedule a .trace's best effort instance by instance (section 8.3)",
    )
    parser.add_argument(
        "--moldable", choices=("amdahl", "downey"),
        help="of a log: each job as a reservation with several options, by this model of how jobs scale",
    )  # fmt: skip


def convert(arguments: argparse.Namespace) -> None:
    if not arguments.target.endswith(OUTPUTS):
        raise InputError(f"{arguments.target}: name what to write {', '.join(OUTPUTS)}")
    check_writable(arguments.target)
    from outrider.sim.workload.formats.convert import Form, form_of, read_trace, write_trace
    from outrider.sim.workload.formats.swf import read_log, write_log
    from outrider.sim.workload.trace import WorkloadError

    try:
        is_log = form_of(arguments.source) is Form.SWF
        stays_log = is_log and arguments.target.removesuffix(".gz").endswith(".swf")
        if arguments.moldable and (not is_log or stays_log or arguments.processors_per_instance):
            raise InputError("--moldable is from a log in SWF to .jsonl, each processor an instance")
        if stays_log and not arguments.processors_per_instance:
            # As a log it keeps its header, which says whom to acknowledge, and all its fields.
            log = read_log(arguments.source, limit=arguments.limit)
            count = len(log)
        elif arguments.moldable:
            trace = _moldable(arguments)
            count = len(trace.submissions)
        else:
            trace = read_trace(
                arguments.source,
                limit=arguments.limit,
                processors_per_instance=arguments.processors_per_instance,
                duration_s=arguments.duration,
                is_serial=bool(arguments.serial),
            )
            count = len(trace.submissions)
    except WorkloadError as error:
        raise InputError(str(error)) from error
    try:
        if stays_log and not arguments.processors_per_instance:
            write_log(arguments.target, log)
        else:
            write_trace(arguments.target, trace)
    except WorkloadError as error:
        raise OutputError(str(error)) from error
    say(f"{count} submissions written to {arguments.target}")
    if is_log and not stays_log:
        say("the log's conditions of use still hold: pass on its header lines with copies")


def _moldable(arguments: argparse.Namespace) -> Trace:
    from outrider.sim.workload.formats.swf import read_log
    from outrider.sim.workload.options.moldable import Model, moldable_trace

    log = read_log(arguments.source, limit=arguments.limit)
    return moldable_trace(log, Model(arguments.moldable), name=f"{arguments.source}, {arguments.moldable}")
