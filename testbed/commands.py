"""How a command gets onto a host: the argument lists, environments and small scripts for it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from testbed.records import TestbedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from testbed.people import Person
    from testbed.records import HostProcess

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
# The words after the script's name are the command; a home that is not there is no reason to fail.
AT_HOME = ("/bin/sh", "-c", 'cd "$HOME" 2>/dev/null || cd /; exec "$@"', "sh")
IN_BACKGROUND = (
    "/bin/sh",
    "-c",
    "name=$1; shift; mkdir -p /run/testbed /var/log/testbed\n"
    'setsid "$@" </dev/null >>"/var/log/testbed/$name.log" 2>&1 &\n'
    'echo $! >"/run/testbed/$name.pid"',
    "sh",
)
SIGNALLED = ("/bin/sh", "-c", 'kill -s "$2" "$(cat "/run/testbed/$1.pid")"', "sh")
WRITTEN = (
    "/bin/sh",
    "-c",
    'set -e; mkdir -p "$(dirname "$1")"; cat >"$1.new"; chmod "$2" "$1.new"\n'
    'chown "$3" "$1.new"; mv -T "$1.new" "$1"',
    "sh",
)


class CommandFailed(TestbedError):
    """A command on a host ended otherwise than with 0; the message quotes what it said."""

    def __init__(self, host: str, argv: Sequence[str], done: subprocess.CompletedProcess[str]) -> None:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        super().__init__(f"{' '.join(argv)} on {host} ended with {done.returncode}: {said}")
        self.done = done


def entering(first: HostProcess, person: Person, argv: Sequence[str]) -> list[str]:
    """What runs a command on a host from this machine, and kills it when its own process is killed."""
    words = ["nsenter", "--target", str(first.pid), *SPACES, "--", "setpriv", "--pdeathsig", "KILL"]
    return [*words, *acting_as(person), *AT_HOME, *argv]


def starting(person: Person, name: str, argv: Sequence[str]) -> list[str]:
    """What root of a host runs to leave a command running there, under a name."""
    return [*IN_BACKGROUND, name, "setpriv", *acting_as(person), *AT_HOME, *argv]


def as_person(person: Person, argv: Sequence[str]) -> list[str]:
    """What root of a host runs so that a command is run by a user there."""
    return list(argv) if person.uid == 0 else ["setpriv", *acting_as(person), *argv]


def acting_as(person: Person) -> list[str]:
    """The arguments of setpriv for a user; it looks up the groups on the host."""
    if person.uid == 0:
        return ["--"]
    return [f"--reuid={person.uid}", f"--regid={person.gid}", "--init-groups", "--"]


def environment(person: Person, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a login gives, and nothing of this process's own."""
    plain = {"PATH": PATH, "HOME": person.home, "USER": person.name, "LOGNAME": person.name}
    return {**plain, "LC_ALL": "C.UTF-8", **(more or {})}


def together(
    begun: Mapping[str, Sequence[str]], variables: Mapping[str, str], argv: Sequence[str], timeout_s: float
) -> None:
    """Run a command on many hosts at once. Raises CommandFailed of the first that fails."""
    pipe = subprocess.PIPE
    processes = {
        host: subprocess.Popen(
            list(words), env=dict(variables), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )
        for host, words in begun.items()
    }
    failed = None
    for host, process in processes.items():
        try:
            told, said = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            told, said = process.communicate()
        if process.returncode != 0 and failed is None:
            done = subprocess.CompletedProcess(list(argv), process.returncode, told, said)
            failed = CommandFailed(host, argv, done)
    if failed is not None:
        raise failed
