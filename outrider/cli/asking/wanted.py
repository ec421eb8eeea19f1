"""What a user wants, from a workspace's file or from options alone, as the service takes it.

The file's text is sent as it is and read there; so is each option. Nothing is understood twice.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from outrider.cli.arguments import Parser
from outrider.cli.asking.display.words import When
from outrider.cli.errors import InputError
from outrider_client.transport import Json
from outrider_client.wishes import (
    BY_OPTIONS,
    OPTIONS,
    Image,
    Wish,
    WorkspaceText,
    read_text,
    sent_file,
    shown_file,
)

SOON_S = 600
NOTHING = "none"
"""What is typed to take a key out of what the file says."""
_OF_IMAGE = ("digest", "size", "private", "name")


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedWorkspace:
    """A workspace's text, where it came from, and what replaces keys of its deployment.

    `file` is None if the text was made of options.
    """

    text: str
    file: str | None
    options: dict[str, str | None]

    def wish(self, zone: str, account: str) -> Wish:
        file = BY_OPTIONS if self.file is None else sent_file(self.file)
        return Wish(WorkspaceText(self.text, file), self.options, zone, account)


def add_deployment_options(parser: Parser, *, are_all: bool = True) -> None:
    """Keys of a deployment. With a file they replace what it says; `none` takes a key out."""
    group = parser.add_argument_group(
        "what is wanted", "Each replaces what the file says; none takes it out."
    )
    group.add_argument("-N", "--nodes", metavar="N", help="how many nodes")
    group.add_argument("--start", metavar="TIME", help="when it starts: 14:00, now+2hours, 2027-01-31T14:00")
    group.add_argument("-t", "--duration", metavar="TIME", help="for how long: 2h30m, or 90 for minutes")
    _add_size_options(group, are_all=are_all)
    if not are_all:
        return
    group.add_argument(
        "--finish-by", metavar="TIME", help="when it has ended at the latest; it may start at any time"
    )
    group.add_argument(
        "--least-piece",
        metavar="TIME",
        help="with --finish-by: it may be split into pieces, each with at least so much of the duration",
    )
    group.add_argument(
        "--option",
        action="append",
        metavar="WAY",
        help="one way to carry it out, of several: nodes=2,time=60m; also cpus=, memory=, image=",
    )
    group.add_argument(
        "--preemptible",
        action="store_const",
        const="true",
        help="it may make way for others, by the site's policy",
    )
    _add_window_options(parser)


def _add_size_options(group: argparse._ArgumentGroup, *, are_all: bool) -> None:
    """What an instance needs."""
    if are_all:
        group.add_argument("--instances-per-node", metavar="N", help="how many instances run on each node")
    group.add_argument("--cpus", metavar="N", help="processors of each instance")
    group.add_argument("--memory", metavar="SIZE", help="memory of each instance: 8GiB")
    group.add_argument("--gpus", metavar="N", help="graphics processors of each instance")


def add_repetition_options(parser: Parser) -> None:
    group = parser.add_argument_group("again and again")
    group.add_argument("--every", metavar="TIME", help="daily, weekdays, weekly, or a duration: 12h")
    group.add_argument(
        "--until",
        metavar="DATE",
        help="the last day on which it starts: 2027-02-01; times are the user's zone's",
    )
    choice = group.add_mutually_exclusive_group()
    choice.add_argument(
        "--all-or-nothing",
        action="store_false",
        dest="best_fit",
        help="reserve all occurrences or none (the default)",
    )
    choice.add_argument(
        "--best-fit", action="store_true", dest="best_fit", help="reserve the occurrences that can be kept"
    )
    parser.set_defaults(best_fit=False)


def beyond(arguments: argparse.Namespace) -> dict[str, Json]:
    """What is sent of options that are no keys of a deployment: nothing of what is not given."""
    given: dict[str, Json] = {
        key: text for key in ("every", "until", "max_price") if (text := getattr(arguments, key)) is not None
    }
    return {**given, "best_fit": True} if arguments.best_fit else given


def _add_window_options(parser: Parser) -> None:
    """Keys of what waits for an event."""
    group = parser.add_argument_group(
        "an open reservation", "Nodes and image are ready for an event; outrider trigger is always one."
    )
    group.add_argument("--open-from", metavar="TIME", help="the earliest time of its event")
    group.add_argument("--open-until", metavar="TIME", help="the latest time of its event")
    group.add_argument("--ready-within", metavar="TIME", help="how soon after it the job may start: 60s")
    group.add_argument("--when-file", metavar="PATH", help="its event: this file is there, on the head node")
    group.add_argument("--when-job", metavar="JOB", help="its event: this job of yours has ended")
    group.add_argument("--when-time", metavar="TIME", help="its event: it is this time")
    group.add_argument(
        "--when-call", action="store_const", const="true", help="its event: a call that is signed"
    )
    group.add_argument("--when-source", metavar="NAME[:TEXT]", help="its event: a source of the site's own")
    group.add_argument(
        "--until-event", metavar="EVENT", help="what ends it: file:PATH, job:JOB, time:TIME, call, source:…"
    )


def add_workspace_options(parser: Parser) -> None:
    parser.add_argument("file", metavar="WORKSPACE", nargs="?", help="the workspace's file; - for stdin")
    group = parser.add_argument_group("without a file")
    group.add_argument(
        "--image", metavar="URI", help="where the image is: a URI, a path, or a name in the catalogue"
    )
    group.add_argument("--digest", metavar="DIGEST", help="what its bytes must hash to: sha256:…")
    group.add_argument("--size", metavar="SIZE", help="its size: 600MB, 2GiB")
    group.add_argument(
        "--private", action="store_true", help="only those who may read it at its source may use it"
    )
    group.add_argument("--name", metavar="TEXT", help="what the workspace is called (the image's name)")


def wanted(arguments: argparse.Namespace) -> WantedWorkspace:
    """The workspace that a command line speaks of."""
    given = [name for name in _OF_IMAGE if getattr(arguments, name)]
    if arguments.file is not None:
        if arguments.image is not None or given:
            culprit = "image" if arguments.image is not None else given[0]
            raise InputError(
                f"--{culprit} and {arguments.file}: the file names the image; give one of the two"
            )
        return WantedWorkspace(
            text=read_text(arguments.file), file=shown_file(arguments.file), options=options_of(arguments)
        )
    if arguments.image is None:
        # Where each of its options has an image, it needs no other.
        arguments.image = _image_of_options(getattr(arguments, "option", None) or [])
    if arguments.image is None:
        raise InputError(
            f"name a workspace's file, or an image with --image (see outrider {arguments.verb} --help)"
        )
    return WantedWorkspace(text=_image(arguments).document(), file=None, options=options_of(arguments))


def options_of(arguments: argparse.Namespace) -> dict[str, str | None]:
    given = {key: getattr(arguments, key, None) for key in OPTIONS}
    if ways := getattr(arguments, "option", None):
        given["options"] = ";".join(ways)
    return {key: None if text.lower() == NOTHING else text for key, text in given.items() if text is not None}


def _image_of_options(ways: Sequence[str]) -> str | None:
    """The image of the first of these, if all have one."""
    found = [
        [part.removeprefix("image=") for part in way.replace(",", " ").split() if part.startswith("image=")]
        for way in ways
    ]
    return found[0][0] if found and all(found) else None


def _image(arguments: argparse.Namespace) -> Image:
    return Image(
        arguments.image, arguments.digest or "", arguments.size or "", arguments.private, arguments.name or ""
    )


def typable_start(earliest_s: int, when: When) -> str:
    """The start to ask for instead. One that is soon counts from when it is typed."""
    left_s = earliest_s - when.now_s
    return when.exact(earliest_s) if left_s > SOON_S else f"now+{max(1, left_s)}s"


def words_with_start(words: Sequence[str], start: str, *, drops_finish: bool) -> str:
    """The command line that was typed, with this start in it, as a shell takes it."""
    kept: list[str] = []
    skips = False
    for word in words:
        if skips:
            skips = False
        elif word in ("--start", "--finish-by"):
            skips = True
        elif not word.startswith(("--start=", "--finish-by=")):
            kept.append(word)
    more = ["--finish-by", NOTHING] if drops_finish else []
    return shlex.join(["outrider", *kept, "--start", start, *more])


def without_plan(words: Sequence[str]) -> str:
    """The command line that does what was planned."""
    verb, *others = words
    kept = [word for word in others if word != "--plan"]
    return shlex.join(["outrider", "reserve" if verb == "plan" else verb, *kept])
