"""`outrider check`: the faults of workspaces and of policies, as a compiler lists them."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from outrider.cli.arguments import Subparsers, add_command
from outrider.cli.errors import InputError, MissingPartError
from outrider.cli.output import print_json

if TYPE_CHECKING:
    from outrider.metadata.validation import Circumstances
    from outrider.metadata.workspace import WorkspaceFile

_EPILOG = """A file without faults is one line that says what was understood. A fault is a line too:
FILE:LINE:COLUMN: KEY: what is wrong, and what would be right. With any fault the exit code is 1.
Times are understood as of now, in the zone that TZ names, or else the machine's.

examples:
  outrider check workspace.yaml
  outrider check --policies /etc/outrider/policies.yaml
  outrider check --json *.yaml
  outrider check --schema > workspace.schema.json
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Fault:
    line: int
    column: int
    key: str
    message: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Checked:
    """What was found out about a file."""

    file: str
    is_valid: bool
    understood: str = ""
    notes: tuple[str, ...] = ()
    faults: tuple[_Fault, ...] = ()


def add(commands: Subparsers) -> None:
    parser = add_command(commands, "check", check, "check workspaces or policies for faults", _EPILOG)
    parser.add_argument("files", metavar="FILE", nargs="*", help="what to check")
    parser.add_argument("--policies", action="store_true", help="the files are policies, not workspaces")
    forms = parser.add_mutually_exclusive_group()
    forms.add_argument("--json", action="store_true", help="print what was found as JSON")
    forms.add_argument("--schema", action="store_true", help="print the JSON Schema of such files instead")


def check(arguments: argparse.Namespace) -> None:
    if bool(arguments.files) == arguments.schema:
        raise InputError("name files to check, or give --schema alone (see outrider check --help)")
    try:
        import pydantic  # noqa: F401
        import yaml  # noqa: F401
    except ImportError as error:
        raise MissingPartError(
            f"outrider check needs {error.name}: in a clone of Outrider, pip install '.[service]'"
        ) from error
    if arguments.schema:
        _print_schema(of_policies=arguments.policies)
        return
    circumstances = _circumstances()
    results = [_checked(file, circumstances, of_policies=arguments.policies) for file in arguments.files]
    if arguments.json:
        print_json({"files": results})
    else:
        _print_lines(results)
    faulty = [each for each in results if not each.is_valid]
    if faulty:
        count = sum(len(each.faults) for each in faulty)
        raise InputError(f"faults found: {count} in {len(faulty)} of {len(results)} files")


def _print_schema(*, of_policies: bool) -> None:
    from outrider.metadata.policies import Policies
    from outrider.metadata.validation import json_schema
    from outrider.metadata.workspace import WorkspaceFile

    print(json.dumps(json_schema(Policies if of_policies else WorkspaceFile), indent=2))


def _circumstances() -> Circumstances:
    """Where the program meets the clock and the environment."""
    from outrider.metadata.errors import TextError
    from outrider.metadata.notation.zones import user_zone
    from outrider.metadata.validation import Circumstances

    try:
        return Circumstances(now_s=int(datetime.now(UTC).timestamp()), zone=user_zone(os.environ))
    except TextError as error:
        raise InputError(str(error)) from error


def _checked(file: str, circumstances: Circumstances, *, of_policies: bool) -> _Checked:
    from outrider.metadata.errors import FaultyFileError, key_path
    from outrider.metadata.policies import read_policies
    from outrider.metadata.workspace import read_workspace

    notes: tuple[str, ...] = ()
    try:
        if of_policies:
            understood = f"policies with {len(read_policies(file).rules)} rules"
        else:
            workspace = read_workspace(file, circumstances)
            understood, notes = _summary(workspace, circumstances), workspace.unused_keys
    except FaultyFileError as error:
        faults = tuple(
            _Fault(
                line=each.place.line, column=each.place.column, key=key_path(each.path), message=each.message
            )
            for each in error.problems
        )
        return _Checked(file=file, is_valid=False, faults=faults)
    except OSError as error:
        message = f"cannot be read ({error.strerror}): check its name, and who may read it"
        return _Checked(
            file=file, is_valid=False, faults=(_Fault(line=1, column=1, key="", message=message),)
        )
    return _Checked(file=file, is_valid=True, understood=understood, notes=notes)


def _summary(workspace: WorkspaceFile, circumstances: Circumstances) -> str:
    """What was understood, so that 90 minutes meant as seconds, or a wrong zone, is seen."""
    from outrider.metadata.notation.durations import format_duration
    from outrider.metadata.notation.times import format_instant

    deployment = workspace.deployment
    named = f"workspace {workspace.metadata.name}"
    if deployment is None:
        return f"{named}, metadata alone"
    words = [f"{named}, {deployment.nodes} nodes for {format_duration(deployment.duration_s)}"]
    if deployment.start_s is not None:
        words.append(f"from {format_instant(deployment.start_s, zone=circumstances.zone)} on")
    if deployment.finish_by_s is not None:
        words.append(f"to end by {format_instant(deployment.finish_by_s, zone=circumstances.zone)}")
    return " ".join(words) if len(words) > 1 else f"{words[0]}, best effort"


def _print_lines(results: Sequence[_Checked]) -> None:
    for result in results:
        if result.is_valid:
            print(f"{result.file}: {result.understood}")
        for note in result.notes:
            print(f"{result.file}: note: {note}")
        for fault in result.faults:
            key = f"{fault.key}: " if fault.key else ""
            print(f"{result.file}:{fault.line}:{fault.column}: {key}{fault.message}")
