"""The node's configuration: one table of options, read from a file and, for the daemon, the environment.

An INI file, because Python 3.9 reads no other form that people like to write. What is not
in the table is an error that names what was probably meant: an option with a slip of the
pen must not silently keep its default.
"""

from __future__ import annotations

import configparser
import difflib
from dataclasses import dataclass

from cachemgr.base.errors import BadRequest
from cachemgr.base.sizes import read_rate, read_size
from cachemgr.fetch.registry.references import read_hosts
from cachemgr.fetch.sources.kinds import KINDS
from cachemgr.network.channel import NODE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Union

    Value = Union[str, int, tuple[str, ...]]

PATH = "/etc/outrider/cachemgr.conf"
SECTION = "cachemgr"
PREFIX = "OUTRIDER_CACHEMGR_"
MOST_BYTES = 1 << 20
LEVELS = ("debug", "info", "warning", "error")
SPANS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
SCHEMES = tuple(KINDS)
METHODS = ("reflink", "qcow2", "overlay", "readonly", "shared", "copy")


def _path(text: str) -> str:
    if text and not text.startswith("/"):
        raise BadRequest(f"{text!r} is not an absolute path")
    return text


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise BadRequest(f"{text!r} is not a whole number")
    return int(text)


def _span(text: str) -> int:
    """Seconds from `90`, `90s`, `10m`, `8h` or `30d`."""
    unit = SPANS_S.get(text[-1:].lower())
    count = text if unit is None else text[:-1].strip()
    if not (count.isascii() and count.isdigit()):
        raise BadRequest(f"{text!r} is not a length of time: write 90s, 10m, 8h or 30d")
    return int(count) * (unit or 1)


def _lasting(text: str) -> int:
    """A span in which something can happen: nothing is done without a pause, or in no time."""
    span_s = _span(text)
    if span_s == 0:
        raise BadRequest(f"{text!r} is too short: write 1s or more")
    return span_s


def _some(text: str) -> int:
    count = _count(text)
    if count == 0:
        raise BadRequest("0 is too few: write 1 or more")
    return count


def _rate(text: str) -> int:
    return 0 if text in ("", "0") else read_rate(text)


def _share(text: str) -> str:
    """A size, or a percentage of something that is known later: see `share_bytes`."""
    if not text.endswith("%"):
        return str(read_size(text))
    percent = text[:-1].strip()
    if not (percent.isascii() and percent.isdigit()) or not 1 <= int(percent) <= 100:
        raise BadRequest(f"{text!r} is not a part of a pool: write 1% to 100%, or a size")
    return f"{int(percent)}%"


def share_bytes(share: str, whole_bytes: int) -> int:
    """The bytes of a share of a whole; 0: no limit."""
    if share.endswith("%"):
        return max(1, whole_bytes * int(share[:-1]) // 100)
    return int(share)


def _truth(text: str) -> bool:
    if text not in ("yes", "no"):
        raise BadRequest(f"{text!r} is neither yes nor no")
    return text == "yes"


def _level(text: str) -> str:
    if text not in LEVELS:
        raise BadRequest(f"{text!r} is not a level: choose one of {', '.join(LEVELS)}")
    return text


def _address(text: str) -> str:
    """`host:port` or `[v6]:port`; empty for none."""
    if text:
        host, colon, port = text.rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65_535:
            raise BadRequest(f"{text!r} is not an address: write 0.0.0.0:7010 or [::]:7010")
    return text


def _loopback(text: str) -> str:
    if not _address(text).startswith(("127.", "[::1]:")) and text:
        raise BadRequest(f"{text!r} could be reached by other machines: write 127.0.0.1:7012 or [::1]:7012")
    return text


def _node(text: str) -> str:
    if text and not NODE.fullmatch(text):
        raise BadRequest(f"{text!r} is not the name of a node: use letters, digits, . _ -")
    return text


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def _methods(text: str) -> tuple[str, ...]:
    found = _words(text)
    for word in found:
        if word not in METHODS:
            raise BadRequest(f"there is no method {word!r}: choose from {', '.join(METHODS)}")
    return found


def _schemes(text: str) -> tuple[str, ...]:
    found = _words(text)
    for word in found:
        if word not in SCHEMES:
            raise BadRequest(f"{word!r} is not a kind of source: choose from {', '.join(SCHEMES)}")
    return found


@dataclass(frozen=True)
class Option:
    """One line of the table: how its text is read, what holds if nothing is said, what it means.

    The text may have a unit of its own (`10m`, `100Mbit`); the value is in the unit that
    ends the name of its field.
    """

    name: str
    read: Callable[[str], Value]
    default: str
    meaning: str
    unit: str = ""

    @property
    def field(self) -> str:
        return self.name + self.unit


OPTIONS = (
    Option("pool", _path, "/var/cache/outrider", "the folder of the pool; `cachemgr init` makes it"),
    Option("socket", _path, "/run/outrider/cachemgr.sock", "where the daemon listens"),
    Option("user", str, "", "the user whom a daemon started as root becomes; empty: it stays what it is"),
    Option("transfers", _some, "4", "transfers at once; one with an earlier deadline goes first"),
    Option("transfers_waiting", _count, "256", "transfers that may wait; more are refused"),
    Option(
        "transfers_kept",
        _count,
        "64",
        "how many of the places of both are for root and the pool's user alone",
    ),
    Option(
        "rate",
        _rate,
        "0",
        "bytes a second that all transfers together may bring in; 0: no limit",
        "_bytes_per_s",
    ),
    Option(
        "transfer_rate",
        _rate,
        "0",
        "bytes a second of each transfer that says nothing else; 0: no limit",
        "_bytes_per_s",
    ),
    Option(
        "least_rate",
        _rate,
        "10KB",
        "bytes a second that a source has to send on average in each minute that it is waited for, or it is "
        "given up; 0: it may send as little as it likes",
        "_bytes_per_s",
    ),
    Option(
        "resolve_timeout", _lasting, "30s", "how long a source may take to say how large an image is", "_s"
    ),
    Option("relay_listen", _address, "", "address at which other nodes may fetch images; empty: none"),
    Option(
        "relay_key",
        _path,
        "",
        "file with the site's keys, one a line: they sign the tickets of relays and jobs, and admit to "
        "control_listen; the first signs",
    ),
    Option("relay_public", _truth, "no", "whether public images are sent without a ticket"),
    Option("relay_rate", _rate, "0", "bytes a second that the relay sends out; 0: no limit", "_bytes_per_s"),
    Option("mirror_listen", _loopback, "", "loopback address at which container runtimes fetch; empty: none"),
    Option(
        "control_listen",
        _address,
        "",
        "address at which anyone who has the site's key controls this node; empty: nobody does",
    ),
    Option(
        "node",
        _node,
        "",
        "this node's name in the batch system; a caller who means another is refused; empty: none is",
    ),
    Option(
        "user_schemes",
        _schemes,
        " ".join(scheme for scheme, kind in KINDS.items() if kind.is_for_users),
        "kinds of sources from which ordinary users may add",
    ),
    Option("user_images", _count, "100", "images that one user may have in the pool; 0: no limit"),
    Option(
        "user_bytes",
        _share,
        "25%",
        "bytes, or part of the pool, that one user may hold by images on their way, pins and copies; "
        "0: no limit",
    ),
    Option("users_bytes", _share, "50%", "the same for all ordinary users together; 0: no limit"),
    Option(
        "user_stall",
        _lasting,
        "5m",
        "how long bytes stay reserved for a user's image of which almost nothing arrives",
        "_s",
    ),
    Option("user_instances", _count, "64", "instances that one user may have; 0: no limit"),
    Option("user_pins", _count, "256", "pins that one user may have on all images together; 0: no limit"),
    Option("user_image_pins", _count, "64", "pins that one user may have on one image; 0: no limit"),
    Option(
        "user_lease", _lasting, "31d", "for how long a user may keep something without asking again", "_s"
    ),
    Option(
        "user_names",
        _count,
        "256",
        "addresses of one user that stand for images; the oldest make way for new ones; 0: no limit",
    ),
    Option("user_transfers", _some, "2", "transfers of one user that run at once"),
    Option("user_transfers_waiting", _some, "32", "transfers that one user may have running and waiting"),
    Option("user_turn", _lasting, "30s", "how long a user's transfer runs while those of others wait", "_s"),
    Option(
        "user_rate",
        _rate,
        "0",
        "bytes a second that transfers which only users want may bring in together; 0: no limit",
        "_bytes_per_s",
    ),
    Option(
        "user_transfer_time",
        _lasting,
        "1d",
        "a transfer that only ordinary users want is given up after this time",
        "_s",
    ),
    Option("user_files", _some, "32", "open files that one user's transfers may hold"),
    Option(
        "user_log",
        read_size,
        "64KiB",
        "what one user, or a stranger's address, may cause to be logged in a minute; 0: no limit",
        "_bytes_per_minute",
    ),
    Option("connections", _some, "192", "connections to the socket"),
    Option("connections_kept", _count, "64", "how many of these are for root and the pool's user alone"),
    Option("user_connections", _some, "24", "connections that one user may have"),
    Option("relay_connections", _some, "64", "connections to the relay with a ticket"),
    Option("host_relay_connections", _some, "16", "how many of these may come from one address"),
    Option(
        "strangers",
        _some,
        "64",
        "connections to the relay that have shown no ticket yet, and to control_listen without a proof",
    ),
    Option(
        "stranger_timeout",
        _lasting,
        "5s",
        "how long a connection may take, in all, to show its ticket or proof",
        "_s",
    ),
    Option(
        "methods", _methods, "", "ways of making instances, best first; empty: what the file system allows"
    ),
    Option("mount_squashfs", _truth, "yes", "whether root mounts squashfs images, which users may have made"),
    Option(
        "mounts_by_root",
        _truth,
        "no",
        "whether root's hooks carry out the mounts of a daemon that is not root (`cachemgr mount`)",
    ),
    Option("alias_lifetime", _span, "1d", "how long an address is taken to mean the same image", "_s"),
    Option("sweep_interval", _lasting, "60s", "how often the daemon looks for what has expired", "_s"),
    Option(
        "clock_step",
        _lasting,
        "10s",
        "a clock that is set by more than this is not trusted at first: nothing expires meanwhile",
        "_s",
    ),
    Option("clock_doubt", _lasting, "10m", "how long a clock that was set is not trusted", "_s"),
    Option(
        "watchdog", _span, "30s", "systemd restarts a daemon after this long without a sign; 0: never", "_s"
    ),
    Option("log_level", _level, "info", "what is written to the log: debug, info, warning or error"),
    Option(
        "ssh_options",
        _words,
        "",
        "options of ssh for ssh and sftp addresses, such as -i/etc/outrider/id_ed25519",
    ),
    Option(
        "rsync_scratch",
        _path,
        "",
        "folder for rsync, which writes to files of its own, each as large as its image; empty: no rsync",
    ),
    Option("netrc", _path, "", "file with the site's passwords for its own image servers"),
    Option("plain_http", read_hosts, "", "registries without TLS, `HOST` or `HOST:PORT`"),
    Option("ca_file", _path, "", "certificates by which https servers are known; empty: the system's"),
)
TABLE = {option.name: option for option in OPTIONS}


@dataclass(frozen=True)
class NodeConfig:
    """What holds on this node: the table's options, each under its name with its unit."""

    pool: str
    socket: str
    user: str
    transfers: int
    transfers_waiting: int
    transfers_kept: int
    rate_bytes_per_s: int
    transfer_rate_bytes_per_s: int
    least_rate_bytes_per_s: int
    resolve_timeout_s: int
    relay_listen: str
    relay_key: str
    relay_public: bool
    relay_rate_bytes_per_s: int
    mirror_listen: str
    control_listen: str
    node: str
    user_schemes: tuple[str, ...]
    user_images: int
    user_bytes: str
    users_bytes: str
    user_stall_s: int
    user_instances: int
    user_pins: int
    user_image_pins: int
    user_lease_s: int
    user_names: int
    user_transfers: int
    user_transfers_waiting: int
    user_turn_s: int
    user_rate_bytes_per_s: int
    user_transfer_time_s: int
    user_files: int
    user_log_bytes_per_minute: int
    connections: int
    connections_kept: int
    user_connections: int
    relay_connections: int
    host_relay_connections: int
    strangers: int
    stranger_timeout_s: int
    methods: tuple[str, ...]
    mount_squashfs: bool
    mounts_by_root: bool
    alias_lifetime_s: int
    sweep_interval_s: int
    clock_step_s: int
    clock_doubt_s: int
    watchdog_s: int
    log_level: str
    ssh_options: tuple[str, ...]
    rsync_scratch: str
    netrc: str
    plain_http: tuple[str, ...]
    ca_file: str


def config(texts: Mapping[str, str] | None = None) -> NodeConfig:
    """The configuration with these texts in place of the defaults."""
    given = dict(texts or {})
    for name in given:
        if name not in TABLE:
            raise BadRequest(f"there is no option {name!r}{_suggestion(name)}")
    values = {option.field: _value(option, given.get(option.name, option.default)) for option in OPTIONS}
    return NodeConfig(**values)  # type: ignore[arg-type]


def read_texts(path: str, *, is_required: bool) -> dict[str, str]:
    """What a file says, by option."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_BYTES)
    except FileNotFoundError as error:
        if is_required:
            raise BadRequest(f"the configuration {path} does not exist") from error
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"the configuration {path} cannot be read: {error}") from error
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#", ";"))
    try:
        parser.read_string(text, source=path)
    except configparser.Error as error:
        raise BadRequest(
            f"the configuration {path} is not an INI file: {' '.join(str(error).split())}"
        ) from error
    strangers = [name for name in parser.sections() if name != SECTION]
    if strangers or parser.defaults():
        raise BadRequest(
            f"{path} has a section [{(strangers or ['DEFAULT'])[0]}]: all options are in [{SECTION}]"
        )
    found = dict(parser.items(SECTION)) if parser.has_section(SECTION) else {}
    for name in found:
        if name not in TABLE:
            raise BadRequest(f"{path} has an option {name!r} that does not exist{_suggestion(name)}")
    return found


def environment_texts(environment: Mapping[str, str]) -> dict[str, str]:
    """What the daemon's own environment says, by option. Hooks and the client read no environment."""
    found = {}
    for variable in sorted(environment):
        if variable.startswith(PREFIX):
            name = variable[len(PREFIX) :].lower()
            if name not in TABLE:
                raise BadRequest(f"the variable {variable} names no option{_suggestion(name)}")
            found[name] = environment[variable]
    return found


def load(path: str | None, environment: Mapping[str, str] | None = None) -> NodeConfig:
    """The file (or the usual one, if it is there), then the environment if that counts."""
    texts = read_texts(path or PATH, is_required=path is not None)
    texts.update(environment_texts(environment or {}))
    return config(texts)


def shown(found: NodeConfig) -> str:
    """The configuration as a file that says the same."""
    lines = [f"[{SECTION}]"]
    for option in OPTIONS:
        value = getattr(found, option.field)
        lines.append(f"{option.name} = {_text(value)}".rstrip())
    return "\n".join(lines) + "\n"


def example() -> str:
    """Every option with its default, commented out: the file that is installed."""
    lines = ["# The image pool of this node. Every option is here with its default.", f"[{SECTION}]"]
    for option in OPTIONS:
        lines += [f"# {option.meaning}", f"# {option.name} = {option.default}".rstrip()]
    return "\n".join(lines) + "\n"


def _value(option: Option, text: str) -> Value:
    try:
        return option.read(text.strip())
    except BadRequest as error:
        raise BadRequest(f"option {option.name}: {error}") from error


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return " ".join(value) if isinstance(value, tuple) else str(value)


def _suggestion(name: str) -> str:
    near = difflib.get_close_matches(name, TABLE, n=1)
    return f": did you mean {near[0]!r}?" if near else f": the options are {', '.join(TABLE)}"
