"""The verbs on the node: init, check, stats, metrics, ping, serve, config, version, completion."""

from __future__ import annotations

from cachemgr import __version__
from cachemgr.base.errors import PoolDamaged
from cachemgr.base.sizes import in_words
from cachemgr.base.tables import facts, table
from cachemgr.base.times import span_in_words, time_in_words
from cachemgr.cli import arguments as args
from cachemgr.cli.answers import read
from cachemgr.pool.policies import POLICIES

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from cachemgr.cli.answers import Result
    from cachemgr.cli.arguments import VerbParsers
    from cachemgr.cli.session import VerbSession

SHELLS = ("bash", "zsh", "fish")


def add(commands: VerbParsers) -> None:
    init = commands.add(
        "init",
        _init,
        "make the pool, or change its limit or policy",
        "init --limit 50GiB",
        "init --limit 2TB --policy calendar --user outrider",
    )
    init.add_argument(
        "--limit",
        type=args.size,
        metavar="SIZE",
        help="what images, transfers and full copies may take together",
    )
    init.add_argument("--policy", choices=sorted(POLICIES), help="what is evicted first (default: lfu)")
    init.add_argument(
        "--user",
        metavar="USER",
        help="the user who will own the pool (default: the configuration's, or the caller)",
    )
    check = commands.add("check", _check, "find what is wrong in the pool", "check", "check --fix --digests")
    check.add_argument("--fix", action="store_true", help="repair what can be repaired without loss")
    check.add_argument("--digests", action="store_true", help="read every image and compare its digest")
    args.add_no_header(check)
    commands.add("stats", _stats, "count what is in the pool and what was done", "stats", "stats --json")
    commands.add("metrics", _metrics, "print the daemon's metrics for Prometheus", "metrics")
    commands.add("ping", _ping, "say whether the daemon answers", "ping")
    commands.add(
        "serve",
        _serve,
        "run the daemon in the foreground",
        "serve",
        "serve --config /etc/outrider/cachemgr.conf",
    )
    config = commands.add("config", _config, "print the configuration in force", "config", "config --example")
    config.add_argument(
        "--example", action="store_true", help="print every option with its default and meaning instead"
    )
    commands.add("version", _version, "print the version", "version")
    completion = commands.add(
        "completion",
        _completion,
        "print a script that completes command lines",
        "completion bash > /etc/bash_completion.d/cachemgr",
    )
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


def _init(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.cli.verbs.making import init

    init(session, limit_bytes=arguments.limit, policy=arguments.policy, user=arguments.user)


def _check(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import Checked, CheckRequest

    doing = "reading every image" if arguments.digests else "checking the pool"
    found = session.ask("check", CheckRequest(arguments.fix, arguments.digests), doing)
    findings = read(Checked, found).findings
    rows = [(_state(each), each["path"], each["what"]) for each in findings]
    text = (
        table(("STATE", "PATH", "WHAT"), rows, has_header=not arguments.noheader)
        if rows
        else "nothing is wrong"
    )
    session.show(found, text)
    left = [each for each in findings if _state(each) == "found"]
    if left:
        raise PoolDamaged(_left(left, is_fixing=arguments.fix))


def _state(finding: Result) -> str:
    return "mended" if finding["is_fixed"] else "stale" if finding["is_ordinary"] else "found"


def _left(left: Sequence[Result], *, is_fixing: bool) -> str:
    what = "1 finding is" if len(left) == 1 else f"{len(left)} findings are"
    if not is_fixing:
        return f"{what} not mended: run `cachemgr check --fix`"
    remedies = sorted({str(each["remedy"]) for each in left})
    return f"{what} left: {'; '.join(remedies)}"


def _stats(session: VerbSession, arguments: argparse.Namespace) -> None:
    found = session.ask("stats")
    session.show(
        found, facts([(_words(name), _shown(name, value)) for name, value in found.items() if value])
    )


def _words(name: str) -> str:
    """A metric's name for people: `outrider_requests_total{verb="ls",result="ok"}` is `requests, ls, ok`."""
    bare, _, labels = name.partition("{")
    values = labels.split('"')[1::2]
    for part in ("outrider_", "_total", "_bytes", "_timestamp_seconds"):
        bare = bare.replace(part, "")
    return ", ".join([bare.replace("_", " "), *values])


def _shown(name: str, value: object) -> object:
    bare = name.partition("{")[0]
    if not isinstance(value, (int, float)):
        return value
    if "_bytes" in bare:
        return in_words(int(value))
    if bare.endswith("_timestamp_seconds"):
        return time_in_words(int(value))
    return int(value) if value == int(value) else value


def _metrics(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import MetricsText

    found = session.ask("metrics")
    session.show(found, read(MetricsText, found).text.rstrip("\n"))


def _ping(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.protocol import PingAnswer

    found = session.ask("ping")
    told = read(PingAnswer, found)
    uptime = span_in_words(told.uptime_s or 0)
    session.show(found, f"cachemgr {told.version} (pid {told.pid}) has served {told.pool} for {uptime}")


def _serve(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.cli.verbs.serving import serve

    serve(session, arguments)


def _config(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr import config

    if arguments.example:
        text = config.example()
        session.show({"text": text}, text.rstrip("\n"))
        return
    found = session.config
    result: dict[str, object] = {option.field: getattr(found, option.field) for option in config.OPTIONS}
    session.show(result, config.shown(found).rstrip("\n"))


def _version(session: VerbSession, arguments: argparse.Namespace) -> None:
    session.show({"version": __version__}, f"cachemgr {__version__}")


def _completion(session: VerbSession, arguments: argparse.Namespace) -> None:
    from cachemgr.cli.completion import script

    text = script(arguments.shell, arguments.parser)
    session.show({"text": text}, text.rstrip("\n"))
