"""What prologs and epilogs run: `python3 -I -S hook.py prepare|claim|release|where|ping OPTIONS`.

    prepare --owner O --image NAME --until EPOCH [--uid N] [--label L] [--method M]
            [--read-only | --writable]
    claim --job J (--uid N | --user U) [--task N] [--ticket T] [--reservation R] [--pinned] [--attempt N]
          [--until EPOCH] [--nodes N1,N2,…]
    release --owner O [--label L] [--nodes N1,N2,…]
    where --owner O
    ping
    each of them: [--socket PATH] [--timeout SECONDS] [--limit SECONDS] [--progress FILE] [--patient] [--json]
    prepare, claim and release, as root: [--mounter PATH]

`prepare` and `claim` print the path of the ready instance, `where` that of the caller's own; with
`--json` each verb prints the daemon's result. With `--nodes`, `claim` and `release` are carried out
there and not here, by the daemons, and nothing is printed. All may be repeated. Exit status: 0 done;
2 wrong options; 13 no daemon, or none that answers in time; otherwise that of the error which the
daemon reports (3: the image is not here).

`--mounter` is the path of cachemgr.pyz. Where the daemon is not root, instances may need mounts,
which that file carries out and undoes; without it, an instance that needs any is an error (10).

While bytes are copied the daemon says how far it is, and each such word is an answer in time: `--timeout`
and `--limit`, after which the process ends by SIGALRM whatever it waits for, begin anew. With `--progress`
the word is left in that file, if it is there.

With `--patient`, as long as no daemon answers it is asked again until the seconds are over: one that is
restarted is back in a moment.

It imports three modules written in C, those below `socket`, `json` and `signal`: together they cost
less than a millisecond, those above them ten. Nothing comes from the environment.
"""

from __future__ import annotations

import _json
import _signal  # type: ignore[import-not-found]
import _socket
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SOCKET = "/run/outrider/cachemgr.sock"
CONNECT_S = 2
PAUSE_S = 0.2
ANSWER_S = 20
MOST_ANSWER_BYTES = 1 << 20
WRONG_USE, UNSUITABLE, NO_DAEMON = 2, 10, 13
# For each verb: its name on the socket, its options, those without which it makes no sense.
VERBS = {
    "prepare": (
        "instance",
        "owner image until uid label method read-only writable mounter",
        "owner image until",
    ),
    "claim": ("claim", "job task uid user ticket reservation pinned attempt until nodes mounter", "job uid"),
    "release": ("release", "owner label nodes mounter", "owner"),
    "where": ("instances", "owner", "owner"),
    "ping": ("ping", "", ""),
}
COMMON = "socket timeout limit progress patient json"
LOCAL = ("mounter", "socket", "timeout", "limit", "progress", "patient", "json", "user")
FLAGS = ("json", "read-only", "writable", "pinned", "patient")
WRITABLE = {"read-only": '"is_writable":false', "writable": '"is_writable":true'}
NUMBERS = ("until", "uid", "timeout", "limit", "attempt", "task")
# As many as the daemon takes at once.
MOST_NODES = 256
FIELDS = {"image": "name", "until": "until_s"}


class HookFailed(Exception):
    """An exit status and a sentence for the batch system's log."""

    def __init__(self, status: int, message: str) -> None:
        self.status = status
        self.message = message


class Scanning:
    """What the module `json` tells its scanner, which asks for nothing but these attributes."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    array_hook = None


def main(arguments: list[str]) -> int:
    try:
        verb, options = read_options(arguments)
        begin_limit(options)
        if "nodes" in options:
            ask_for_nodes(verb, options)
            return 0
        if verb == "release" and "mounter" in options:
            label = [f"--label={options['label']}"] if "label" in options else []
            mounter(options, "unmount", *label, "--", options["owner"])
        asked = ask_patiently if "patient" in options else ask
        result = asked(request_line(verb, options), options)
        if result.get("state") == "prepared":
            if "mounter" not in options:
                raise HookFailed(
                    UNSUITABLE, "this instance needs mounts: give --mounter, or let the daemon be root"
                )
            mounter(options, "mount", "--", result["instance"])
    except HookFailed as failure:
        sys.stderr.write(f"outrider: {failure.message}\n")
        return failure.status
    if "json" in options:
        sys.stdout.write(result["line"])
    elif verb == "where":
        sys.stdout.write("".join(f"{path}\n" for path in paths_of(result, options["owner"])))
    elif verb in ("prepare", "claim"):
        sys.stdout.write(f"{result['path']}\n")
    return 0


def ask_for_nodes(verb: str, options: dict[str, str]) -> None:
    """Have it done on other nodes, as many at a time as fit into one request."""
    names = options["nodes"].split(",")
    for begin in range(0, len(names), MOST_NODES):
        some = {**options, "nodes": ",".join(names[begin : begin + MOST_NODES])}
        ask(request_line(verb, some), options)


def paths_of(result: dict[str, Any], owner: str) -> list[str]:
    """Where an owner's instances are that are ready."""
    found = [each for each in result["instances"] if each["owner"] == owner and each["state"] == "ready"]
    return [each["path"] for each in found]


def read_options(arguments: list[str]) -> tuple[str, dict[str, str]]:
    """The verb and its options, by name."""
    verb = arguments[0] if arguments else ""
    if verb not in VERBS:
        raise HookFailed(WRONG_USE, f"say what to do: {', '.join(VERBS)}")
    _, known, needed = VERBS[verb]
    options: dict[str, str] = {}
    rest = arguments[1:]
    while rest:
        name = rest[0][2:] if rest[0].startswith("--") else ""
        if name not in f"{known} {COMMON}".split():
            raise HookFailed(WRONG_USE, f"{verb} has no option {rest[0]!r}: it has {known} {COMMON}")
        if name in FLAGS:
            options[name] = "yes"
            rest = rest[1:]
            continue
        if len(rest) < 2 or not rest[1]:
            raise HookFailed(WRONG_USE, f"{rest[0]} needs a value")
        if name in NUMBERS and not (rest[1].isascii() and rest[1].isdigit()):
            raise HookFailed(WRONG_USE, f"{rest[0]} needs a whole number, not {rest[1]!r}")
        options[name] = rest[1]
        rest = rest[2:]
    if "user" in options:
        options["uid"] = uid_of(options["user"])
    for name in needed.split():
        if name not in options:
            raise HookFailed(WRONG_USE, f"{verb} needs --{name}")
    return verb, options


def uid_of(user: str) -> str:
    """The number of a user on this node, by the system's own tables."""
    import pwd

    try:
        return str(pwd.getpwnam(user).pw_uid)
    except (KeyError, ValueError) as error:
        raise HookFailed(WRONG_USE, f"there is no user {user[:60]!r} on this node") from error


def request_line(verb: str, options: dict[str, str]) -> bytes:
    """The request as one line of JSON."""
    fields = ['"v":1', f'"do":"{VERBS[verb][0]}"']
    for name, value in options.items():
        if name in LOCAL or verb == "where":
            continue
        if name in FLAGS:
            fields.append(WRITABLE.get(name, f'"{name}":true'))
            continue
        if name == "nodes":
            texts = ",".join(_json.encode_basestring_ascii(each) for each in value.split(","))
            fields.append(f'"nodes":[{texts}]')
            continue
        written = str(int(value)) if name in NUMBERS else _json.encode_basestring_ascii(value)
        fields.append(f'"{FIELDS.get(name, name)}":{written}')
    return ("{" + ",".join(fields) + "}\n").encode("ascii")


def timeout_s(options: dict[str, str]) -> int:
    return int(options.get("timeout", ANSWER_S)) or ANSWER_S


def begin_limit(options: dict[str, str]) -> None:
    """End this process if it has not come further by then."""
    if "limit" in options:
        _signal.alarm(int(options["limit"]))


def note(progress: Any, options: dict[str, str]) -> None:
    """Say how far the daemon is where somebody looks, and wait on."""
    begin_limit(options)
    words = f"{progress['copied_bytes'] >> 20} of {progress['size_bytes'] >> 20} MiB are copied\n"
    if "progress" in options:
        try:
            # Not made anew: whoever took it away wants no more of this.
            file = posix.open(options["progress"], posix.O_WRONLY | posix.O_TRUNC | posix.O_NOFOLLOW)
        except OSError:
            return
        posix.write(file, words.encode("ascii"))
        posix.close(file)


def ask_patiently(line: bytes, options: dict[str, str]) -> dict[str, Any]:
    """As `ask`, again and again while there is time and no daemon that answers."""
    # Python has loaded it already; nobody hands a clock to a program of its own.
    from time import monotonic, sleep  # noqa: TID251

    until_s = monotonic() + timeout_s(options)
    while True:
        try:
            return ask(line, {**options, "timeout": str(max(1, round(until_s - monotonic())))})
        except HookFailed as failure:
            if failure.status != NO_DAEMON or monotonic() + PAUSE_S >= until_s:
                raise
        sleep(PAUSE_S)


def ask(line: bytes, options: dict[str, str]) -> dict[str, Any]:
    """The daemon's result, and the line in which it came."""
    path, answer_s = options.get("socket", SOCKET), timeout_s(options)
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        # With a timeout of Python's own, a full queue of a busy daemon would be an error at once.
        connection.setsockopt(_socket.SOL_SOCKET, _socket.SO_SNDTIMEO, timeval(min(CONNECT_S, answer_s)))
        connection.connect(path)
        connection.settimeout(answer_s)
        connection.send(line)
        received = b""
        while True:
            while b"\n" not in received:
                data = connection.recv(65_536)
                if not data or len(received) > MOST_ANSWER_BYTES:
                    raise HookFailed(
                        NO_DAEMON,
                        f"the daemon at {path} hung up without an answer: look at its log, and ask again",
                    )
                received += data
            first, _, received = received.partition(b"\n")
            text = f"{first.decode('ascii')}\n"
            answer, _ = _json.make_scanner(Scanning)(text, 0)  # type: ignore[arg-type]
            if "progress" not in answer:
                break
            note(answer["progress"], options)
        result = {**answer["result"], "line": text} if answer["ok"] else {}
        status, message = int(answer.get("exit_code", 1)), str(answer.get("message"))
    except OSError as error:
        raise HookFailed(NO_DAEMON, f"no daemon answers at {path}: {error}") from error
    except (ValueError, LookupError, StopIteration, TypeError, AttributeError, SystemError) as error:
        raise HookFailed(NO_DAEMON, f"what answers at {path} is not this daemon") from error
    finally:
        connection.close()
    if not result:
        raise HookFailed(status, message)
    return result


def mounter(options: dict[str, str], *words: str) -> None:
    """Have root's part done, in a process of its own; what it complains of goes where ours goes."""
    argv = [sys.executable, "-I", "-S", options["mounter"], *words]
    silent = (posix.POSIX_SPAWN_OPEN, 1, "/dev/null", posix.O_WRONLY, 0)
    pid = posix.posix_spawn(sys.executable, argv, {}, file_actions=[silent])
    _, status = posix.waitpid(pid, 0)
    if status:
        code = posix.WEXITSTATUS(status) or 1
        raise HookFailed(code, f"{words[0]} by {options['mounter']} failed with exit code {code}")


def timeval(seconds: int) -> bytes:
    """Whole seconds as the C library has them: two words, the other one for microseconds."""
    word_bytes = 8 if sys.maxsize > 1 << 32 else 4
    return seconds.to_bytes(word_bytes, sys.byteorder) + bytes(word_bytes)


if __name__ == "__main__":
    STATUS = main(sys.argv[1:])
    sys.stdout.flush()
    raise SystemExit(STATUS)
